//! Ends of sessions, of clients and of the service.

use axum::http::StatusCode;
use greenroom::testkit::{CliEnd, ScriptedListener};
use greenroom::transport::Exit;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_stopped_and_its_conversation_resumed() {
    let (service, mut listener) = Service::by_hand(1);
    let (events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello.").await;
    events.outcome().await;
    let (id, before) = (conversation(&end), tokio::time::Instant::now());
    end.run_out().await;
    assert!(before.elapsed() >= IDLE, "{:?}", before.elapsed());

    let (events, mut end) = tokio::join!(service.prompt("ada", "Again."), accept(&mut listener));
    answer(&mut end, "Welcome back.").await;
    assert_eq!(events.outcome().await["text"], "Welcome back.");
    assert_eq!(conversation(&end), id);
    assert_eq!(service.started(), ["ada", "ada"]);
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_session_at_work_is_not_idle() {
    let (service, mut listener) = Service::by_hand(1);
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    events.next().await.unwrap();
    tokio::time::sleep(IDLE * 3).await;
    assert_eq!(service.status().await["ada"]["phase"], "ready");
    end.finish_turn(&prompt, "Hm.");
    assert_eq!(events.outcome().await["status"], 200);
    tokio::join!(service.users.stop(), end.run_out());
}

/// Every CLI dies in its turn, until the session of ada fails. Returns the outcome of the turn.
async fn fail(service: &Service, mut end: CliEnd, listener: &mut ScriptedListener) -> Value {
    let mut dies = service.prompt("ada", "And?").await;
    end.expect("user").await;
    end.exit(Exit::Signal(9));
    loop {
        tokio::select! {
            biased;
            event = dies.next() => return event.unwrap().1,
            end = listener.accept() => end.exit(Exit::Code(1)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_fails_gives_its_place_back_soon() {
    let (service, mut listener) = Service::by_hand(1);
    let (events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello.").await;
    events.outcome().await;
    fail(&service, end, &mut listener).await;
    tokio::time::sleep(IDLE / 2).await;
    let (events, mut end) = tokio::join!(service.prompt("bob", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello, bob.").await;
    assert_eq!(events.outcome().await["text"], "Hello, bob.");
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_fails_is_replaced_at_the_next_prompt() {
    let (service, mut listener) = Service::by_hand(1);
    let (events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello.").await;
    events.outcome().await;
    let id = conversation(&end);

    let outcome = fail(&service, end, &mut listener).await;
    assert!(outcome["status"].as_u64() >= Some(500), "{outcome}");
    let next = service.prompt("ada", "Are you there?");
    let serving = async {
        loop {
            let mut end = listener.accept().await;
            if service.started().len() == 1 {
                end.exit(Exit::Code(1));
                continue;
            }
            end.handshake().await;
            answer(&mut end, "I am.").await;
            return end;
        }
    };
    let (next, end) = tokio::join!(next, serving);
    assert_eq!(conversation(&end), id);
    assert_eq!(next.outcome().await["text"], "I am.");
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_client_that_goes_away_is_cancelled() {
    let (service, mut listener) = Service::by_hand(1);
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    events.next().await.unwrap();
    let next = service.prompt("ada", "Next.").await;
    drop(events);
    let interrupt = in_time("the interrupt", end.expect_request("interrupt")).await;
    end.fail_turn(&prompt, "aborted_streaming", "interrupted");
    end.answer(&interrupt, json!({ "still_queued": [] }));
    // The session goes on, with the prompt of another client.
    answer(&mut end, "Here.").await;
    assert_eq!(next.outcome().await["text"], "Here.");
    assert_eq!(service.started(), ["ada"]);
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_prompt_of_a_client_that_goes_away_is_taken_back() {
    let (service, mut listener) = Service::by_hand(1);
    let (running, mut end) = tokio::join!(service.prompt("ada", "One."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    let (waiting, last) = (service.prompt("ada", "Two.").await, service.prompt("ada", "Three.").await);
    drop(waiting);
    // The snapshot knows when the prompt has left the queue. Bounded, because the paused clock stands still meanwhile.
    let mut queued = json!(2);
    for _ in 0..10_000 {
        queued = service.status().await["ada"]["conversation"]["queued"].clone();
        if queued == 1 {
            break;
        }
    }
    assert_eq!(queued, 1);
    end.finish_turn(&prompt, "One.");
    assert_eq!(running.outcome().await["text"], "One.");
    let next = in_time("the next prompt", end.expect("user")).await;
    assert_eq!(next["message"]["content"][0]["text"], "Three.");
    end.begin_turn();
    end.finish_turn(&next, "Three.");
    assert_eq!(last.outcome().await["text"], "Three.");
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_during_the_start_takes_its_prompt_along() {
    let (service, mut listener) = Service::by_hand(1);
    let mut end = tokio::select! {
        _ = service.post("ada", "Hello.") => unreachable!("no CLI has answered"),
        end = listener.accept() => end,
    };
    // The start goes on without the client.
    end.handshake().await;
    let serving = async {
        loop {
            let frame = end.recv().await.expect("the session lives");
            if frame["type"] == "user" && frame["message"]["content"][0]["text"] == "Again." {
                end.begin_turn();
                end.finish_turn(&frame, "Here.");
                return end;
            }
            match frame["request"]["subtype"].as_str() {
                // Not begun yet, so that it can be taken back.
                Some("cancel_async_message") => {
                    let uuid = frame["request"]["message_uuid"].clone();
                    end.answer(&frame, json!({ "cancelled": true, "message_uuid": uuid }));
                    end.message(
                        json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": "cancelled" }),
                    );
                }
                Some("interrupt") => panic!("it has not begun"),
                _ => {}
            }
        }
    };
    let (again, end) = tokio::join!(service.outcome("ada", "Again."), serving);
    assert_eq!(again["text"], "Here.");
    assert_eq!(service.started(), ["ada"]);
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_all_sessions_at_once_and_tells_their_clients() {
    let (service, mut listener) = Service::by_hand(3);
    let (mut streams, mut ends) = (Vec::new(), Vec::new());
    for user in ["ada", "bob", "eve"] {
        let (events, mut end) = tokio::join!(service.prompt(user, "Hello."), accept(&mut listener));
        end.expect("user").await;
        end.begin_turn();
        streams.push(events);
        ends.push(end.run_out());
    }
    let before = tokio::time::Instant::now();
    let stopping = async {
        tokio::task::yield_now().await;
        // No new work, for old users and for new ones.
        for user in ["ada", "jim"] {
            let refused = refusal(service.post(user, "Hello.").await).await;
            assert_eq!(refused, (503, "Stopping".to_owned()));
        }
        assert_eq!(service.get("/health").await.0, StatusCode::SERVICE_UNAVAILABLE);
    };
    tokio::join!(service.users.stop(), stopping, futures_util::future::join_all(ends));
    // A turn has 5 s to end: one after another would take 15 s.
    assert!(before.elapsed().as_secs() < 10, "{:?}", before.elapsed());
    for events in streams {
        assert_eq!(events.outcome().await, json!({ "status": 503, "error": "Stopped" }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_start() {
    let (service, mut listener) = Service::by_hand(1);
    let (response, ()) = tokio::join!(service.post("ada", "Hello."), async {
        let _never_answers = listener.accept().await;
        service.users.stop().await;
    });
    assert_eq!(refusal(response).await, (503, "Stopping".to_owned()));
}
