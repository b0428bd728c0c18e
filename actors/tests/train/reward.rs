use corehold_actors::kernel::{Measurement, Outcome, Verdict};
use corehold_actors::train::job::{Penalties, Reward, Scale};
use corehold_actors::train::reward::{Ladder, class_of_group};
use proptest::prelude::*;

use crate::support::measurement;

const SCALES: [Scale; 3] = [Scale::Log2, Scale::Gflops, Scale::ShareOfPeak];

fn ladder(scale: Scale) -> Ladder {
    Ladder::new(&Reward {
        scale,
        penalties: Penalties::default(),
    })
}

/// All failures, worst first.
fn failures() -> [Verdict; 6] {
    let why = String::new;
    [
        Verdict::FormatViolation(why()),
        Verdict::LibraryViolation(why()),
        Verdict::CompileError(why()),
        Verdict::Timeout(why()),
        Verdict::RuntimeError(why()),
        Verdict::WrongResult(why()),
    ]
}

fn of(ladder: Ladder, gflops: f64) -> f64 {
    ladder
        .reward(
            &Verdict::Correct,
            Some(&Outcome::Measured(measurement(gflops))),
        )
        .unwrap()
}

#[test]
fn the_papers_ladder() {
    let l = ladder(Scale::Gflops);
    let rewards: Vec<f64> = failures()
        .iter()
        .map(|v| l.reward(v, None).unwrap())
        .collect();
    assert_eq!(rewards, [-100.0, -100.0, -40.0, -30.0, -20.0, -10.0]);
    assert_eq!(of(l, 17.5), 17.5);
}

#[test]
fn the_scales_at_known_rates() {
    assert_eq!(of(ladder(Scale::Log2), 0.0), 0.0);
    assert!((of(ladder(Scale::Log2), 1.0) - 1.0).abs() < 1e-15);
    assert!((of(ladder(Scale::Log2), 63.0) - 6.0).abs() < 1e-12);
    assert!((of(ladder(Scale::ShareOfPeak), 30.0) - 0.5).abs() < 1e-15);
}

#[test]
fn what_is_not_known_has_no_reward() {
    for scale in SCALES {
        let l = ladder(scale);
        let contaminated = Outcome::Contaminated(measurement(40.0));
        assert_eq!(l.reward(&Verdict::Correct, Some(&contaminated)), None);
        assert_eq!(l.reward(&Verdict::Correct, None), None);
        let mut odd = measurement(f64::NAN);
        odd.share_of_peak = -1.0;
        assert_eq!(
            l.reward(&Verdict::Correct, Some(&Outcome::Measured(odd))),
            None
        );
        assert_eq!(l.penalty(&Verdict::Correct), None);
    }
}

fn on(class: &str, gflops: f64) -> Outcome {
    let class = class.to_owned();
    Outcome::Measured(Measurement {
        class,
        ..measurement(gflops)
    })
}

#[test]
fn a_group_is_rewarded_on_one_class_of_node() {
    let ladder = ladder(Scale::Gflops);
    let outcomes = [
        on("old", 10.0),
        on("new", 30.0),
        on("new", 31.0),
        Outcome::Contaminated(measurement(90.0)),
        Outcome::Failed(Verdict::WrongResult("row 3".to_owned())),
    ];
    let group: Vec<_> = outcomes
        .iter()
        .map(|o| (&Verdict::Correct, Some(o)))
        .collect();
    assert_eq!(
        class_of_group(outcomes.iter().map(Some)),
        Some("new"),
        "most of the measurements"
    );
    // The stranger is left out, as what was not measured; a failure is one on any machine.
    assert_eq!(
        ladder.group(&group),
        [None, Some(30.0), Some(31.0), None, Some(-10.0)]
    );
    // Of two classes with as many, the first.
    assert_eq!(ladder.group(&group[..2]), [Some(10.0), None]);
    assert_eq!(ladder.group(&group[3..]), [None, Some(-10.0)]);
    assert_eq!(class_of_group(outcomes[3..].iter().map(Some)), None);
    assert_eq!(class_of_group([None]), None);
}

#[test]
fn a_failure_found_while_measuring_is_the_failure() {
    for scale in SCALES {
        let l = ladder(scale);
        for failure in failures() {
            let late = l.reward(&Verdict::Correct, Some(&Outcome::Failed(failure.clone())));
            assert_eq!(late, l.reward(&failure, None));
        }
    }
}

fn any_scale() -> impl Strategy<Value = Scale> {
    prop::sample::select(SCALES.to_vec())
}

proptest! {
    #[test]
    fn no_two_rewarded_rates_of_a_group_are_of_unlike_classes(classes in prop::collection::vec(0..4u8, 1..12)) {
        let outcomes: Vec<_> = classes.iter().map(|c| on(&c.to_string(), f64::from(*c) + 1.0)).collect();
        let group: Vec<_> = outcomes.iter().map(|o| (&Verdict::Correct, Some(o))).collect();
        let rewards = ladder(Scale::Gflops).group(&group);
        let mut paid: Vec<_> = rewards.iter().flatten().copied().collect();
        let most = (0..4u8).map(|c| classes.iter().filter(|x| **x == c).count()).max();
        prop_assert_eq!(Some(paid.len()), most);
        paid.dedup();
        prop_assert_eq!(paid.len(), 1);
    }

    #[test]
    fn the_order_of_the_ladder_is_kept(scale in any_scale()) {
        let l = ladder(scale);
        let rewards: Vec<f64> = failures().iter().map(|v| l.reward(v, None).unwrap()).collect();
        prop_assert!(rewards.is_sorted(), "{rewards:?}");
    }

    #[test]
    fn correct_beats_every_failure(scale in any_scale(), gflops in 0.0..1e6_f64) {
        let l = ladder(scale);
        for failure in failures() {
            prop_assert!(of(l, gflops) > l.reward(&failure, None).unwrap());
        }
    }

    #[test]
    fn faster_is_never_worth_less(scale in any_scale(), a in 0.0..1e4_f64, b in 0.0..1e4_f64) {
        let l = ladder(scale);
        let (slow, fast) = (a.min(b), a.max(b));
        prop_assert!(of(l, slow) <= of(l, fast));
        // And by a difference that can be seen, it is worth more.
        prop_assert!(of(l, slow) < of(l, fast * 1.001 + 1e-6));
    }

    #[test]
    fn replaced_penalties_hold(scale in any_scale(), wrong in -1e3..-1e-3_f64) {
        let penalties = Penalties { wrong: Some(wrong), ..Penalties::default() };
        let l = Ladder::new(&Reward { scale, penalties });
        prop_assert_eq!(l.reward(&Verdict::WrongResult(String::new()), None), Some(wrong));
        prop_assert_eq!(l.timeout, ladder(scale).timeout);
    }
}
