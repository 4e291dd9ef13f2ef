//! Readers of turns, over a feed and a backend that the test holds.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::*;
use crate::backend::{Backend, LocalBackend, MemoryBackend};
use crate::error::BackendErrorKind;
use crate::hub::Feed;
use crate::request::Withdrawn;
use crate::stage::turn::*;
use crate::testkit::{Fault, FaultedBackend};

/// An item in short: `2 assistant`, `part a`, `gap 3-4`.
pub(crate) fn short(item: Option<Result<TurnItem, FleetError>>) -> String {
    match item {
        Some(Ok(TurnItem::Message { seq, message })) => format!("{seq} {}", message.kind()),
        Some(Ok(TurnItem::Partial(message))) => {
            format!("part {}", message.value()["event"]["delta"]["text"].as_str().unwrap())
        }
        Some(Ok(TurnItem::Gap { from, to })) => format!("gap {from}-{to}"),
        Some(Ok(TurnItem::MissedPartials { count })) => format!("missed {count}"),
        Some(Err(error)) => format!("{error:?}"),
        None => "end".to_owned(),
    }
}

/// All items up to the end of the turn, in short.
pub(crate) async fn rest(turn: &mut FleetTurn) -> Vec<String> {
    let mut items = Vec::new();
    loop {
        match turn.next().await {
            None => return items,
            item => items.push(short(item)),
        }
    }
}

fn message(json: &serde_json::Value) -> Message {
    Message::parse(&json.to_string()).unwrap()
}

/// Keeps and shows messages `from` to `to`, as a scribe does.
async fn tell(begun: &BegunTurn, feed: &Feed, from: u64, to: u64) {
    let texts: Vec<_> = (from..=to).map(|seq| said(&seq.to_string())).collect();
    begun.append(from, texts.iter().map(ToString::to_string).collect()).await;
    feed.show((from..=to).zip(&texts).map(|(seq, text)| LiveMessage {
        after: seq - 1,
        complete: true,
        message: message(text),
    }));
}

fn tell_part(feed: &Feed, after: u64) {
    feed.show([LiveMessage {
        after,
        complete: false,
        message: message(&part(&format!("of {}", after + 1))),
    }]);
}

fn messages(from: u64, to: u64) -> Vec<String> {
    (from..=to).map(|seq| format!("{seq} assistant")).collect()
}

async fn stage() -> (FaultedBackend, Arc<FleetShared>, BegunTurn) {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    (backend, shared, begun)
}

fn turn(shared: &Arc<FleetShared>, prompt: PromptId) -> FleetTurn {
    FleetTurn::new(shared.clone(), Scope::ALL, prompt, false)
}

#[tokio::test]
async fn a_turn_is_read_from_any_number_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let prompt = {
        let backend = LocalBackend::open(&path).await.unwrap();
        let shared = fleet_on(backend.clone()).await;
        let begun = BegunTurn::new(&shared, "a").await;
        let feed = shared.hub.open(begun.prompt);
        tell(&begun, &feed, 1, 200).await;
        begun.finish(completed()).await;
        backend.close().await;
        begun.prompt
    };
    let shared = fleet_on(LocalBackend::open(&path).await.unwrap()).await;
    let mut whole = FleetTurn::new(shared.clone(), Scope::ALL, prompt, true);
    assert_eq!((whole.prompt_id(), whole.is_duplicate()), (prompt, true));
    assert_eq!(rest(&mut whole).await, messages(1, 200));
    assert_eq!(whole.outcome().await.unwrap(), completed());
    let last = turn(&shared, prompt).messages_from(199).into_stream();
    assert_eq!(last.map(|item| short(Some(item))).collect::<Vec<_>>().await, messages(199, 200));
    assert_eq!(rest(&mut turn(&shared, prompt).messages_from(u64::MAX)).await, [""; 0]);
}

/// Numbers that look random, the same ones for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % bound
    }

    async fn pause(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.below(4))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_ascend_without_doubles_over_the_switch_from_stored_to_live() {
    let mut parts = 0;
    for seed in 1..200 {
        let (backend, shared, begun) = stage().await;
        backend.plan(move |request| {
            let mut random = fastrand::Rng::with_seed(seed << 32 | request.total);
            let time = Duration::from_millis(9).mul_f64(random.f64());
            match (request.method, random.u8(..20)) {
                ("prompt_record" | "messages", 0) => Fault::Fail,
                ("prompt_record" | "messages", 1) => Fault::LoseReply,
                ("prompt_record" | "messages", 2..10) => Fault::Delay(time),
                ("prompt_record" | "messages", 10..18) => Fault::DelayReply(time),
                _ => Fault::Pass,
            }
        });
        let last = 5 + seed % 30;
        let telling = async {
            let mut random = Random(seed);
            random.pause().await;
            let feed = shared.hub.open(begun.prompt);
            let mut told = 0;
            while told < last {
                match random.below(3) {
                    0 => tell_part(&feed, told),
                    1 => random.pause().await,
                    _ => {
                        let to = (told + 1 + random.below(4)).min(last);
                        tell(&begun, &feed, told + 1, to).await;
                        told = to;
                    }
                }
            }
            drop(feed);
            random.pause().await;
            begun.finish(completed()).await;
        };
        let reading = async {
            let mut random = Random(!seed);
            random.pause().await;
            random.pause().await;
            let from = random.below(4).max(1);
            let mut turn = turn(&shared, begun.prompt).messages_from(from);
            let mut next = from;
            while let Some(item) = turn.next().await {
                match item.unwrap() {
                    TurnItem::Message { seq, message } => {
                        assert_eq!((seq, message.text()), (next, Some(seq.to_string())), "seed {seed}");
                        next += 1;
                    }
                    // A part comes before its message, and after all others.
                    item @ TurnItem::Partial(_) => {
                        assert_eq!(short(Some(Ok(item))), format!("part of {next}"), "seed {seed}");
                        parts += 1;
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
                if random.below(3) == 0 {
                    random.pause().await;
                }
            }
            assert_eq!(next, last + 1, "seed {seed}");
        };
        tokio::join!(telling, reading);
    }
    assert!(parts > 100, "{parts} partial messages were seen");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_misses_partial_messages_and_no_complete_one() {
    let (backend, shared, begun) = stage().await;
    let mut slow = turn(&shared, begun.prompt);
    let feed = shared.hub.open(begun.prompt);
    tell(&begun, &feed, 1, 1).await;
    assert_eq!(short(slow.next().await), "1 assistant");
    tell_part(&feed, 1);
    tell(&begun, &feed, 2, 5000).await;
    tell_part(&feed, 5000);
    assert_eq!(short(slow.next().await), "missed 1");
    for seq in 2..=5000 {
        assert_eq!(short(slow.next().await), format!("{seq} assistant"));
    }
    assert_eq!(short(slow.next().await), "part of 5001");
    // The first 904 of these messages were read from the backend, in one page.
    assert_eq!(backend.requests("messages"), 1 + 1);
    drop(feed);
    begun.finish(completed()).await;
    assert_eq!(rest(&mut slow).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_or_cancelled_read_takes_nothing_and_changes_nothing() {
    let (_backend, shared, begun) = stage().await;
    let feed = shared.hub.open(begun.prompt);
    let mut turn = turn(&shared, begun.prompt);
    let telling = async {
        for seq in 1..=50 {
            tell(&begun, &feed, seq, seq).await;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let reading = async {
        let mut seen = Vec::new();
        while seen.len() < 50 {
            // Dropped after one poll, more often than not before an item is there.
            match turn.next().now_or_never() {
                Some(item) => seen.push(short(item)),
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
            assert!(turn.outcome().now_or_never().is_none());
        }
        seen
    };
    let (seen, ()) = tokio::join!(reading, telling);
    assert_eq!(seen, messages(1, 50));
    drop(turn);
    tell(&begun, &feed, 51, 51).await;
    drop(feed);
    begun.finish(completed()).await;
    assert_eq!(shared.hub.audiences(), 0);
    assert_eq!(
        rest(&mut super::FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false)).await,
        messages(1, 51)
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_while_the_backend_is_unavailable() {
    let (backend, shared, begun) = stage().await;
    let feed = shared.hub.open(begun.prompt);
    tell(&begun, &feed, 1, 3).await;
    begun.finish(completed()).await;
    drop(feed);
    let start = Instant::now();
    backend.plan(move |_| if start.elapsed() < Duration::from_secs(60) { Fault::Fail } else { Fault::Pass });
    let before = backend.total_requests();
    let mut turn = turn(&shared, begun.prompt);
    assert_eq!(rest(&mut turn).await, messages(1, 3));
    assert_eq!(turn.outcome().await.unwrap(), completed());
    // The longest pause between two attempts is 4 s.
    assert!(start.elapsed() < Duration::from_secs(65), "{:?}", start.elapsed());
    let looks_for_all = backend.requests("prompt_records");
    let requests = backend.total_requests() - before - looks_for_all;
    assert!(requests < 45, "{requests} requests in a minute");
}

#[tokio::test]
async fn a_closed_backend_ends_a_reader_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    let shared = fleet_on(backend.clone()).await;
    let prompt = accepted(&backend, accept("a")).await;
    let mut turn = turn(&shared, prompt);
    backend.close().await;
    let Some(Err(FleetError::Backend(error))) = turn.next().await else { panic!("no error") };
    assert_eq!(error.kind(), BackendErrorKind::Closed);
    assert!(turn.next().await.is_none());
    assert!(matches!(turn.outcome().await, Err(FleetError::Backend(_))));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_or_forgotten_prompt_is_not_found() {
    let (backend, shared, begun) = stage().await;
    let unknown = turn(&shared, PromptId::new()).next().await;
    assert!(matches!(unknown, Some(Err(FleetError::NotFound { what: "prompt", .. }))), "{unknown:?}");
    begun.finish(completed()).await;
    backend.forget(backend.now().after(Duration::from_secs(1)), 1).await.unwrap();
    let forgotten = turn(&shared, begun.prompt).outcome().await;
    assert!(matches!(forgotten, Err(FleetError::NotFound { what: "prompt", .. })), "{forgotten:?}");
}

/// Reads a prompt that waits for ten seconds and is withdrawn then. Returns the time until the reader knows, and the requests that
/// it made.
async fn read_withdrawn(backend: FaultedBackend) -> (Duration, u64) {
    let shared = fleet_on(backend.clone()).await;
    let prompt = accepted(&backend, accept("a")).await;
    let (mut items, mut outcome) = (turn(&shared, prompt), turn(&shared, prompt));
    let before = backend.total_requests();
    let withdrawing = async {
        tokio::time::sleep(Duration::from_millis(10_500)).await;
        assert_eq!(backend.withdraw(prompt).await.unwrap(), Withdrawn::Unsent);
        Instant::now()
    };
    let (items, outcome, withdrawn) = tokio::join!(rest(&mut items), outcome.outcome(), withdrawing);
    assert_eq!(items, [""; 0]);
    assert_eq!(outcome.unwrap(), PromptOutcome::Unsent { why: crate::Unsent::Withdrawn });
    (withdrawn.elapsed(), backend.total_requests() - before)
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_waiting_prompt_notices_its_end() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let (late, requests) = read_withdrawn(backend).await;
    assert_eq!(late, Duration::ZERO);
    assert!(requests <= 12 + 2 * 4, "{requests} requests in ten seconds");
    // A backend whose changes get lost.
    let backend = FaultedBackend::new(MemoryBackend::new()).without_changes();
    let (late, requests) = read_withdrawn(backend).await;
    assert!(late <= Duration::from_secs(1), "{late:?}");
    assert!(requests <= 12 + 2 * 4, "{requests} requests in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_missed_changes_looks_again() {
    let backend = MemoryBackend::new();
    let shared = fleet_on(backend.clone()).await;
    let prompt = accepted(&backend, accept("a")).await;
    let mut turn = turn(&shared, prompt);
    let mut outcome = pin!(turn.outcome());
    assert!(outcome.as_mut().now_or_never().is_none());
    // The task that hears of changes begins to listen.
    tokio::task::yield_now().await;
    let start = Instant::now();
    assert_eq!(backend.withdraw(prompt).await.unwrap(), Withdrawn::Unsent);
    for _ in 0..5_000 {
        accepted(&backend, accept("b")).await;
    }
    assert_eq!(outcome.await.unwrap(), PromptOutcome::Unsent { why: crate::Unsent::Withdrawn });
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_fleet_ends_readers_of_turns_without_an_outcome() {
    let (_backend, shared, begun) = stage().await;
    let feed = shared.hub.open(begun.prompt);
    tell(&begun, &feed, 1, 2).await;
    let waiting = accepted(&*shared.backend, accept("b")).await;
    let (mut running, mut queued) = (turn(&shared, begun.prompt), turn(&shared, waiting));
    let ending = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        shared.ended.cancel();
    };
    let (items, outcome, ()) = tokio::join!(rest(&mut running), queued.outcome(), ending);
    assert_eq!(items, ["1 assistant", "2 assistant", "the fleet has ended, or is draining: open it again"]);
    assert!(matches!(outcome, Err(FleetError::Ended)), "{outcome:?}");
    // A turn that has its outcome is read all the same.
    begun.finish(completed()).await;
    let mut ended = turn(&shared, begun.prompt);
    assert_eq!(rest(&mut ended).await, messages(1, 2));
    assert_eq!(ended.outcome().await.unwrap(), completed());
}

#[tokio::test(start_paused = true)]
async fn unread_messages_do_not_pile_up_while_only_the_outcome_is_awaited() {
    let (_backend, shared, begun) = stage().await;
    let feed = shared.hub.open(begun.prompt);
    let mut turn = turn(&shared, begun.prompt);
    tell(&begun, &feed, 1, 1).await;
    assert_eq!(short(turn.next().await), "1 assistant");
    assert!(turn.outcome().now_or_never().is_none());
    assert!(turn.live.is_none());
    tell(&begun, &feed, 2, 3).await;
    tell_part(&feed, 3);
    drop(feed);
    begun.finish(completed()).await;
    assert_eq!(turn.outcome().await.unwrap(), completed());
    assert_eq!(rest(&mut turn).await, messages(2, 3), "what is kept can still be read");
}
