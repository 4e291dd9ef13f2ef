//! Ends of sessions, of clients and of the service.

use greenroom::SessionBuilder;
use greenroom::transport::Exit;
use greenroom_fleet::Name;
use greenroom_fleet::backend::MemoryBackend;
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use serde_json::Value;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_stopped_and_its_conversation_resumed() {
    let (service, mut listener) = Service::by_hand(1).await;
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
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_session_at_work_is_not_idle() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    events.next_of("text").await;
    tokio::time::sleep(IDLE * 3).await;
    assert_eq!(service.stage().await, "running");
    end.finish_turn(&prompt, "Hm.");
    assert_eq!(events.outcome().await["outcome"], "completed");
    tokio::join!(service.stop(), end.run_out());
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
async fn a_session_that_fails_is_replaced_at_the_next_prompt() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello.").await;
    events.outcome().await;
    let id = conversation(&end);

    let outcome = fail(&service, end, &mut listener).await;
    assert!(outcome["outcome"] == "failed" || outcome["outcome"] == "interrupted", "{outcome}");
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
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_all_sessions_at_once_and_tells_their_clients() {
    let (service, mut listener) = Service::by_hand(3).await;
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
        // Until the drain has begun.
        while service.get("", "/health/ready").await.0 == 200 {
            tokio::task::yield_now().await;
        }
        // No new work, for old customers and for new ones.
        for user in ["ada", "jim"] {
            let refused = service.post(user, "Hello.").await;
            assert_eq!(
                (refused.status().as_u16(), &refused.headers()["retry-after"]),
                (503, &"1".parse().unwrap())
            );
        }
    };
    let clients = async {
        for events in streams {
            assert_eq!(events.outcome().await["outcome"], "interrupted");
        }
    };
    tokio::join!(service.stop(), stopping, clients, futures_util::future::join_all(ends));
    // A turn has 15 s to end: one after another would take 45 s.
    assert!(before.elapsed().as_secs() < 25, "{:?}", before.elapsed());
    assert_eq!(service.get("", "/health/ready").await, (503, "draining".to_owned()));
    assert_eq!(service.get("", "/health/live").await, (200, "live".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_is_served_after_the_next_start() {
    let backend = MemoryBackend::new();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let connect = move |builder: SessionBuilder, _: &Name| builder.transport(transport.clone());
    let service = Service::at(backend.clone(), 1, connect.clone()).await;
    let (first, mut end) = tokio::join!(service.prompt("ada", "One."), accept(&mut listener));
    end.expect("user").await;
    end.begin_turn();
    let waiting = service.prompt("ada", "Two.").await;
    let turn = waiting.turn.clone();
    tokio::join!(service.stop(), end.run_out());
    assert_eq!(first.outcome().await["outcome"], "interrupted");
    // No outcome yet.
    assert_eq!(waiting.all().await, []);

    let service = Service::at(backend, 1, connect).await;
    let mut end = accept(&mut listener).await;
    answer(&mut end, "Two, then.").await;
    assert_eq!(service.events(&turn, None).await.outcome().await["text"], "Two, then.");
    tokio::join!(service.stop(), end.run_out());
}
