//! Crashes and restarts of the CLI.

use super::*;

// Guards: ended-once
#[tokio::test(start_paused = true)]
async fn a_crash_ends_the_turn_and_what_waits_is_sent_once_to_the_next_cli() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    let mut events = session.events();
    exchange(&session, &mut end, "zero").await;
    let session_id = session.session_id().expect("it was named");
    let mut one = prompt(&session, "one").await;
    let mut two = prompt(&session, "two").await;
    let mut three = prompt(&session, "three").await;
    begun(&mut end, "one").await;
    end.exit(killed());

    match outcome(&mut one).await {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::Exited { exit, .. } },
            result: None,
            ..
        } => assert_eq!(exit, killed()),
        other => panic!("{other:?}"),
    }
    let mut end = next(&mut listener).await;
    assert!(end.launch().args.contains(&format!("--resume={session_id}")), "{:?}", end.launch().args);
    for (turn, text) in [(&mut two, "two"), (&mut three, "three")] {
        let given = prompted(&mut end, text).await;
        assert_eq!(given["uuid"], turn.prompt_uuid());
        end.finish_turn(&given, text);
        assert_eq!(outcome(turn).await.text(), Some(text));
    }
    let written = settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "sent twice: {written:?}");
    let restarted = event(&mut events, |event| match event {
        Event::CliRestarted { epoch, session_id } => Some((*epoch, session_id.clone())),
        _ => None,
    });
    assert_eq!(restarted.await, (2, Some(session_id)));
    stop(session, end).await;
}

// Guards: ended-once
#[tokio::test(start_paused = true)]
async fn a_prompt_that_no_cli_began_with_is_sent_again_once() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    let mut turn = prompt(&session, "poison").await;
    let mut after = prompt(&session, "after").await;
    let first = prompted(&mut end, "poison").await;
    end.exit(killed());
    let mut end = next(&mut listener).await;
    let second = prompted(&mut end, "poison").await;
    assert_eq!(first["uuid"], second["uuid"], "a CLI that has seen it knows it again");
    end.exit(killed());

    // The prompt itself may be what kills the CLI.
    assert!(matches!(
        outcome(&mut turn).await,
        Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }
    ));
    let mut end = next(&mut listener).await;
    let given = prompted(&mut end, "after").await;
    end.finish_turn(&given, "fine");
    assert_eq!(outcome(&mut after).await.text(), Some("fine"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_command_of_the_clis_own_is_not_that_of_the_prompt() {
    let (session, mut end, _listener) = start_by_hand(restarts(5)).await;
    let mut turn = prompt(&session, "mine").await;
    let mine = prompted(&mut end, "mine").await;
    let state = |uuid: &Value, state: &str| json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state });
    let own = json!("of-its-own");
    end.message(state(&own, "started"));
    end.message(
        json!({ "type": "result", "subtype": "success", "is_error": false, "result": "", "num_turns": 0 }),
    );
    end.message(state(&own, "completed"));
    end.message(state(&mine["uuid"], "started"));
    end.finish_turn(&mine, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_begun_is_not_sent_again() {
    let signs = [
        json!({ "type": "system", "subtype": "init", "session_id": "cc9f0c5e-1f8c-4d39-9d0e-6a2f7f0b3c03" }),
        json!({ "type": "assistant", "message": { "content": [] } }),
        json!({ "type": "stream_event", "event": {} }),
        json!({ "type": "a_type_of_tomorrow", "user_message_uuids": ["THIS"] }),
        json!({ "type": "command_lifecycle", "command_uuid": "THIS", "state": "started" }),
    ];
    for sign in signs {
        let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
        let mut turn = prompt(&session, "one").await;
        prompted(&mut end, "one").await;
        end.message(serde_json::from_str(&sign.to_string().replace("THIS", turn.prompt_uuid())).unwrap());
        settled(&mut end).await;
        end.exit(killed());
        let ended = timeout(Duration::from_secs(10), turn.outcome()).await;
        assert!(matches!(ended, Ok(Ok(Outcome::Interrupted { .. }))), "{ended:?} after {sign}");
        let mut end = next(&mut listener).await;
        let written = settled(&mut end).await;
        assert!(!written.iter().any(|frame| frame["type"] == "user"), "sent twice after {sign}");
        stop(session, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_read_ends_the_turn_all_the_same() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    for line in ["{\"type\":\"result\",\"subtype\":\"success\",", r#"{"type":"result","is_error":"perhaps"}"#]
    {
        let mut turn = prompt(&session, "one").await;
        begun(&mut end, "one").await;
        end.send_bytes(format!("{line}\n"));
        state(&mut end, "idle");
        match outcome(&mut turn).await {
            Outcome::Failed { error, result: None, .. } => {
                assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    event(&mut events, |event| matches!(event, Event::LineSkipped { .. }).then_some(())).await;
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn the_conversation_that_was_named_last_is_resumed() {
    const FORK: &str = "aa9f0c5e-1f8c-4d39-9d0e-6a2f7f0b3c01";
    const CLEARED: &str = "bb9f0c5e-1f8c-4d39-9d0e-6a2f7f0b3c02";
    let builder = restarts(5).configure(|options| {
        options.resume = Some("asked-for".into());
        options.fork_session = true;
    });
    let (session, end, mut listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let resumes = |end: &CliEnd| {
        let mut args = end.launch().args.clone();
        args.retain(|arg| arg.starts_with("--resume") || arg.starts_with("--fork"));
        args
    };
    assert_eq!(resumes(&end), ["--resume=asked-for", "--fork-session"]);
    end.exit(killed());
    // Nothing was named yet.
    let mut end = next(&mut listener).await;
    assert_eq!(resumes(&end), ["--resume=asked-for", "--fork-session"]);
    for name in [FORK, FORK, CLEARED] {
        end.message(json!({ "type": "system", "subtype": "init", "session_id": name }));
    }
    settled(&mut end).await;
    for name in [FORK, CLEARED] {
        let named = event(&mut events, |event| match event {
            Event::SessionCaptured { session_id } => Some(session_id.clone()),
            _ => None,
        });
        assert_eq!(named.await, name);
    }
    assert_eq!(session.session_id().as_deref(), Some(CLEARED));
    end.exit(killed());
    let end = next(&mut listener).await;
    assert_eq!(resumes(&end), [format!("--resume={CLEARED}")], "what was forked is not forked again");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_of_the_time_between_two_clis_waits_for_the_next() {
    let (session, end, mut listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    end.exit(killed());
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    assert_eq!(session.snapshot().await.unwrap().phase, Phase::Recovering);
    let ask = json!({ "subtype": "mcp_status" });
    assert_eq!(session.requests().control(ask).await.unwrap_err().kind(), ErrorKind::NotReady);
    session.interrupt().await.expect("there is nothing to interrupt");
    let mut turn = prompt(&session, "early").await;
    let mut end = next(&mut listener).await;
    assert!(
        !end.launch().args.iter().any(|arg| arg.starts_with("--resume")),
        "there is nothing to resume yet"
    );
    let given = prompted(&mut end, "early").await;
    end.finish_turn(&given, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
    stop(session, end).await;
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn restart_backoff_doubles_to_its_maximum_and_is_reset_by_the_period() {
    let (min, max) = (Duration::from_millis(200), Duration::from_secs(1));
    let limits =
        Restart { intensity: 5, period: Duration::from_secs(60), backoff_min: min, backoff_max: max };
    let (session, mut end, mut listener) =
        start_by_hand(builder().configure(|options| options.restarts.cli = limits)).await;
    let mut events = session.events();
    let mut crash = async |end: CliEnd| {
        let begun = Instant::now();
        end.exit(killed());
        let told = event(&mut events, |event| match event {
            Event::CliRestarting { attempt, delay, .. } => Some((*attempt, *delay)),
            _ => None,
        });
        let (attempt, delay) = told.await;
        let next = next(&mut listener).await;
        let waited = begun.elapsed();
        assert!(waited >= delay && waited < delay + Duration::from_millis(20), "{waited:?} of {delay:?}");
        (next, attempt, delay)
    };
    for expected in 1..=5 {
        let (next, attempt, delay) = crash(end).await;
        end = next;
        assert_eq!(attempt, expected);
        let whole = (min * (1 << (expected - 1))).min(max);
        assert!(delay >= whole / 2 && delay <= whole, "restart {attempt} after {delay:?}");
    }
    sleep(Duration::from_secs(61)).await;
    let (mut end, attempt, _) = crash(end).await;
    assert_eq!(attempt, 1);
    exchange(&session, &mut end, "alive").await;
    stop(session, end).await;
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn more_crashes_than_allowed_end_the_session_and_every_turn() {
    let (session, mut end, mut listener) = start_by_hand(restarts(1)).await;
    let mut events = session.events();
    exchange(&session, &mut end, "zero").await;
    end.exit(killed());
    let mut end = next(&mut listener).await;
    let mut running = prompt(&session, "running").await;
    let mut queued = prompt(&session, "queued").await;
    begun(&mut end, "running").await;
    (end.process().launch().command.stderr)("out of memory");
    end.exit(killed());

    assert!(matches!(
        outcome(&mut running).await,
        Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }
    ));
    match outcome(&mut queued).await {
        Outcome::NotStarted { prompt } => assert_eq!(prompt, Prompt::text("queued")),
        other => panic!("{other:?}"),
    }
    within(SOON, session.wait()).await;
    let told = rest(&mut events).await;
    assert!(matches!(told.last(), Some(Event::Failed { cause }) if cause.contains("signal 9")), "{told:?}");
    let failure = session.failure().unwrap();
    assert_eq!(failure.kind(), ErrorKind::SessionFailed);
    assert_eq!(failure.stderr(), Some("out of memory"));
    let refused = session.prompt("late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionFailed);
    assert!(refused.to_string().contains("signal 9"), "{refused}");
    assert_eq!(session.snapshot().await.unwrap_err().kind(), ErrorKind::SessionFailed);
    assert_eq!(session.interrupt().await.unwrap_err().kind(), ErrorKind::SessionFailed);
    assert_eq!(session.stop().await.unwrap_err().kind(), ErrorKind::SessionFailed);
}

// Guards: the CLI exits with a failure right after an error result
#[tokio::test(start_paused = true)]
async fn an_exit_after_an_error_result_counts_as_no_crash() {
    let (session, mut end, mut listener) = start_by_hand(restarts(0)).await;
    let mut turn = prompt(&session, "one").await;
    let given = prompted(&mut end, "one").await;
    end.begin_turn();
    end.fail_turn(&given, "budget", "the budget is spent");
    assert!(matches!(outcome(&mut turn).await, Outcome::Failed { .. }));
    let session_id = session.session_id().unwrap();
    end.exit(Exit::Code(1));
    let mut end = next(&mut listener).await;
    assert!(end.launch().args.contains(&format!("--resume={session_id}")));
    exchange(&session, &mut end, "two").await;

    // A crash of the same kind, without an error result before it, is the end.
    end.exit(Exit::Code(1));
    within(SOON, session.wait()).await;
    assert_eq!(session.failure().unwrap().kind(), ErrorKind::SessionFailed);
}

#[tokio::test(start_paused = true)]
async fn a_failed_resume_ends_the_session_with_the_text_of_the_cli() {
    let (session, mut end, mut listener) = start_by_hand(restarts(1)).await;
    exchange(&session, &mut end, "zero").await;
    end.exit(killed());
    let mut turn = prompt(&session, "one").await;
    let mut end = within(SOON, listener.accept()).await;
    let text = "No conversation found with session ID";
    end.message(json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [text],
    }));
    // The CLI exits once all its lines have arrived.
    settled(&mut end).await;
    end.exit(Exit::Code(1));
    within(SOON, session.wait()).await;
    let failure = session.failure().unwrap();
    assert!(failure.to_string().contains(text), "{failure}");
    assert!(matches!(outcome(&mut turn).await, Outcome::NotStarted { .. }));
}

// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test(start_paused = true)]
async fn a_cli_that_closes_its_stdout_is_ended_and_restarted() {
    let (session, mut end, mut listener) = start_by_hand(restarts(1)).await;
    let mut turn = prompt(&session, "one").await;
    begun(&mut end, "one").await;
    end.close_stdout();
    within(SOON, end.process().killed()).await;
    match outcome(&mut turn).await {
        Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, .. } => {
            assert!(matches!(cause, ExitCause::StdoutClosed { .. }), "{cause:?}");
        }
        other => panic!("{other:?}"),
    }
    let mut end = next(&mut listener).await;
    exchange(&session, &mut end, "two").await;
    stop(session, end).await;
}

/// A transport whose stdout breaks where it would end.
struct Breaking(MemoryTransport);

struct BreakingStdout(Box<dyn AsyncRead + Send + Unpin>);

impl Transport for Breaking {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        let opening = self.0.open(launch);
        Box::pin(async move {
            let connection = opening.await?;
            Ok(Connection { reader: Box::new(BreakingStdout(connection.reader)), ..connection })
        })
    }
}

impl AsyncRead for BreakingStdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.0).poll_read(cx, buffer));
        let ended = read.is_ok() && buffer.filled().len() == before;
        Poll::Ready(if ended { Err(io::Error::other("the cable was cut")) } else { read })
    }
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_failed_read_of_stdout_is_told() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, mut end) = tokio::join!(restarts(1).transport(Breaking(transport)).start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let session = session.unwrap();
    let mut turn = prompt(&session, "one").await;
    begun(&mut end, "one").await;
    end.close_stdout();
    let Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, .. } = outcome(&mut turn).await else {
        panic!("the CLI has ended");
    };
    assert_eq!(cause.to_string(), "the CLI's stdout cannot be read: the cable was cut");
    drop(end);
    let end = next(&mut listener).await;
    stop(session, end).await;
}

// Guards: fenced
#[tokio::test(start_paused = true)]
async fn a_prompt_to_a_cli_that_is_ending_is_sent_to_the_next_one() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    end.close_stdout();
    // The CLI is given time to exit, and its end is not told yet.
    sleep(Duration::from_millis(1)).await;
    assert!(session.snapshot().await.unwrap().cli.is_some());
    let mut turn = prompt(&session, "one").await;
    within(SOON, end.process().killed()).await;
    while let Some(frame) = within(SOON, end.recv()).await {
        assert_ne!(frame["type"], "user", "nobody would have read what the CLI says to it");
    }
    let mut end = next(&mut listener).await;
    let given = prompted(&mut end, "one").await;
    end.finish_turn(&given, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
    stop(session, end).await;
}
