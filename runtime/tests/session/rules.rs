//! One rule a test.

use std::time::Duration;

use corehold::wire::session::{Arrival, Limits, Session, SessionError};

const START: Duration = Duration::ZERO;

fn small() -> Limits {
    Limits {
        items: 4,
        bytes: 100,
        patience: Duration::from_secs(5),
    }
}

fn connected() -> Session<&'static str> {
    let mut session = Session::new(small(), START);
    session.connect(1, 0).unwrap();
    session
}

/// SE-1 and SE-2: what the peer had not got goes again, in order; what it had does not.
#[test]
fn a_new_connection_goes_on_where_the_peer_left_off() {
    let mut session = connected();
    for item in ["a", "b", "c"] {
        session.send(item, 1);
    }
    assert_eq!(session.transmit(), Some((1, &"a")));
    assert_eq!(session.transmit(), Some((2, &"b")));
    session.disconnect(1, START);
    assert_eq!(session.transmit(), None, "there is no connection");
    session.connect(2, 1).unwrap();
    assert_eq!(session.transmit(), Some((2, &"b")));
    assert_eq!(session.transmit(), Some((3, &"c")));
    assert_eq!(session.transmit(), None);
    // Received is not done: "a" stays until the peer says so.
    assert_eq!(session.under_way(), 3);
    session.acknowledge(2, 3).unwrap();
    assert_eq!(session.under_way(), 0);
}

/// SE-1: repeats are dropped, gaps are an error.
#[test]
fn items_are_taken_once_and_in_order() {
    let mut session = connected();
    assert_eq!(session.receive(1, 1), Ok(Arrival::New));
    assert_eq!(session.receive(1, 1), Ok(Arrival::Repeat));
    let gap = SessionError::Gap {
        number: 3,
        expected: 2,
    };
    assert_eq!(session.receive(1, 3), Err(gap));
}

/// SE-3: nothing that comes over an old connection counts.
#[test]
fn an_old_connection_says_nothing() {
    let mut session = connected();
    session.send("a", 1);
    session.transmit();
    session.connect(2, 0).unwrap();
    assert_eq!(session.receive(1, 1), Ok(Arrival::Stale));
    session.acknowledge(1, 1).unwrap();
    assert_eq!(session.under_way(), 1);
    // Nor does its end.
    session.disconnect(1, START);
    assert!(session.is_connected());
}

/// SE-4: by number, by size, and one item of any size.
#[test]
fn room_is_bounded() {
    let mut session = connected();
    assert!(session.has_room());
    session.send("huge", 1_000);
    assert!(!session.has_room());
    session.transmit();
    session.acknowledge(1, 1).unwrap();
    for item in ["a", "b", "c", "d"] {
        assert!(session.has_room());
        session.send(item, 1);
    }
    assert!(!session.has_room());
    // The peer is told in time: after a quarter of what may be under way.
    let mut peer = connected();
    assert!(!peer.may_tell());
    peer.receive(1, 1).unwrap();
    assert!(!peer.may_tell(), "received is not done");
    peer.consume(1);
    assert!(peer.must_tell());
    assert_eq!(peer.tell(), 1);
    assert!(!peer.may_tell());
}

/// SE-5: only what never was on a connection is certain not to have arrived.
#[test]
fn what_was_never_transmitted_can_be_taken_back() {
    let mut session = connected();
    let (a, b) = (session.send("a", 60), session.send("b", 60));
    session.transmit();
    session.disconnect(1, START);
    assert_eq!(session.replace_unsent(a, "void"), None);
    assert!(session.is_ventured(a) && !session.is_ventured(b));
    assert!(!session.has_room());
    assert_eq!(session.replace_unsent(b, "void"), Some("b"));
    assert!(session.has_room(), "its bytes are free");
    session.connect(2, 0).unwrap();
    // Sent again after a reconnect, it is still one that may have arrived.
    assert!(session.is_ventured(a));
    assert_eq!(session.transmit(), Some((1, &"a")));
    assert_eq!(session.transmit(), Some((2, &"void")));
}

/// SE-6: a peer that lost the session is not sent anything twice.
#[test]
fn a_peer_that_forgot_ends_the_session() {
    let mut session = connected();
    session.send("a", 1);
    session.transmit();
    session.acknowledge(1, 1).unwrap();
    session.disconnect(1, START);
    let forgotten = SessionError::Forgotten {
        received: 0,
        acknowledged: 1,
    };
    assert_eq!(session.connect(2, 0), Err(forgotten));
    // One that has more than was sent is not this session's peer.
    let mut session = connected();
    assert!(session.connect(2, 1).is_err());
}

/// SE-7: the wait for a connection is bounded.
#[test]
fn without_a_connection_a_deadline_stands() {
    let mut session = connected();
    assert_eq!(session.gives_up_at(), None);
    session.disconnect(1, Duration::from_secs(2));
    assert_eq!(session.gives_up_at(), Some(Duration::from_secs(7)));
    session.disconnect(1, Duration::from_secs(3));
    assert_eq!(session.gives_up_at(), Some(Duration::from_secs(7)));
    session.wait_from(Duration::from_secs(4));
    assert_eq!(session.gives_up_at(), Some(Duration::from_secs(9)));
    session.connect(2, 0).unwrap();
    assert_eq!(session.gives_up_at(), None);
}
