//! Prompts that are accepted, repeated, refused, taken back, and remembered for later.

use std::time::SystemTime;

use greenroom_fleet::backend::Requests;
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{FleetPrompt, InterruptedBy, PromptState, QueueBounds, Quota, Unsent};
use greenroom_testkit::ScriptedCli;
use tokio::time::{Instant, sleep};

use super::*;

fn unsent(why: Unsent) -> PromptOutcome {
    PromptOutcome::Unsent { why }
}

fn keyed(text: &str) -> FleetPrompt {
    FleetPrompt::new(text).key("k")
}

// Guards: never-run-twice
#[tokio::test(start_paused = true)]
async fn a_key_sent_twice_is_one_turn() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let first = send(&fleet, "a", keyed("wait 5")).await;
    let second = send(&fleet, "a", keyed("wait 5")).await;
    assert!(!first.is_duplicate() && second.is_duplicate());
    assert_eq!(first.prompt_id(), second.prompt_id());
    assert_eq!(outcome(first).await, outcome(second).await);
    let third = send(&fleet, "a", keyed("wait 5")).await;
    assert!(third.is_duplicate(), "also after its outcome");
    assert_eq!(outcome(third).await.text(), Some("re: wait 5"));
    assert_eq!(world.clis.prompts_of("a"), ["wait 5"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_one_turn_over_a_restart() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let ended = send(&fleet, "a", keyed("one")).await.prompt_id();
    outcome(fleet.operator().turn(ended)).await;
    drain(&fleet, secs(20)).await;
    let fleet = world.fleet(|_| {}).await;
    let again = send(&fleet, "a", keyed("one")).await;
    assert!(again.is_duplicate() && again.prompt_id() == ended);
    assert_eq!(world.clis.prompts_of("a"), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_another_content_is_refused_and_another_name_may_use_it() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let first = send(&fleet, "a", keyed("one")).await.prompt_id();
    let (why, retry_after) = refused(&named(&fleet, "a"), keyed("two")).await;
    assert_eq!((why, retry_after), (Refused::KeyReused { prompt: first }, None));
    assert!(!send(&fleet, "b", keyed("two")).await.is_duplicate());
}

#[tokio::test(start_paused = true)]
async fn a_known_name_keeps_its_profile() {
    let world = World::new();
    let other = world.clis.clone();
    let fleet = start(world.builder().profile("other", move |cx| session(&other, cx.name.session()))).await;
    asks(&fleet, "a", "one").await;
    let (why, _) = refused(&named(&fleet, "a").profile("other"), "two").await;
    assert_eq!(why, Refused::ProfileMismatch { known: "default".into() });
    let (why, retry_after) = refused(&named(&fleet, "b").profile("none"), "one").await;
    assert_eq!((why, retry_after), (Refused::UnknownProfile("none".into()), None));
    assert_eq!(stage(&fleet, "b").await, "unknown", "nothing of it is kept");
}

#[tokio::test(start_paused = true)]
async fn the_queues_of_a_name_a_tenant_and_the_fleet_are_bounded() {
    let world = World::new();
    let bounds = QueueBounds { name: 2, tenant: 3, fleet: 4, ..Default::default() };
    let fleet = world.fleet(|limits| (limits.live, limits.queue) = (1, bounds)).await;
    let running = send(&fleet, "a", "hold").await;
    world.clis.read(1).await;
    let full = |why: Refused| match why {
        Refused::QueueFull { of, bound, .. } => (of, bound),
        other => panic!("{other:?}"),
    };
    let mut waiting = vec![send(&fleet, "a", "1").await, send(&fleet, "a", "2").await];
    let (why, retry_after) = refused(&named(&fleet, "a"), "3").await;
    assert_eq!((full(why), retry_after), (("for the session", 2), Some(secs(1))));
    waiting.push(send(&fleet, "b", "1").await);
    assert_eq!(full(refused(&named(&fleet, "b"), "2").await.0), ("for the tenant", 3));
    let other = |name| named_of(&fleet, "other", name);
    waiting.push(in_time("the accept", other("c").prompt("1")).await.unwrap());
    assert_eq!(full(refused(&other("d"), "1").await.0), ("in the fleet", 4));
    assert!(in_time("the interrupt", named(&fleet, "a").interrupt()).await.unwrap());
    for turn in waiting {
        assert!(outcome(turn).await.is_completed());
    }
    assert!(matches!(outcome(running).await, PromptOutcome::Interrupted { by: InterruptedBy::User, .. }));
    asks(&fleet, "a", "3").await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_may_have_a_queue_of_its_own_size() {
    let world = World::new();
    let fleet = start(
        world.builder().tenant("small", Quota::default().queued(1)).configure(|limits| limits.live = 1),
    )
    .await;
    let running = send(&fleet, "a", "wait 10").await;
    world.clis.read(1).await;
    let small = named_of(&fleet, "small", "b");
    let waits = in_time("the accept", small.prompt("1")).await.unwrap();
    let (why, _) = refused(&small, "2").await;
    assert_eq!(why, Refused::QueueFull { what: "prompts", of: "for the tenant", bound: 1 });
    outcome(running).await;
    assert!(outcome(waits).await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_for_too_long_ends_as_unsent() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let running = send(&fleet, "a", "wait 100").await;
    world.clis.read(1).await;
    let begun = Instant::now();
    let waits = send(&fleet, "b", FleetPrompt::new("one").wait(secs(30))).await;
    let behind = send(&fleet, "a", FleetPrompt::new("two").wait(secs(30))).await;
    assert_eq!(outcome(waits).await, unsent(Unsent::Expired { cause: None }));
    assert!((secs(30)..secs(32)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(outcome(behind).await, unsent(Unsent::Expired { cause: None }));
    assert!(outcome(running).await.is_completed());
    sleep(secs(60)).await;
    assert_eq!(world.clis.prompts(), [("a".into(), "wait 100".into())]);
    assert_eq!(world.clis.starts_of("b"), 0, "nothing waits for a session of it");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_can_be_withdrawn_and_a_running_one_cannot() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let running = send(&fleet, "a", "wait 10").await;
    world.clis.read(1).await;
    let waits = send(&fleet, "a", "two").await;
    assert!(fleet.operator().withdraw(waits.prompt_id()).await.unwrap());
    assert!(fleet.operator().withdraw(waits.prompt_id()).await.unwrap(), "again");
    assert!(!fleet.operator().withdraw(running.prompt_id()).await.unwrap());
    assert_eq!(outcome(waits).await, unsent(Unsent::Withdrawn));
    assert!(outcome(running).await.is_completed());
    assert_eq!(asks(&fleet, "a", "three").await, "re: three");
    assert_eq!(world.clis.prompts_of("a"), ["wait 10", "three"]);
    let unknown = fleet.operator().withdraw(greenroom_fleet::PromptId::new()).await.unwrap_err();
    assert!(unknown.to_string().contains("is not known"), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn a_reminder_wakes_its_session_at_its_moment() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.idle_after = secs(60)).await;
    asks(&fleet, "a", "one").await;
    let begun = Instant::now();
    let reminder = FleetPrompt::new("remember").not_before(SystemTime::now() + secs(3600));
    let turn = send(&fleet, "a", reminder).await;
    assert_eq!(asks(&fleet, "a", "two").await, "re: two", "it holds up nobody");
    sleep(secs(600)).await;
    assert_eq!((world.clis.live(), stage(&fleet, "a").await), (0, "passive"));
    assert_eq!(outcome(turn).await.text(), Some("re: remember"));
    let waited = begun.elapsed();
    assert!((secs(3595)..secs(3605)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_look_each_second_serves_all_readers_that_hear_of_no_change() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone()).without_changes();
    let fleet = start(world.on(backend.clone())).await;
    let mut outcomes = tokio::task::JoinSet::new();
    for n in 0..50 {
        let reminder = FleetPrompt::new("remember").not_before(SystemTime::now() + secs(3600));
        let mut turn = send(&fleet, &format!("name {n}"), reminder).await;
        let id = turn.prompt_id();
        outcomes.spawn(async move { turn.outcome().await });
        if n == 0 {
            sleep(secs(60)).await;
            world.backend.drop_prompt(id, "not needed".to_owned()).await.map(drop).unwrap();
            let dropped = in_time("the outcome", outcomes.join_next()).await;
            dropped.expect("a reader").unwrap().unwrap();
        }
    }
    sleep(secs(10)).await;
    let requests = || (backend.requests("prompt_records"), backend.requests("prompt_record"));
    let (looks, reads) = requests();
    sleep(secs(60)).await;
    let (later, still) = requests();
    assert!((55..=61).contains(&(later - looks)), "{}", later - looks);
    assert_eq!(reads, still, "a reader reads its record when it has changed");
}

#[tokio::test(start_paused = true)]
async fn a_reminder_outlives_the_process_and_fires_late_if_it_has_to() {
    for restart_after in [secs(60), secs(3700)] {
        let world = World::new();
        let fleet = world.fleet(|_| {}).await;
        let begun = Instant::now();
        let reminder = FleetPrompt::new("remember").not_before(SystemTime::now() + secs(3600));
        let turn = send(&fleet, "a", reminder).await.prompt_id();
        drain(&fleet, secs(20)).await;
        drop(fleet);
        sleep(restart_after).await;
        let fleet = world.fleet(|_| {}).await;
        assert_eq!(outcome(fleet.operator().turn(turn)).await.text(), Some("re: remember"));
        let due = secs(3600).max(restart_after);
        assert!((due - secs(5)..due + secs(5)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        drain(&fleet, secs(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn prompts_of_a_name_run_in_their_order_one_at_a_time() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let mut turns = Vec::new();
    let begun = Instant::now();
    for n in 0..12 {
        turns.push(send(&fleet, "a", format!("wait {n}")).await);
    }
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
    // No time passes between two turns.
    assert!((secs(66)..secs(67)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let expected: Vec<_> = (0..12).map(|n| format!("wait {n}")).collect();
    assert_eq!(world.clis.prompts_of("a"), expected);
    assert_eq!(world.clis.starts_of("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_its_turn_and_no_other() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let a = named(&fleet, "a");
    let first = send(&fleet, "a", "hold").await;
    let second = send(&fleet, "a", "wait 5").await;
    world.clis.read(1).await;
    assert!(!in_time("a wrong interrupt", a.interrupt_turn(second.prompt_id())).await.unwrap());
    assert!(in_time("the interrupt", a.interrupt_turn(first.prompt_id())).await.unwrap());
    assert!(matches!(outcome(first).await, PromptOutcome::Interrupted { by: InterruptedBy::User, .. }));
    assert_eq!(outcome(second).await.text(), Some("re: wait 5"));
    assert!(!in_time("an idle interrupt", a.interrupt()).await.unwrap());
}

// Guards: never-run-twice
#[tokio::test(start_paused = true)]
async fn a_turn_of_a_lost_owner_ends_as_interrupted_or_goes_on_with_its_continuation() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let ends = send(&fleet, "a", "hold").await.prompt_id();
    let goes_on = send(&fleet, "b", FleetPrompt::new("hold").continue_with("go on", 1)).await.prompt_id();
    let waits = send(&fleet, "b", "next").await.prompt_id();
    world.clis.read(2).await;
    // The beginnings of both turns are kept.
    tokio::time::sleep(secs(1)).await;
    let world = world.killed().await;
    world.clis.gone().await;
    let fleet = world.fleet(|_| {}).await;
    let lost = outcome(fleet.operator().turn(ends)).await;
    assert!(
        matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{lost:?}"
    );
    assert_eq!(outcome(fleet.operator().turn(goes_on)).await.text(), Some("re: go on"));
    let (mut turn, mut seen) = (fleet.operator().turn(goes_on), Vec::new());
    while let Some(item) = in_time("an item", turn.next()).await {
        let item = item.unwrap();
        seen.push((item.seq().unwrap(), item.text()));
    }
    // The beginnings of both runs, then the answer and the result of the second one.
    assert_eq!(seen, [(1, None), (2, None), (3, Some("re: go on".to_owned())), (4, None)]);
    assert_eq!(outcome(fleet.operator().turn(waits)).await.text(), Some("re: next"));
    assert_eq!(world.clis.prompts_of("a"), ["hold"], "it is never sent again");
    assert_eq!(world.clis.prompts_of("b"), ["hold", "go on", "next"]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_behind_a_turn_that_kills_its_session_runs_in_the_next_one() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let dies = send(&fleet, "a", "die").await;
    let mut others = Vec::new();
    for n in 0..5 {
        others.push(send(&fleet, "a", format!("{n}")).await);
    }
    let dead = outcome(dies).await;
    assert!(!dead.is_completed(), "{dead:?}");
    for (n, turn) in others.into_iter().enumerate() {
        assert_eq!(outcome(turn).await.text(), Some(format!("re: {n}").as_str()));
    }
    assert_eq!(world.clis.prompts_of("a"), ["die", "0", "1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_prompts_of_a_tenant_delay_another_tenant_by_one_grant() {
    let world = World::new();
    let queue = QueueBounds { name: 100, tenant: 2000, fleet: 4000, ..Default::default() };
    let fleet = world
        .fleet(|limits| {
            (limits.live, limits.queue, limits.wait) = (2, queue, secs(10_000));
        })
        .await;
    for name in 0..20 {
        for _ in 0..50 {
            drop(send(&fleet, &format!("busy-{name}"), "wait 1").await);
        }
    }
    world.clis.read(10).await;
    let before = world.clis.prompts().len();
    let quiet = named_of(&fleet, "quiet", "quiet");
    let turn = in_time("the accept", quiet.prompt("one")).await.unwrap();
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    let prompts = world.clis.prompts();
    let at = prompts.iter().position(|(name, _)| name == "quiet").unwrap();
    // One turn was granted already and not yet sent, at most; another one may be granted first.
    assert!(at - before <= 2, "{} turns of the busy tenant came first", at - before);
    assert_eq!(world.clis.most_live(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_turn_can_be_read_by_its_id_and_an_unknown_id_is_an_error() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let queue = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap().queued;
    assert_eq!(queue, 0);
    let record = send(&fleet, "a", "one").await.prompt_id();
    outcome(fleet.operator().turn(record)).await;
    let kept = world.backend.prompt_record(record).await.unwrap().unwrap();
    assert!(matches!(kept.state, PromptState::Ended { .. }));
    let mut unknown = fleet.operator().turn(greenroom_fleet::PromptId::new());
    assert!(unknown.next().await.unwrap().unwrap_err().to_string().contains("is not known"));
    assert!(unknown.next().await.is_none());
}

// Guards: fair
#[tokio::test(start_paused = true)]
async fn names_of_a_tenant_start_in_the_order_in_which_their_prompts_were_accepted() {
    // Prompts of one millisecond have any order.
    const MILLISECOND: Duration = Duration::from_millis(1);
    // Reads that begin later are answered earlier.
    let slow = |world: &World| {
        let backend = FaultedBackend::new(world.backend.clone());
        backend.plan(|request| match request.method {
            "name_record" | "next_prompt" => Fault::Delay(Duration::from_millis(1_000 / (1 + request.nth))),
            _ => Fault::Pass,
        });
        world.on(backend).configure(|limits| (limits.live, limits.wait) = (1, secs(3600)))
    };
    let world = World::new();
    let fleet = start(slow(&world)).await;
    let mut turns = Vec::new();
    let names = |part: &str| ["m", "c", "z", "a", "k", "b", "y"].map(|name| format!("{name} {part}"));
    for name in names("before") {
        turns.push(send(&fleet, &name, "wait 10").await);
        tokio::time::advance(MILLISECOND).await;
    }
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
    let read = |world: &World| world.clis.prompts().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(read(&world), names("before"));

    drop(send(&fleet, "holds", "hold").await);
    world.clis.read(8).await;
    let waiting: Vec<_> = names("after").into_iter().collect();
    let mut ids = Vec::new();
    for name in &waiting {
        ids.push(send(&fleet, name, "wait 10").await.prompt_id());
        tokio::time::advance(MILLISECOND).await;
    }
    let world = world.killed().await;
    world.clis.gone().await;
    let fleet = start(slow(&world)).await;
    for id in ids {
        assert!(outcome(fleet.operator().turn(id)).await.is_completed());
    }
    assert_eq!(read(&world)[8..], waiting, "after a restart");
}

#[tokio::test(start_paused = true)]
async fn no_turn_begins_before_an_interrupt_of_the_last_one_has_arrived() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let profile = move |_: &_| Session::builder().transport(transport.clone());
    let fleet = start(Fleet::builder().profile("default", profile)).await;
    let first = send(&fleet, "a", "one").await;
    let second = send(&fleet, "a", "two").await;
    let mut cli = listener.accept().await;
    cli.handshake().await;
    let prompt = cli.expect("user").await;
    cli.begin_turn();
    let a = named(&fleet, "a");
    let interrupting = tokio::spawn(async move { a.interrupt().await });
    let interrupt = cli.expect("control_request").await;
    assert_eq!(interrupt["request"]["subtype"], "interrupt");
    // The turn ends by itself, before the CLI has read the interrupt.
    cli.finish_turn(&prompt, "Done.");
    assert_eq!(outcome(first).await.text(), Some("Done."));
    let early = tokio::time::timeout(secs(5), cli.expect("user")).await;
    assert!(early.is_err(), "{early:?}");
    cli.answer(&interrupt, serde_json::json!({ "still_queued": [], "cancelled": [] }));
    assert!(in_time("the interrupt", interrupting).await.unwrap().unwrap());
    let prompt = in_time("the second prompt", cli.expect("user")).await;
    cli.begin_turn();
    cli.finish_turn(&prompt, "Done, too.");
    assert_eq!(outcome(second).await.text(), Some("Done, too."));
}

#[tokio::test(start_paused = true)]
async fn a_continuation_goes_on_after_the_time_for_which_its_prompt_could_wait() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let prompt = FleetPrompt::new("hold").wait(secs(30)).continue_with("go on", 1);
    let id = send(&fleet, "a", prompt).await.prompt_id();
    world.clis.read(1).await;
    sleep(secs(60)).await;
    let world = world.killed().await;
    world.clis.gone().await;
    let fleet = world.fleet(|_| {}).await;
    assert_eq!(outcome(fleet.operator().turn(id)).await.text(), Some("re: go on"));
}
