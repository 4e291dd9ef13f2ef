//! The life of a session on virtual time: prompts and their outcomes, crashes and restarts, stopping, what is
//! told. The test itself plays the CLI.

mod actors;
mod crashes;
mod events;
mod kills;
mod prompts;
mod run_end;
mod runs;
mod stops;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::common::*;
use futures_util::future::BoxFuture;
use greenroom::actor::SessionMessage;
use greenroom::message::TerminalReason;
use greenroom::options::Restart;
use greenroom::report::{Events, ExitCause, InterruptedBy, Phase, ServerStatus};
use greenroom::session::MessageOrGap;
use greenroom::transport::{
    Connection, Exit, Launch, Leftover, Leftovers, MemoryTransport, Process, Transport,
};
use greenroom::{
    Error, ErrorKind, Event, NoArgs, Outcome, Prompt, Session, SessionBuilder, ToolContext, ToolServer, Turn,
};
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent, call_t};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

fn builder() -> SessionBuilder {
    Session::builder()
}

/// A session that restarts its CLI at most `intensity` times, without backoff.
fn restarts(intensity: u32) -> SessionBuilder {
    builder().configure(|options| {
        options.restarts.cli = Restart {
            intensity,
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
            ..Restart::default()
        };
    })
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

async fn prompt(session: &Session, text: &str) -> Turn {
    within(SOON, session.prompt(text)).await.unwrap()
}

/// The next prompt that the CLI is given.
async fn prompted(end: &mut CliEnd, text: &str) -> Value {
    let prompt = within(SOON, end.expect("user")).await;
    assert_eq!(prompt["message"]["content"][0]["text"], text, "{prompt}");
    prompt
}

/// Reads the next prompt, which is `text`, and begins its turn.
async fn begun(end: &mut CliEnd, text: &str) -> Value {
    let prompt = prompted(end, text).await;
    end.begin_turn();
    settled(end).await;
    prompt
}

/// The next incarnation, its handshake done.
async fn next(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    end
}

/// Prompts, and has the CLI answer.
async fn exchange(session: &Session, end: &mut CliEnd, text: &str) {
    let mut turn = prompt(session, text).await;
    let prompt = prompted(end, text).await;
    end.begin_turn();
    end.finish_turn(&prompt, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
}

/// The remaining events, until the session is gone.
async fn rest(events: &mut Events) -> Vec<Event> {
    within(SOON, async {
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event);
        }
        all
    })
    .await
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

/// The CLI says that its state is now this one.
fn state(end: &mut CliEnd, state: &str) {
    end.message(json!({
        "type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true,
    }));
}

fn killed() -> Exit {
    Exit::Signal(9)
}
