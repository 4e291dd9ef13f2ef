//! The end of a run: the CLI is idle and no agent works in the background.

use super::*;

fn task(end: &mut CliEnd, id: &str, kind: &str) {
    end.message(json!({ "type": "system", "subtype": "task_started", "task_id": id, "task_type": kind }));
}

/// `run_ended` and the number of background tasks, once the conversation has all messages.
async fn run(session: &Session, end: &mut CliEnd) -> (bool, usize) {
    settled(end).await;
    let conversation = session.snapshot().await.unwrap().conversation.unwrap();
    (conversation.idle, conversation.background_tasks)
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_the_cli_is_idle_and_no_agent_works_in_the_background() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    assert_eq!(run(&session, &mut end).await, (true, 0), "there is none yet");
    let mut turn = prompt(&session, "go").await;
    let given = prompted(&mut end, "go").await;
    end.begin_turn();
    state(&mut end, "running");
    task(&mut end, "agent", "local_agent");
    task(&mut end, "shell", "local_bash");
    assert_eq!(run(&session, &mut end).await, (false, 1), "a shell may never end, and does not count");
    end.finish_turn(&given, "the agent is at it");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(run(&session, &mut end).await, (false, 1), "the turn is over, the run is not");
    state(&mut end, "idle");
    assert_eq!(run(&session, &mut end).await, (false, 1));
    end.message(json!({
        "type": "system", "subtype": "task_notification", "task_id": "agent", "status": "completed",
    }));
    assert_eq!(run(&session, &mut end).await, (true, 0));
    // The agent's notification starts a turn that belongs to no prompt.
    state(&mut end, "running");
    assert_eq!(run(&session, &mut end).await, (false, 0));
    state(&mut end, "idle");
    within(SOON, session.wait_idle()).await;
    // Messages for the host alone do not reach the turn.
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_cli_never_says_that_it_is_idle_ends_at_the_ceiling() {
    let ceiling = Duration::from_secs(40);
    let (session, mut end, _listener) =
        start_by_hand(builder().configure(|options| options.timeouts.run_ceiling = Some(ceiling))).await;
    let mut turn = prompt(&session, "go").await;
    let given = prompted(&mut end, "go").await;
    state(&mut end, "running");
    sleep(ceiling * 2).await;
    assert_eq!(run(&session, &mut end).await, (false, 0), "before the result nothing is over");
    end.finish_turn(&given, "done");
    assert!(outcome(&mut turn).await.is_completed());
    let begun = Instant::now();
    within(SOON, session.wait_idle()).await;
    let waited = begun.elapsed();
    assert!(
        waited > ceiling - Duration::from_millis(100) && waited < ceiling + Duration::from_millis(100),
        "{waited:?}"
    );
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_query_waits_for_the_run_and_stops_its_session() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (ended, ()) = within(SOON, async {
        let asking = async {
            let mut turn = greenroom::query("go", builder().transport(transport)).await?;
            turn.outcome().await
        };
        tokio::join!(asking, async {
            let mut end = next(&mut listener).await;
            let given = prompted(&mut end, "go").await;
            state(&mut end, "running");
            task(&mut end, "agent", "local_agent");
            end.finish_turn(&given, "first");
            state(&mut end, "idle");
            // The CLI's stdin stays open for as long as the agent may call tools.
            settled(&mut end).await;
            assert!(timeout(Duration::from_secs(30), end.recv()).await.is_err());
            end.message(json!({
                "type": "system", "subtype": "task_notification", "task_id": "agent", "status": "failed",
            }));
            end.run_out().await;
        })
    })
    .await;
    assert_eq!(ended.unwrap().text(), Some("first"));
}

const IDLE: Duration = Duration::from_secs(40);

fn stops_when_idle() -> SessionBuilder {
    builder().configure(|options| options.timeouts.idle = Some(IDLE))
}

/// Waits until the session has ended by itself, and returns the time that this took.
async fn ends(session: &Session, end: CliEnd) -> Duration {
    let begun = Instant::now();
    within(SOON, async { tokio::join!(session.wait(), end.run_out()) }).await;
    begun.elapsed()
}

// Guards: the session is idle for `timeouts.idle`
#[tokio::test(start_paused = true)]
async fn a_session_stops_when_it_was_idle_for_its_limit() {
    let (session, mut end, _listener) = start_by_hand(stops_when_idle()).await;
    let mut events = session.events();
    // Each time without work begins anew.
    for _ in 0..3 {
        sleep(IDLE - Duration::from_secs(1)).await;
        assert!(!session.has_ended());
        exchange(&session, &mut end, "go").await;
    }
    let waited = ends(&session, end).await;
    assert!(
        waited >= IDLE - Duration::from_millis(100) && waited < IDLE + Duration::from_secs(1),
        "{waited:?}"
    );
    assert_eq!(names(&rest(&mut events).await).last().map(String::as_str), Some("stopped"));
    assert!(session.failure().is_none() && session.has_ended());
    let refused = session.prompt("late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_any_prompt_stops_when_it_was_idle_for_its_limit() {
    let (session, end, _listener) = start_by_hand(stops_when_idle()).await;
    let waited = ends(&session, end).await;
    assert!(
        waited >= IDLE - Duration::from_millis(100) && waited < IDLE + Duration::from_secs(1),
        "{waited:?}"
    );
}

// Guards: the session is idle for `timeouts.idle`
#[tokio::test(start_paused = true)]
async fn a_turn_and_background_work_keep_a_session_from_being_idle() {
    let (session, mut end, _listener) = start_by_hand(stops_when_idle()).await;
    let mut turn = prompt(&session, "go").await;
    let given = prompted(&mut end, "go").await;
    end.begin_turn();
    task(&mut end, "agent", "local_agent");
    settled(&mut end).await;
    sleep(IDLE * 3).await;
    end.finish_turn(&given, "the agent is at it");
    assert!(outcome(&mut turn).await.is_completed());
    sleep(IDLE * 3).await;
    assert_eq!(run(&session, &mut end).await, (false, 1), "the session still runs");
    end.message(json!({
        "type": "system", "subtype": "task_notification", "task_id": "agent", "status": "completed",
    }));
    settled(&mut end).await;
    assert!(ends(&session, end).await >= IDLE - Duration::from_millis(100));
}

/// The prompt comes at the very moment at which the limit ends: it runs, or is refused, and is never given back.
// Guards: the session is idle for `timeouts.idle`
#[tokio::test(start_paused = true)]
async fn a_prompt_at_the_end_of_the_idle_limit_runs_or_is_refused() {
    let (mut ran, mut refused) = (0, 0);
    for micros in 0..40 {
        let (session, mut end, _listener) = start_by_hand(stops_when_idle()).await;
        sleep(IDLE - Duration::from_millis(2) + Duration::from_micros(micros * 100)).await;
        match session.prompt("late").await {
            Ok(mut turn) => {
                let given = prompted(&mut end, "late").await;
                end.begin_turn();
                end.finish_turn(&given, "in time");
                assert_eq!(outcome(&mut turn).await.text(), Some("in time"));
                ran += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Stopped);
                refused += 1;
            }
        }
        ends(&session, end).await;
    }
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
}
