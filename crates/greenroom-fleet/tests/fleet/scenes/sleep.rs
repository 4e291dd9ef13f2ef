//! Sleep and wake.

use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{FleetEvent, PassivatedBy};
use tokio::time::{Instant, sleep};

use super::*;

fn passivating(event: &FleetEvent, of: &str, by: PassivatedBy) -> bool {
    matches!(event, FleetEvent::Passivating { name, why, .. } if name.session() == of && *why == by)
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_sleeps_after_its_time_and_not_before() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.idle_after = secs(100)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "one").await;
    let idle = Instant::now();
    let asleep = log.wait("sleep", |event| passivating(event, "a", PassivatedBy::Idle)).await;
    let waited = asleep - idle;
    assert!((secs(100)..secs(101)).contains(&waited), "{waited:?}");
    log.wait("the end", |event| is_passivated(event, "a")).await;
    assert_eq!((world.clis.live(), stage(&fleet, "a").await), (0, "passive"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_begins_the_idle_time_again() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.idle_after = secs(100)).await;
    for _ in 0..5 {
        asks(&fleet, "a", "one").await;
        sleep(secs(90)).await;
    }
    assert_eq!(world.clis.starts_of("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_sleeps_by_request_and_wakes_in_its_conversation() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    assert_eq!(asks(&fleet, "a", "one").await, "re: one");
    let begun = Instant::now();
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!(world.clis.live(), 0);
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert_eq!(world.clis.starts_of("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn passivate_waits_for_the_running_turn() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let turn = send(&fleet, "a", "wait 30").await;
    world.clis.read(1).await;
    let begun = Instant::now();
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert!((secs(29)..secs(32)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(outcome(turn).await.text(), Some("re: wait 30"));
    assert_eq!(world.clis.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_session_makes_room_at_the_cap() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 2).await;
    let log = Log::of(&fleet);
    for name in ["a", "b"] {
        asks(&fleet, name, "one").await;
        sleep(secs(10)).await;
    }
    asks(&fleet, "a", "two").await;
    sleep(secs(10)).await;
    asks(&fleet, "c", "one").await;
    assert_eq!(log.count(|event| passivating(event, "b", PassivatedBy::Eviction)), 1);
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Passivating { .. })), 1);
    assert_eq!((stage(&fleet, "a").await, stage(&fleet, "b").await), ("idle", "passive"));
    assert_eq!(world.clis.most_live(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_idle_for_less_than_five_seconds_is_not_evicted() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "one").await;
    let idle = Instant::now();
    let waits = send(&fleet, "b", "one").await;
    let evicted = log.wait("the eviction", |event| passivating(event, "a", PassivatedBy::Eviction)).await;
    assert!((secs(5)..secs(6)).contains(&(evicted - idle)), "{:?}", evicted - idle);
    assert_eq!(outcome(waits).await.text(), Some("re: one"));
    assert_eq!(world.clis.most_live(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_asks_for_its_next_turn_yields_its_slot_to_an_earlier_request() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let running = send(&fleet, "a", "wait 10").await;
    world.clis.read(1).await;
    let other = send(&fleet, "b", "one").await;
    sleep(secs(1)).await;
    let next = send(&fleet, "a", "two").await;
    let begun = Instant::now();
    outcome(running).await;
    assert_eq!(outcome(other).await.text(), Some("re: one"));
    // The turn of nine further seconds, and no idle time.
    assert!(begun.elapsed() < secs(11), "{:?}", begun.elapsed());
    assert_eq!(outcome(next).await.text(), Some("re: two"));
    assert_eq!(world.clis.most_live(), 1);
}

// Guards: capped
#[tokio::test(start_paused = true)]
async fn six_names_take_turns_on_two_slots_and_remember() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 2).await;
    for round in 0..3 {
        let mut turns = Vec::new();
        for name in ["a", "b", "c", "d", "e", "f"] {
            turns.push(send(&fleet, name, format!("round {round}")).await);
        }
        for turn in turns {
            assert_eq!(outcome(turn).await.text(), Some(format!("re: round {round}").as_str()));
        }
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(world.clis.prompts_of(name), ["round 0", "round 1", "round 2"]);
        assert!(world.clis.starts_of(name) >= 1);
    }
    assert_eq!(world.clis.most_live(), 2);
}

#[tokio::test(start_paused = true)]
async fn background_work_keeps_a_session_awake_until_it_is_over() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.idle_after = secs(100)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background 300").await;
    let answered = Instant::now();
    let asleep = log.wait("sleep", |event| passivating(event, "a", PassivatedBy::Idle)).await;
    assert!((secs(400)..secs(402)).contains(&(asleep - answered)), "{:?}", asleep - answered);
}

#[tokio::test(start_paused = true)]
async fn background_work_past_its_limit_is_ended_with_its_session() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.background = secs(200)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background 3000").await;
    let answered = Instant::now();
    let asleep = log.wait("sleep", |event| passivating(event, "a", PassivatedBy::Background)).await;
    assert!((secs(200)..secs(202)).contains(&(asleep - answered)), "{:?}", asleep - answered);
    world.clis.gone().await;
}

#[tokio::test(start_paused = true)]
async fn background_work_that_begins_after_an_idle_moment_has_its_whole_time() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.background = secs(200)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background 150").await;
    sleep(secs(155)).await;
    asks(&fleet, "a", "background on").await;
    let answered = Instant::now();
    let asleep = log.wait("sleep", |event| passivating(event, "a", PassivatedBy::Background)).await;
    assert!((secs(200)..secs(202)).contains(&(asleep - answered)), "{:?}", asleep - answered);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_background_work_is_over_its_time_in_a_turn_counts_as_idle_after_it() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.background = secs(200)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background on").await;
    sleep(secs(100)).await;
    asks(&fleet, "a", "wait 150").await;
    let answered = Instant::now();
    let asleep = log.wait("sleep", |event| passivating(event, "a", PassivatedBy::Idle)).await;
    assert!((secs(300)..secs(302)).contains(&(asleep - answered)), "{:?}", asleep - answered);
}

#[tokio::test(start_paused = true)]
async fn background_work_has_its_whole_time_again_after_late_work_has_ended() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.background = secs(200)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background on").await;
    sleep(secs(100)).await;
    asks(&fleet, "a", "wait 150").await;
    // The work goes on for ten seconds after this turn.
    asks(&fleet, "a", "background 10").await;
    sleep(secs(20)).await;
    asks(&fleet, "a", "background on").await;
    let answered = Instant::now();
    let asleep = log.wait("sleep", |event| passivating(event, "a", PassivatedBy::Background)).await;
    assert!((secs(200)..secs(202)).contains(&(asleep - answered)), "{:?}", asleep - answered);
}

#[tokio::test(start_paused = true)]
async fn a_session_with_background_work_is_not_evicted() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 2).await;
    asks(&fleet, "a", "background 60").await;
    sleep(secs(1)).await;
    asks(&fleet, "b", "one").await;
    sleep(secs(10)).await;
    asks(&fleet, "c", "one").await;
    assert_eq!((stage(&fleet, "a").await, stage(&fleet, "b").await), ("idle", "passive"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_dies_while_idle_sleeps_and_wakes_for_the_next_prompt() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "die idle").await;
    log.wait("its end", |event| passivating(event, "a", PassivatedBy::Failure)).await;
    log.wait("sleep", |event| is_passivated(event, "a")).await;
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert_eq!(world.clis.starts_of("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_arrives_while_its_session_falls_asleep_waits_and_runs() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "one").await;
    let a = named(&fleet, "a");
    let (asleep, two) = tokio::join!(a.passivate(), async {
        log.wait("the beginning", |event| matches!(event, FleetEvent::Passivating { .. })).await;
        asks(&fleet, "a", "two").await
    });
    asleep.unwrap();
    assert_eq!(two, "re: two");
    assert_eq!(world.clis.starts_of("a"), 2);
    assert_eq!(world.clis.most_live(), 1);
}

#[tokio::test(start_paused = true)]
async fn warm_starts_a_known_session_and_refuses_an_unknown_one() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let unknown = in_time("warm", named(&fleet, "a").warm()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "the session is not known: send it a prompt first");
    asks(&fleet, "a", "one").await;
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    in_time("warm", named(&fleet, "a").warm()).await.unwrap();
    assert_eq!((world.clis.live(), stage(&fleet, "a").await), (1, "idle"));
    in_time("warm again", named(&fleet, "a").warm()).await.unwrap();
    asks(&fleet, "a", "two").await;
    assert_eq!(world.clis.starts_of("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn warm_waits_while_its_session_falls_asleep() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    asks(&fleet, "a", "one").await;
    for _ in 0..20 {
        let a = named(&fleet, "a");
        let (asleep, warm) = tokio::join!(a.passivate(), a.warm());
        asleep.and(warm).unwrap();
    }
    assert_eq!(world.clis.most_live(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_an_idle_session_keeps_no_prompt_from_it() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let a = named(&fleet, "a");
    asks(&fleet, "a", "one").await;
    assert!(!in_time("the interrupt", a.interrupt()).await.unwrap());
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    in_time("warm", a.warm()).await.unwrap();
    assert_eq!(asks(&fleet, "a", "three").await, "re: three");
    assert!(in_time("steering", a.steer("no turn")).await.is_err());
    assert_eq!(asks(&fleet, "a", "four").await, "re: four");
}

#[tokio::test(start_paused = true)]
async fn a_passive_name_has_no_task_and_no_timer() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone()).configure(|limits| limits.live = 100)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // The requests of an hour, and the tasks at its end.
    let hour = async || {
        let before = backend.total_requests();
        sleep(secs(3600)).await;
        (backend.total_requests() - before, tasks())
    };
    // The first reader starts a task for all readers.
    asks(&fleet, "first", "one").await;
    sleep(secs(3600)).await;
    let (requests, none) = hour().await;
    for n in 0..60 {
        asks(&fleet, &format!("name {n}"), "one").await;
    }
    sleep(secs(2 * 3600)).await;
    let (with_names, all) = hour().await;
    // The CLIs of the test have a task for each name.
    assert_eq!(all - none, 60);
    assert!(with_names.abs_diff(requests) <= 2, "{with_names} requests in an hour, and {requests} before");
}

#[tokio::test(start_paused = true)]
async fn names_that_wait_for_a_slot_read_nothing_meanwhile() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let one_slot = world.on(backend.clone()).configure(|limits| (limits.live, limits.wait) = (1, secs(3600)));
    let fleet = start(one_slot).await;
    drop(send(&fleet, "holds", "hold").await);
    world.clis.read(1).await;
    for n in 0..20 {
        drop(send(&fleet, &format!("name {n}"), "one").await);
    }
    sleep(secs(1)).await;
    let read = || ["name_record", "next_prompt", "tenant"].map(|method| backend.requests(method));
    let (before, looks) = (read(), backend.requests("waiting"));
    sleep(secs(60)).await;
    assert_eq!(read(), before);
    let looks = backend.requests("waiting") - looks;
    assert!((11..=13).contains(&looks), "{looks} looks in a minute");
}

#[tokio::test(start_paused = true)]
async fn two_requests_to_sleep_at_once_end_the_session_once() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    asks(&fleet, "a", "one").await;
    let a = named(&fleet, "a");
    let both = async { tokio::join!(a.passivate(), a.passivate(), async { asks(&fleet, "a", "two").await }) };
    let (first, second, _) = in_time("both", both).await;
    first.and(second).unwrap();
    sleep(secs(1)).await;
    assert_eq!((world.clis.starts_of("a"), stage(&fleet, "a").await), (2, "idle"));
}

#[tokio::test(start_paused = true)]
async fn a_request_to_sleep_is_over_at_once_while_its_session_waits_for_a_slot() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let running = send(&fleet, "a", "wait 30").await;
    world.clis.read(1).await;
    let waits = send(&fleet, "b", "one").await;
    sleep(secs(1)).await;
    let begun = Instant::now();
    in_time("sleep", named(&fleet, "b").passivate()).await.unwrap();
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert!(outcome(running).await.is_completed());
    assert_eq!(outcome(waits).await.text(), Some("re: one"));
    sleep(secs(1)).await;
    assert_eq!((world.clis.starts_of("b"), stage(&fleet, "b").await), (1, "idle"));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_being_freed_is_not_taken_from_another_session() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone()).configure(|limits| limits.live = 2)).await;
    // The other session was used less recently.
    for name in ["b", "a"] {
        asks(&fleet, name, "one").await;
        sleep(secs(1)).await;
    }
    backend.fault_next("release", Fault::Hang);
    let a = named(&fleet, "a");
    let asleep = tokio::spawn(async move { a.passivate().await });
    in_time("the release", backend.wait_for_hanging(1)).await;
    let waits = send(&fleet, "c", "one").await;
    sleep(secs(20)).await;
    assert_eq!((stage(&fleet, "a").await, stage(&fleet, "b").await), ("passivating", "idle"));
    backend.release();
    assert_eq!(outcome(waits).await.text(), Some("re: one"));
    in_time("sleep", asleep).await.unwrap().unwrap();
    assert_eq!((stage(&fleet, "b").await, world.clis.most_live()), ("idle", 2));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_arrives_while_its_session_is_warmed_runs_and_so_does_the_next() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    asks(&fleet, "a", "one").await;
    let a = named(&fleet, "a");
    in_time("sleep", a.passivate()).await.unwrap();
    backend.fault_next("claim", Fault::Hang);
    let (warm, two) = tokio::join!(a.warm(), async {
        in_time("the claim", backend.wait_for_hanging(1)).await;
        let two = send(&fleet, "a", "wait 2").await;
        sleep(secs(1)).await;
        backend.release();
        two
    });
    warm.unwrap();
    world.clis.read(2).await;
    let begun = Instant::now();
    assert_eq!(asks(&fleet, "a", "three").await, "re: three");
    assert!(begun.elapsed() < secs(3), "{:?}", begun.elapsed());
    assert_eq!(outcome(two).await.text(), Some("re: wait 2"));
    assert_eq!(world.clis.starts_of("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_arrives_while_its_queue_is_read_is_not_overlooked() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let first = send(&fleet, "a", "wait 1").await;
    world.clis.read(1).await;
    // Read before the second prompt is there, and answered after it.
    backend.fault_next("name_record", Fault::HangReply);
    in_time("the reading", backend.wait_for_hanging(1)).await;
    assert!(outcome(first).await.is_completed());
    let second = send(&fleet, "a", "two").await;
    sleep(secs(1)).await;
    let begun = Instant::now();
    backend.release();
    assert_eq!(outcome(second).await.text(), Some("re: two"));
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
}
