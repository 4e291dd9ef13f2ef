//! Tests of the unread messages of a turn: buffer, mover and file together.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::buffer::{Bounds, NextItem, TurnBuffer};
use super::mover::{MoverGuard, MoverStep};
use super::ring_file::{FileWork, RingFile};
use crate::error::{Error, ErrorKind};
use crate::options::UnreadPartials;
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;

fn message(kind: &str, number: usize, length: usize) -> Message {
    let line = format!(r#"{{"type":"{kind}","n":{number},"event":{{}},"text":"{}"}}"#, "x".repeat(length));
    Message::parse(&line).unwrap()
}

fn bounds(unread: usize, spilling: usize, spilled: u64) -> Bounds {
    Bounds { unread, spilling, spilled, partials: UnreadPartials::Keep, dir: None }
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

/// Drives the mover by hand: one step chooses the work on the file, the next does it.
struct Steps {
    file: RingFile,
    job: Option<FileWork>,
}

impl Steps {
    fn step(&mut self, buffer: &TurnBuffer, fails: bool) {
        match self.job.take() {
            Some(job) => {
                let mut done = self.file.run(&job);
                if fails && done.written.is_some() {
                    done.written = Some(Err(io::Error::other("no space")));
                }
                buffer.done(done);
            }
            None => {
                if let MoverStep::Work(job) = buffer.next() {
                    self.job = Some(job);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Partial(usize),
    Take,
    Step,
    Fail,
    Discard,
}

fn ops(rare: u32) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        60 => (0usize..300).prop_map(Op::Push),
        30 => (0usize..300).prop_map(Op::Partial),
        50 => Just(Op::Take),
        60 => Just(Op::Step),
        rare => Just(Op::Fail),
        rare => Just(Op::Discard),
    ];
    proptest::collection::vec(op, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// In any order of pushes, takes and moves, every accepted message is read once and in order, and gaps are told in
    /// place.
    #[test]
    fn accepted_messages_are_read_once_and_in_order(
        ops in ops(1), unread in 1usize..1500, spilling in 1usize..1500, spilled in 0u64..3000, drops in any::<bool>(),
    ) {
        let partials = if drops { UnreadPartials::DropFirst } else { UnreadPartials::Keep };
        let counting = Arc::new(Counting::default());
        let buffer = TurnBuffer::new(Bounds { partials, ..bounds(unread, spilling, spilled) }, counting.clone());
        let mut steps = Steps { file: RingFile::default(), job: None };
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
                    if let Ok(dropped) = push(&buffer, message(kind, at, length)) {
                        assert_eq!(dropped, 0);
                        waiting.push_back((at as u64, partial));
                    }
                }
                Op::Take => if let Some(taken) = poll(&buffer) {
                    prop_assert!(!check(taken, &mut waiting));
                },
                Op::Step => steps.step(&buffer, false),
                Op::Fail => steps.step(&buffer, true),
                // Only between two works on the file, so that nothing is moving.
                Op::Discard => if steps.job.is_none() {
                    discarded = buffer.discard();
                    waiting.clear();
                },
            }
            let largest = 400;
            prop_assert!(buffer.in_memory() <= unread.max(largest) + spilling.max(largest));
            prop_assert!(buffer.in_file() <= spilled);
            prop_assert!(drops || counting.dropped_partials.get() == 0);
        }
        buffer.end(None);
        let mut idle = 0;
        loop {
            match poll(&buffer) {
                Some(taken) => if check(taken, &mut waiting) { break },
                None => { steps.step(&buffer, false); idle += 1; prop_assert!(idle < 2000, "it hangs") }
            }
        }
        let counted = counting.dropped_partials.get();
        prop_assert!(discarded <= counted && told <= counted);
        prop_assert!(discarded > 0 || told == counted);
        while steps.job.is_some() { steps.step(&buffer, false); }
        prop_assert!(matches!(buffer.next(), MoverStep::Over | MoverStep::Work(_)), "the mover does not end");
    }
}

#[test]
fn partial_messages_are_dropped_first_and_gaps_are_told() {
    let one = message("stream_event", 0, 0).raw().get().len();
    let counting = Arc::new(Counting::default());
    let bounds = Bounds { partials: UnreadPartials::DropFirst, ..bounds(8 * one, 1, 0) };
    let buffer = TurnBuffer::new(bounds, counting.clone());
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

#[tokio::test]
async fn the_reader_learns_that_the_mover_has_ended() {
    let buffer = Arc::new(TurnBuffer::new(bounds(1, 10_000, 10_000), Arc::default()));
    let mut steps = Steps { file: RingFile::default(), job: None };
    push(&buffer, message("chatter", 1, 0)).unwrap();
    steps.step(&buffer, false);
    steps.step(&buffer, false);
    assert!(buffer.in_file() > 0 && buffer.in_memory() == 0);
    drop(MoverGuard(buffer.clone()));
    match poll(&buffer) {
        Some(NextItem::End(Some(Outcome::Failed { error, result: None }), 0)) => {
            assert_eq!(error.kind(), ErrorKind::Io);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(push(&buffer, message("chatter", 2, 0)).unwrap(), 1);
}
