//! Starts and stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_told_at_once_and_not_tried_again() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let begun = Instant::now();
    let (started, ()) = within(SOON, async {
        tokio::join!(builder().transport(transport).start(), async {
            let end = listener.accept().await;
            (end.launch().command.stderr)("no licence");
            end.exit(Exit::Code(7));
        })
    })
    .await;
    let error = started.unwrap_err();
    assert_eq!((error.kind(), error.stderr()), (ErrorKind::CliExited, Some("no licence")));
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    // The session, and with it the only transport, is gone.
    assert!(within(SOON, listener.try_accept()).await.is_none(), "it was tried again");
}

/// The process that was left behind: true while it runs. `None`: nobody knows what is left, and the search does not end.
type Left = Option<Arc<AtomicBool>>;

/// A transport whose processes leave a process behind.
struct Leaving(MemoryTransport, Left);

struct LeavingProcess {
    inner: Box<dyn Process>,
    left: Left,
}

impl LeavingProcess {
    /// A running session.
    async fn session(left: Left) -> (Session, CliEnd) {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let (session, end) = tokio::join!(builder().transport(Leaving(transport, left)).start(), async {
            let mut end = listener.accept().await;
            end.handshake().await;
            end
        });
        (session.unwrap(), end)
    }
}

impl Transport for Leaving {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        let (opening, left) = (self.0.open(launch), self.1.clone());
        Box::pin(async move {
            let Connection { reader, writer, process: inner } = opening.await?;
            Ok(Connection { reader, writer, process: Box::new(LeavingProcess { inner, left }) })
        })
    }
}

impl Process for LeavingProcess {
    fn pid(&self) -> Option<u32> {
        self.inner.pid()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        self.inner.wait()
    }

    fn terminate(&mut self) {
        self.inner.terminate();
    }

    fn kill(&mut self) {
        self.inner.kill();
    }

    fn cleared(&mut self) -> BoxFuture<'_, Vec<Leftover>> {
        match &self.left {
            Some(_) => self.inner.cleared(),
            None => Box::pin(std::future::pending()),
        }
    }

    fn left(&self) -> Leftovers {
        let left = self.left.clone();
        Leftovers::new(move || {
            let runs = left.as_ref()?.load(Ordering::Acquire);
            let process = || serde_json::from_value(json!({"pid": 4711, "name": "dd"})).unwrap();
            Some(runs.then(process).into_iter().collect())
        })
    }
}

// Guards: a killed process of a CLI does not end within `timeouts.reap`
#[tokio::test(start_paused = true)]
async fn stop_names_processes_that_could_not_be_ended() {
    let runs = Arc::new(AtomicBool::new(true));
    let (session, mut end) = LeavingProcess::session(Some(runs.clone())).await;
    let mut events = session.events();
    let (stopped, ()) = tokio::join!(within(SOON, session.stop()), async {
        while within(SOON, end.recv()).await.is_some() {}
        end.exit(Exit::Code(0));
    });
    for error in [stopped.unwrap_err(), session.stop().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::ProcessesLeft, "{error:?}");
        assert!(error.to_string().contains("4711 (dd)") && error.help().is_some(), "{error}");
    }
    let (mut remain, mut stops) = (0, 0);
    while let Some(event) = within(SOON, events.next()).await {
        remain += usize::from(matches!(event, Event::LeftoversRemain { epoch: 1, .. }));
        stops += usize::from(matches!(event, Event::Stopped));
    }
    assert_eq!((remain, stops), (1, 1));
    runs.store(false, Ordering::Release);
    session.stop().await.unwrap();
}

// Guards: a killed process of a CLI does not end within `timeouts.reap`
#[tokio::test(start_paused = true)]
async fn stop_does_not_name_a_process_that_has_ended_since() {
    let runs = Arc::new(AtomicBool::new(true));
    let (session, end) = LeavingProcess::session(Some(runs.clone())).await;
    let mut events = session.events();
    end.exit(killed());
    event(&mut events, |event| matches!(event, Event::LeftoversRemain { .. }).then_some(())).await;
    runs.store(false, Ordering::Release);
    within(SOON, session.stop()).await.unwrap();
}

// Guards: a killed process of a CLI does not end within `timeouts.reap`
#[tokio::test(start_paused = true)]
async fn stop_says_so_if_nobody_knows_whether_a_process_is_left() {
    let (session, mut end) = LeavingProcess::session(None).await;
    let mut events = session.events();
    let (stopped, ()) = tokio::join!(within(SOON, session.stop()), async {
        while within(SOON, end.recv()).await.is_some() {}
        end.exit(Exit::Code(0));
    });
    let error = stopped.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProcessesLeft);
    assert!(error.to_string().contains("not known whether all"), "{error}");
    let told = rest(&mut events).await;
    assert_eq!(names(&told), ["stopping", "leftovers_remain", "stopped"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_takes_no_longer_than_its_limit() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let begun = Instant::now();
    let limit = Duration::from_secs(7);
    let starting = builder().transport(transport).configure(|options| options.timeouts.start = limit).start();
    let (started, ()) = within(SOON, async {
        tokio::join!(starting, async {
            let end = listener.accept().await;
            end.process().killed().await;
        })
    })
    .await;
    assert_eq!(started.unwrap_err().kind(), ErrorKind::StartTimeout);
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_takes_its_cli_along() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut starting = Box::pin(builder().transport(transport).start());
    let end = within(SOON, async {
        tokio::select! {
            started = &mut starting => panic!("nobody has answered `initialize`: {started:?}"),
            end = listener.accept() => end,
        }
    })
    .await;
    drop(starting);
    within(SOON, end.process().killed()).await;
    assert!(within(SOON, listener.try_accept()).await.is_none());
}

// Guards: ended-once
#[tokio::test(start_paused = true)]
async fn stop_lets_the_turn_end_and_gives_back_what_was_not_sent() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut running = prompt(&session, "running").await;
    let blocks = Prompt::blocks([
        json!({ "type": "text", "text": "look" }),
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } }),
    ]);
    let mut queued = session.prompt(blocks.clone()).await.unwrap();
    let given = prompted(&mut end, "running").await;
    let (stopped, ()) = within(SOON, async {
        tokio::join!(session.stop(), async {
            // The queued prompt comes back at once, while the running turn goes on.
            match outcome(&mut queued).await {
                Outcome::NotStarted { prompt } => assert_eq!(prompt, blocks),
                other => panic!("{other:?}"),
            }
            assert_eq!(session.prompt("late").await.unwrap_err().kind(), ErrorKind::Stopped);
            assert_eq!(session.snapshot().await.unwrap().phase, Phase::Draining);
            end.finish_turn(&given, "just in time");
            assert_eq!(outcome(&mut running).await.text(), Some("just in time"));
            end.run_out().await;
        })
    })
    .await;
    stopped.unwrap();
    let refused = session.prompt("later").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
    assert!(session.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_right_behind_a_stop_is_refused() {
    let (session, end, _listener) = start_by_hand(builder()).await;
    let mut stopping = Box::pin(session.stop());
    assert!(stopping.as_mut().now_or_never().is_none());
    // The supervisor has not run yet, and must not be needed to refuse.
    let refused = within(SOON, session.prompt("late")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
    let refused = within(SOON, session.steer("later")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
    let (stopped, ()) = within(SOON, async { tokio::join!(stopping, end.run_out()) }).await;
    stopped.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_turn_that_does_not_end_in_time() {
    let (stopped_at, mut hear) = mpsc::unbounded_channel();
    let server = ToolServer::new("calc", "1").tool("hang", "Hang", move |_: NoArgs, cx: ToolContext| {
        let stopped_at = stopped_at.clone();
        async move {
            cx.cancelled().await;
            stopped_at.send(Instant::now()).unwrap();
        }
    });
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(server)).await;
    let mut turn = prompt(&session, "long").await;
    prompted(&mut end, "long").await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    let begun = Instant::now();
    let (stopped, ()) = within(SOON, async { tokio::join!(session.stop(), end.run_out()) }).await;
    stopped.unwrap();
    let (drain, took) = (Duration::from_secs(5), begun.elapsed());
    assert!(took >= drain && took < drain + Duration::from_millis(100), "{took:?}");
    assert!(hear.recv().await.unwrap() - begun >= drain, "the handler was cancelled too early");
    assert!(matches!(
        outcome(&mut turn).await,
        Outcome::Interrupted { by: InterruptedBy::Stop, result: None, .. }
    ));
}

// Guards: no-orphans
#[tokio::test(start_paused = true)]
async fn a_cli_that_ignores_everything_is_asked_then_killed_within_the_bound() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let bound = session.shutdown_bound();
    let begun = Instant::now();
    let after = |least, most| {
        let passed = begun.elapsed();
        let (least, most) =
            (Duration::from_secs(least), Duration::from_secs(most) + Duration::from_millis(50));
        assert!(passed >= least && passed <= most, "{passed:?}");
    };
    let (stopped, ()) = within(bound, async {
        tokio::join!(session.stop(), async {
            assert!(end.recv().await.is_none(), "the end of its stdin comes first");
            after(0, 0);
            end.process().terminated().await;
            after(5, 5);
            end.process().killed().await;
            after(8, 9);
        })
    })
    .await;
    stopped.unwrap();
}

// Guards: no-orphans
#[tokio::test(start_paused = true)]
async fn a_cli_that_survives_sigkill_delays_stop_at_most_to_the_bound() {
    let hang = ToolServer::new("calc", "1")
        .tool("hang", "Never ends", async |_: NoArgs| -> () { std::future::pending().await });
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(hang)).await;
    let _turn = prompt(&session, "long").await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    end.process().survive_kill();
    let error = within(session.shutdown_bound(), session.stop()).await.unwrap_err();
    assert!(error.to_string().contains("not known whether all"), "{error}");
    drop(end);
    session.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_may_be_called_by_many_again_and_be_given_up() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    exchange(&session, &mut end, "zero").await;
    let other = session.clone();
    // The future is dropped at once; the session goes on stopping.
    assert!(timeout(Duration::ZERO, session.stop()).await.is_err());
    let (first, second, ()) =
        within(SOON, async { tokio::join!(session.stop(), other.stop(), end.run_out()) }).await;
    first.unwrap();
    second.unwrap();
    within(SOON, session.stop()).await.unwrap();
    let told = rest(&mut events).await;
    assert_eq!(names(&told), ["session_captured", "stopping", "stopped"], "once");
}

#[tokio::test(start_paused = true)]
async fn stop_while_a_restart_is_waited_for_starts_nothing_any_more() {
    let (session, end, mut listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    end.exit(killed());
    let delay = event(&mut events, |event| match event {
        Event::CliRestarting { delay, .. } => Some(*delay),
        _ => None,
    });
    assert!(delay.await > Duration::ZERO);
    let mut turn = prompt(&session, "waiting").await;
    let begun = Instant::now();
    within(SOON, session.stop()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(matches!(outcome(&mut turn).await, Outcome::NotStarted { .. }));
    drop(session);
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started after the stop");
}

#[tokio::test(start_paused = true)]
async fn stop_during_the_handshake_of_a_restart_ends_that_cli() {
    let (session, end, mut listener) = start_by_hand(restarts(5)).await;
    end.exit(killed());
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.expect_request("initialize")).await;
    within(SOON, session.stop()).await.unwrap();
    within(SOON, end.process().killed()).await;
    assert!(session.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_session() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    let other = session.clone();
    drop(session);
    exchange(&other, &mut end, "still here").await;
    drop(other);
    within(SOON, end.run_out()).await;
    let told = rest(&mut events).await;
    assert_eq!(names(&told), ["session_captured", "stopping", "stopped"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_outlives_the_handles_and_says_how_it_ended() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "long").await;
    prompted(&mut end, "long").await;
    drop(session);
    let (ended, ()) = within(SOON, async { tokio::join!(turn.outcome(), end.run_out()) }).await;
    assert!(matches!(ended.unwrap(), Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
}

// Guards: cancelled-reaches
#[tokio::test(start_paused = true)]
async fn a_stop_answers_the_calls_in_flight_before_it_closes_stdin() {
    let hang = ToolServer::new("calc", "1")
        .tool("hang", "Never ends", async |_: NoArgs| -> () { std::future::pending().await });
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(hang)).await;
    let call = end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    let (stopped, ()) = within(SOON, async {
        tokio::join!(session.stop(), async {
            // A CLI that waits for the answer would not exit before.
            assert!(rpc_answer(&mut end, &call).await["error"].is_object());
            end.run_out().await;
        })
    })
    .await;
    stopped.unwrap();
}

// Guards: no-orphans
#[tokio::test(start_paused = true)]
async fn a_restart_that_comes_due_while_the_session_stops_starts_no_cli() {
    let hang = ToolServer::new("calc", "1")
        .tool("hang", "Never ends", async |_: NoArgs| -> () { std::future::pending().await });
    let (backoff, grace) = (Duration::from_secs(2), Duration::from_secs(20));
    let builder = builder().mcp_server(hang).configure(|options| {
        options.restarts.cli = Restart { backoff_min: backoff, backoff_max: backoff, ..Restart::default() };
        options.timeouts.cancel_grace = grace;
    });
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    let mut events = session.events();
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    end.exit(killed());
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    let begun = Instant::now();
    within(SOON, session.stop()).await.unwrap();
    assert!(begun.elapsed() > backoff, "the handler has its grace time: {:?}", begun.elapsed());
    drop(session);
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started after the stop");
}
