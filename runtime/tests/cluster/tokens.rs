use corehold::cluster::tokens::{MOST, TokenRefused, Tokens, TooManyTokens};
use proptest::prelude::*;

use crate::s;

fn digest(n: u8) -> [u8; 32] {
    [n; 32]
}

#[test]
fn a_token_lets_in_as_many_as_it_was_made_for_tk1_tk2() {
    let mut tokens = Tokens::default();
    let unknown = Err(TokenRefused::Unknown);
    assert_eq!(tokens.redeem(&digest(1), s(0)), unknown);
    tokens.make(digest(1), s(10), 2, s(0)).unwrap();
    tokens.make(digest(2), s(20), 9, s(0)).unwrap();
    assert_eq!(tokens.next_deadline(), Some(s(10)));
    for _ in 0..2 {
        assert_eq!(tokens.check(&digest(1), s(1)), Ok(()));
        assert_eq!(tokens.redeem(&digest(1), s(1)), Ok(()));
    }
    assert_eq!(tokens.redeem(&digest(1), s(2)), Err(TokenRefused::Used));
    assert_eq!(tokens.redeem(&digest(2), s(19)), Ok(()));
    assert!(tokens.any());
    assert_eq!(tokens.redeem(&digest(2), s(20)), Err(TokenRefused::Expired));
    assert!(!tokens.any());
    assert_eq!(tokens.redeem(&digest(1), s(99)), Err(TokenRefused::Used));
    assert_eq!(tokens.redeem(&digest(3), s(99)), unknown);
}

#[test]
fn the_table_is_bounded_tk3() {
    let mut tokens = Tokens::default();
    let digest = |n: usize| {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&n.to_le_bytes());
        digest
    };
    for n in 0..MOST {
        tokens.make(digest(n), s(10), 1, s(0)).unwrap();
    }
    assert_eq!(
        tokens.make(digest(MOST), s(10), 1, s(0)),
        Err(TooManyTokens)
    );
    for n in 0..MOST {
        tokens.make(digest(MOST + n), s(20), 1, s(10)).unwrap();
    }
    tokens.poll(s(20));
    // Those that were over first are forgotten.
    assert_eq!(tokens.check(&digest(0), s(20)), Err(TokenRefused::Unknown));
    assert_eq!(
        tokens.check(&digest(MOST), s(20)),
        Err(TokenRefused::Expired)
    );
}

proptest! {
    /// Against a plain account of what each token may still do.
    #[test]
    fn whatever_is_asked_in_whatever_order_tk1(
        steps in prop::collection::vec((0u8..4, 0u8..5, 1u64..9, 1u32..4), 1..60),
    ) {
        let (mut tokens, mut now) = (Tokens::default(), s(0));
        let mut account: Vec<Option<(std::time::Duration, u32)>> = vec![None; 5];
        for (what, token, time, uses) in steps {
            let known = &mut account[usize::from(token)];
            match what {
                0 if known.is_none() => {
                    tokens.make(digest(token), now + s(time), uses, now).unwrap();
                    *known = Some((now + s(time), uses));
                }
                1 => now += s(time),
                _ => {
                    let let_in = tokens.redeem(&digest(token), now).is_ok();
                    let may = known.as_mut().filter(|(until, left)| *until > now && *left > 0);
                    prop_assert_eq!(let_in, may.is_some());
                    if let Some((_, left)) = may {
                        *left -= 1;
                    }
                }
            }
        }
    }
}
