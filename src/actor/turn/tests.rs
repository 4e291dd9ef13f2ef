//! Tests of the unread messages of a turn.

// Guards: control-first
// Guards: nobody reads messages

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::buffer::{NextItem, TurnBuffer};
use crate::error::{Error, ErrorKind};
use crate::options::UnreadPartials;
use crate::report::counters::Counting;
use crate::wire::Message;

fn message(kind: &str, number: usize, length: usize) -> Message {
    let line = format!(r#"{{"type":"{kind}","n":{number},"event":{{}},"text":"{}"}}"#, "x".repeat(length));
    Message::parse(&line).unwrap()
}

fn push(buffer: &TurnBuffer, message: Message) -> Result<u64, (Error, u64)> {
    buffer.push(std::iter::once(message))
}

/// Takes the next item, if there is one.
fn poll(buffer: &TurnBuffer) -> Option<NextItem> {
    match buffer.poll_take(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(taken) => Some(taken),
        Poll::Pending => None,
    }
}

fn number(message: &Message) -> u64 {
    message.field("n").unwrap().as_u64().unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Partial(usize),
    Take,
    Discard,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        60 => (0usize..300).prop_map(Op::Push),
        30 => (0usize..300).prop_map(Op::Partial),
        50 => Just(Op::Take),
        1 => Just(Op::Discard),
    ];
    proptest::collection::vec(op, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// In any order of pushes and takes, every accepted message is read once and in order, and gaps are told in place.
    #[test]
    fn accepted_messages_are_read_once_and_in_order(ops in ops(), unread in 1usize..1500, drops in any::<bool>()) {
        let partials = if drops { UnreadPartials::DropFirst } else { UnreadPartials::Keep };
        let counting = Arc::new(Counting::default());
        let buffer = TurnBuffer::new(unread, partials, counting.clone());
        // Number of each accepted message, and whether the message is partial.
        let mut waiting: VecDeque<(u64, bool)> = VecDeque::new();
        let (mut told, mut discarded) = (0, 0);
        let mut check = |taken: NextItem, waiting: &mut VecDeque<(u64, bool)>| match taken {
            NextItem::Message(message, missed) => {
                for _ in 0..missed {
                    let (_, partial) = waiting.pop_front().unwrap();
                    assert!(partial, "a message was lost that is not partial");
                }
                assert_eq!(waiting.pop_front().map(|(number, _)| number), Some(number(&message)));
                told += missed;
                false
            }
            NextItem::End(outcome, missed) => {
                assert!(outcome.is_none());
                assert_eq!(waiting.len() as u64, missed);
                told += missed;
                true
            }
        };
        for (at, op) in ops.into_iter().enumerate() {
            match op {
                Op::Push(length) | Op::Partial(length) => {
                    let partial = matches!(op, Op::Partial(_));
                    let kind = if partial { "stream_event" } else { "chatter" };
                    match push(&buffer, message(kind, at, length)) {
                        Ok(dropped) => {
                            prop_assert_eq!(dropped, 0);
                            waiting.push_back((at as u64, partial));
                        }
                        Err((error, behind)) => {
                            prop_assert_eq!((error.kind(), behind), (ErrorKind::Overflow, 0));
                            prop_assert!(buffer.unread() > 0, "a message that waits alone is accepted");
                        }
                    }
                }
                Op::Take => if let Some(taken) = poll(&buffer) {
                    prop_assert!(!check(taken, &mut waiting));
                },
                Op::Discard => {
                    discarded = buffer.discard();
                    waiting.clear();
                }
            }
            let largest = 400;
            prop_assert!(buffer.unread() <= unread.max(largest));
            prop_assert!(drops || counting.dropped_partials.get() == 0);
        }
        buffer.end(None);
        while !check(poll(&buffer).unwrap(), &mut waiting) {}
        let counted = counting.dropped_partials.get();
        prop_assert!(discarded <= counted && told <= counted);
        prop_assert!(discarded > 0 || told == counted);
    }
}

#[test]
fn partial_messages_are_dropped_first_and_gaps_are_told() {
    let one = message("stream_event", 0, 0).raw().get().len();
    let counting = Arc::new(Counting::default());
    let buffer = TurnBuffer::new(8 * one, UnreadPartials::DropFirst, counting.clone());
    for number in 0..9 {
        // 0 and 5 are whole messages; the oldest of the others are dropped.
        let kind = if number % 5 == 0 { "system_event" } else { "stream_event" };
        assert_eq!(push(&buffer, message(kind, number, 0)).unwrap(), 0);
    }
    buffer.end(None);
    let mut seen = Vec::new();
    while let Some(NextItem::Message(message, missed)) = poll(&buffer) {
        seen.push((number(&message), missed));
    }
    assert_eq!(seen, [(0, 0), (3, 2), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0)], "a quarter is dropped");
    assert_eq!(counting.dropped_partials.get(), 2);
}
