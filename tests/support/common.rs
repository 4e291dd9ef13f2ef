//! Helpers for tests on the in-memory transport.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

use greenroom::report::{Counters, Events};
use greenroom::{Event, Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use serde_json::Value;

use crate::timeline;
pub(crate) use crate::wait::{SOON, in_time, within};

/// Starts a session on a CLI that the test plays itself; the handshake is done. If the test fails, it tells the session's
/// timeline.
pub(crate) async fn start_by_hand(builder: SessionBuilder) -> (Session, CliEnd, ScriptedListener) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = within(SOON, async {
        tokio::join!(timeline::watched(builder, transport).start(), async {
            let mut end = listener.accept().await;
            end.handshake().await;
            end
        })
    });
    match starting.await {
        (Ok(session), end) => (session, end, listener),
        (Err(error), _) => panic!("the session did not start: {error}"),
    }
}

/// Stops the session; its CLI goes when its stdin is closed. On the paused clock the stop keeps its bound; in real time a
/// busy machine may take longer.
pub(crate) async fn stop(session: Session, end: CliEnd) {
    let bound = session.shutdown_bound();
    // In this order, so that real time is never behind the time of a clock that is not paused.
    let (in_reality, begun) = (std::time::Instant::now(), tokio::time::Instant::now());
    let (stopped, ()) = within(SOON, async { tokio::join!(session.stop(), end.run_out()) }).await;
    let took = begun.elapsed();
    assert!(took <= bound || took <= in_reality.elapsed(), "the stop took {took:?} of {bound:?}");
    if let Err(error) = stopped {
        panic!("the session stopped with an error: {error}");
    }
}

/// The next event that `take` takes; those before it are dropped.
pub(crate) async fn event<T>(events: &mut Events, take: impl Fn(&Event) -> Option<T>) -> T {
    let mut seen = Vec::new();
    let search = async {
        while let Some(event) = events.next().await {
            if let Some(taken) = take(&event) {
                return Some(taken);
            }
            seen.push(event);
        }
        None
    };
    match tokio::time::timeout(SOON, search).await {
        Ok(Some(taken)) => taken,
        Ok(None) => panic!("the session ended without the event; there were {seen:?}"),
        Err(_) => panic!("the event did not come; there were {seen:?}"),
    }
}

/// The session's counters, once the router has handled all earlier messages. A snapshot leaves out a router that is busy.
pub(crate) async fn counters(session: &Session) -> Counters {
    let whole = async {
        loop {
            match session.snapshot().await {
                Ok(snapshot) if snapshot.router.is_some() => return snapshot.counters,
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => panic!("no snapshot: {error}"),
            }
        }
    };
    within(SOON, whole).await
}

/// Calls a tool and waits for the JSON-RPC answer.
pub(crate) async fn call(end: &mut CliEnd, server: &str, tool: &str, arguments: Value) -> Value {
    within(SOON, end.call(server, tool, arguments)).await
}

/// The JSON-RPC answer to a request.
pub(crate) async fn rpc_answer(end: &mut CliEnd, request_id: &str) -> Value {
    within(SOON, end.answer_to(request_id)).await["mcp_response"].clone()
}

/// The text of a tool result; the test fails on a JSON-RPC error.
pub(crate) fn text(answer: &Value) -> &str {
    match answer["result"]["content"][0]["text"].as_str() {
        Some(text) => text,
        None => panic!("not a result with a text: {answer}"),
    }
}

/// The text of an error result (`isError`).
pub(crate) fn error_text(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    text(answer)
}

/// Everything that the host writes until it answers a request that is sent now: whatever was on its way is there
/// then.
pub(crate) async fn settled(end: &mut CliEnd) -> Vec<Value> {
    let probe = end.request(serde_json::json!({ "subtype": "a_probe_of_the_test" }));
    let mut frames = Vec::new();
    loop {
        match within(SOON, end.recv()).await {
            Some(frame) if frame["response"]["request_id"] == probe.as_str() => return frames,
            Some(frame) => frames.push(frame),
            None => panic!("the host closed stdin. The transcript:\n{}", end.transcript()),
        }
    }
}

/// The frames that answer this request.
pub(crate) fn answers<'a>(frames: &'a [Value], request_id: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["response"]["request_id"] == request_id).collect()
}
