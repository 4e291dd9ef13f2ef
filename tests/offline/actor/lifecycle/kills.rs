//! A session that is killed: at once, in whatever state it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use super::*;

/// Less than any limit of a stop.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Kills the session, which must take no time, and leave nothing of its CLI.
async fn kill(session: &Session, end: &CliEnd) {
    let begun = Instant::now();
    within(SOON, session.kill()).await;
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(end.process().killed().now_or_never().is_some(), "the CLI lives");
    assert!(end.process().terminated().now_or_never().is_none(), "the CLI was asked");
    assert!(session.wait().now_or_never().is_some());
}

/// Sets its flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A server whose only tool never ends, cancelled or not; and whether its handler is gone.
fn hanging() -> (ToolServer, Arc<AtomicBool>) {
    let gone = Arc::new(AtomicBool::new(false));
    let flag = gone.clone();
    let server = ToolServer::new("calc", "1").tool("hang", "Never ends", move |_: NoArgs| {
        let held = Dropped(flag.clone());
        async move {
            let _held = held;
            std::future::pending::<()>().await;
        }
    });
    (server, gone)
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_ends_the_turn_the_cli_and_the_handlers_without_waiting() {
    let (server, gone) = hanging();
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(server)).await;
    let mut events = session.events();
    let mut running = prompt(&session, "running").await;
    let mut queued = prompt(&session, "queued").await;
    begun(&mut end, "running").await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    kill(&session, &end).await;
    assert!(gone.load(Ordering::Acquire), "the handler lives");
    assert!(matches!(
        outcome(&mut running).await,
        Outcome::Interrupted { by: InterruptedBy::Stop, result: None, .. }
    ));
    match outcome(&mut queued).await {
        Outcome::NotStarted { prompt } => assert_eq!(prompt, Prompt::text("queued")),
        other => panic!("{other:?}"),
    }
    assert_eq!(session.prompt("late").await.unwrap_err().kind(), ErrorKind::Stopped);
    assert!(session.failure().is_none());
    assert_eq!(names(&rest(&mut events).await), ["session_captured", "stopping", "stopped"]);
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_result_that_comes_after_the_kill_completes_nothing() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "one").await;
    let given = begun(&mut end, "one").await;
    let mut killing = Box::pin(session.kill());
    assert!(killing.as_mut().now_or_never().is_none());
    // No actor has run yet, and none is needed for the fence.
    end.finish_turn(&given, "too late");
    assert_eq!(within(SOON, session.prompt("late")).await.unwrap_err().kind(), ErrorKind::Stopped);
    within(SOON, killing).await;
    assert!(matches!(
        outcome(&mut turn).await,
        Outcome::Interrupted { by: InterruptedBy::Stop, result: None, .. }
    ));
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_ends_a_cli_in_its_handshake() {
    let (session, end, mut listener) = start_by_hand(restarts(5)).await;
    end.exit(killed());
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.expect_request("initialize")).await;
    kill(&session, &end).await;
    drop(session);
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started after the kill");
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_during_the_backoff_starts_no_cli() {
    let (session, end, mut listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    end.exit(killed());
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    let mut waiting = prompt(&session, "waiting").await;
    let begun = Instant::now();
    within(SOON, session.kill()).await;
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(matches!(outcome(&mut waiting).await, Outcome::NotStarted { .. }));
    drop(session);
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started after the kill");
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_shortens_a_stop_at_each_of_its_steps() {
    // By default the drain ends after 5 s, the CLI gets SIGTERM 5 s later and SIGKILL 5 s after that, and then the
    // handlers have 5 s more.
    for after in [0, 2, 7, 12] {
        let (session, mut end, _listener) = start_by_hand(builder()).await;
        let mut turn = prompt(&session, "long").await;
        begun(&mut end, "long").await;
        let begun = Instant::now();
        let after = Duration::from_secs(after);
        let (stopped, ()) = within(SOON, async {
            tokio::join!(session.stop(), async {
                sleep(after).await;
                session.kill().await;
            })
        })
        .await;
        stopped.unwrap();
        let passed = begun.elapsed();
        assert!(passed >= after && passed < after + AT_ONCE, "{passed:?} for a kill after {after:?}");
        assert!(end.process().killed().now_or_never().is_some());
        assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_overtakes_a_stop_that_the_session_has_not_seen_yet() {
    let (server, _) = hanging();
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(server)).await;
    let mut turn = prompt(&session, "long").await;
    begun(&mut end, "long").await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    let begun = Instant::now();
    let mut stopping = Box::pin(session.stop());
    assert!(stopping.as_mut().now_or_never().is_none());
    kill(&session, &end).await;
    within(SOON, stopping).await.unwrap();
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_ends_the_grace_time_of_handlers_of_a_stop() {
    let (server, gone) = hanging();
    let grace = Duration::from_secs(40);
    let builder = builder().mcp_server(server).configure(|options| options.timeouts.cancel_grace = grace);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    let begun = Instant::now();
    let (stopped, (), ()) = within(SOON, async {
        tokio::join!(session.stop(), end.run_out(), async {
            sleep(Duration::from_secs(20)).await;
            assert!(!gone.load(Ordering::Acquire));
            session.kill().await;
        })
    })
    .await;
    stopped.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20) + AT_ONCE, "{:?}", begun.elapsed());
    assert!(gone.load(Ordering::Acquire));
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_cli_that_survives_sigkill_delays_a_kill_at_most_to_its_bound() {
    let (session, end, _listener) = start_by_hand(builder()).await;
    end.process().survive_kill();
    let (begun, timeouts) = (Instant::now(), greenroom::options::Timeouts::default());
    within(timeouts.kill_bound(), session.kill()).await;
    assert!(begun.elapsed() >= timeouts.reap, "`timeouts.reap` was not waited for");
    drop(end);
}

#[tokio::test(start_paused = true)]
async fn a_kill_may_be_asked_by_many_again_and_be_given_up() {
    let (session, end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    assert!(session.kill().now_or_never().is_none());
    within(SOON, async { tokio::join!(session.kill(), session.kill()) }).await;
    assert!(end.process().killed().now_or_never().is_some());
    within(SOON, session.kill()).await;
    within(SOON, session.stop()).await.unwrap();
    assert_eq!(names(&rest(&mut events).await), ["stopping", "stopped"], "once");
}

#[tokio::test(start_paused = true)]
async fn a_program_with_the_actor_alone_kills_the_session_too() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "one").await;
    begun(&mut end, "one").await;
    let begun = Instant::now();
    let killed = within(SOON, async { call_t!(session.actor(), SessionMessage::Kill, 60_000) }).await;
    killed.unwrap().unwrap();
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(end.process().killed().now_or_never().is_some());
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
}

/// A session whose start hangs in the handshake, and its CLI.
async fn in_handshake(
    builder: SessionBuilder,
) -> (impl Future<Output = greenroom::Result<Session>>, CliEnd, ScriptedListener) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut starting = Box::pin(builder.transport(transport).start());
    let end = within(SOON, async {
        tokio::select! {
            started = &mut starting => panic!("nobody has answered `initialize`: {started:?}"),
            end = listener.accept() => end,
        }
    });
    let end = end.await;
    (starting, end, listener)
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_switch_ends_a_session_that_is_being_started() {
    let mut builder = restarts(5);
    let switch = builder.kill_switch();
    let (starting, end, mut listener) = in_handshake(builder).await;
    let begun = Instant::now();
    let (started, ()) = within(SOON, async { tokio::join!(starting, switch.kill()) }).await;
    assert_eq!(started.unwrap_err().kind(), ErrorKind::Stopped);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(end.process().killed().now_or_never().is_some());
    assert!(end.process().terminated().now_or_never().is_none(), "the CLI was asked");
    assert!(within(SOON, listener.try_accept()).await.is_none(), "it was started again");
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_switch_ends_a_session_whose_start_was_given_up() {
    let mut builder = builder();
    let switch = builder.kill_switch();
    let (starting, end, _listener) = in_handshake(builder).await;
    drop(starting);
    let begun = Instant::now();
    within(SOON, switch.kill()).await;
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(end.process().killed().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_kill_switch_works_before_the_start_and_on_a_running_session() {
    let mut early = builder();
    let switch = early.kill_switch();
    within(SOON, switch.kill()).await;
    let (transport, mut listener) = ScriptedCli::by_hand();
    let other = early.clone();
    let refused = within(SOON, early.transport(transport).start()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started");
    within(SOON, switch.kill()).await;

    // A clone of the builder is another session.
    let mut other = other;
    let switch = other.kill_switch();
    let (session, mut end, _listener) = start_by_hand(other).await;
    let mut turn = prompt(&session, "one").await;
    begun(&mut end, "one").await;
    within(SOON, switch.kill()).await;
    assert!(end.process().killed().now_or_never().is_some());
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
    within(SOON, switch.kill()).await;
}
