//! No two live sessions of a process have one conversation.

use crate::common::*;
use greenroom::transport::MemoryTransport;
use greenroom::{ErrorKind, Event, Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::json;

const ID: &str = "3f0c5d3e-8a57-4b0c-9a41-5b8f1d0c7e01";
const OTHER: &str = "3f0c5d3e-8a57-4b0c-9a41-5b8f1d0c7e02";

fn resuming(id: &str) -> SessionBuilder {
    Session::builder().configure(|options| options.resume = Some(id.to_owned()))
}

async fn start(builder: SessionBuilder, transport: &MemoryTransport) -> greenroom::Result<Session> {
    within(SOON, builder.transport(transport.clone()).start()).await
}

/// Starts a session on a CLI that the test plays.
async fn begin(builder: SessionBuilder, cli: &mut Cli) -> (Session, CliEnd) {
    let (session, end) = tokio::join!(start(builder, &cli.transport), async {
        let mut end = cli.listener.accept().await;
        end.handshake().await;
        end
    });
    (session.unwrap(), end)
}

struct Cli {
    transport: MemoryTransport,
    listener: greenroom_testkit::ScriptedListener,
}

impl Cli {
    fn new() -> Self {
        let (transport, listener) = ScriptedCli::by_hand();
        Self { transport, listener }
    }
}

fn refused(started: greenroom::Result<Session>, id: &str) {
    let error = started.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse, "{error}");
    assert!(error.to_string().contains(id), "{error}");
}

fn names(end: &mut CliEnd, id: &str) {
    end.message(json!({ "type": "system", "subtype": "init", "session_id": id }));
}

async fn captured(session: &Session, end: &mut CliEnd, id: &str) {
    let mut events = session.events();
    names(end, id);
    event(&mut events, |event| match event {
        Event::SessionCaptured { session_id } => (session_id == id).then_some(()),
        _ => None,
    })
    .await;
    // The supervisor claims the conversation before it answers the snapshot.
    within(SOON, session.snapshot()).await.unwrap();
    tokio::task::yield_now().await;
}

// Guards: another live session has the conversation
#[tokio::test(start_paused = true)]
async fn a_conversation_in_use_is_refused_until_its_session_stops() {
    let mut cli = Cli::new();
    let (session, end) = begin(resuming(ID), &mut cli).await;
    refused(start(resuming(ID), &cli.transport).await, ID);
    refused(start(resuming(&ID.to_uppercase()), &cli.transport).await, ID);
    let new = Session::builder().configure(|options| options.session_id = Some(ID.into()));
    refused(start(new, &cli.transport).await, ID);
    stop(session, end).await;
    let (session, end) = begin(resuming(ID), &mut cli).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_live_conversation_can_be_forked_and_read_without_persistence() {
    let mut cli = Cli::new();
    let (session, end) = begin(resuming(ID), &mut cli).await;
    let fork = resuming(ID).configure(|options| options.fork_session = true);
    let (fork, fork_end) = begin(fork, &mut cli).await;
    let reader = resuming(ID).configure(|options| options.persist_session = Some(false));
    let (reader, reader_end) = begin(reader, &mut cli).await;
    let mut elsewhere = Cli::new();
    let (other, other_end) = begin(resuming(ID), &mut elsewhere).await;
    for (session, end) in [(session, end), (fork, fork_end), (reader, reader_end), (other, other_end)] {
        stop(session, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_claim_follows_the_id_that_the_cli_names() {
    let mut cli = Cli::new();
    let (session, mut end) = begin(Session::builder(), &mut cli).await;
    captured(&session, &mut end, ID).await;
    refused(start(resuming(ID), &cli.transport).await, ID);
    // After `/clear` the old conversation is free, and the new one is not.
    captured(&session, &mut end, OTHER).await;
    refused(start(resuming(OTHER), &cli.transport).await, OTHER);
    let (second, second_end) = begin(resuming(ID), &mut cli).await;
    stop(second, second_end).await;
    stop(session, end).await;
}

// Guards: another live session has the conversation
#[tokio::test(start_paused = true)]
async fn a_session_that_turns_out_to_have_a_conversation_of_another_one_fails() {
    let mut cli = Cli::new();
    let (session, end) = begin(resuming(ID), &mut cli).await;
    let newest = Session::builder().configure(|options| options.continue_conversation = true);
    let (second, mut second_end) = begin(newest, &mut cli).await;
    let mut events = second.events();
    names(&mut second_end, ID);
    let (cause, ()) = tokio::join!(
        event(&mut events, |event| match event {
            Event::Failed { cause } => Some(cause.clone()),
            _ => None,
        }),
        second_end.run_out()
    );
    assert!(cause.contains(ID), "{cause}");
    refused(start(resuming(ID), &cli.transport).await, ID);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_claim_survives_a_cli_restart_and_ends_with_the_session() {
    let mut cli = Cli::new();
    let (session, end) = begin(resuming(ID), &mut cli).await;
    end.exit(greenroom::transport::Exit::Signal(9));
    let mut end = within(SOON, cli.listener.accept()).await;
    refused(start(resuming(ID), &cli.transport).await, ID);
    end.handshake().await;
    let mut events = session.events();
    drop(session);
    end.run_out().await;
    while within(SOON, events.next()).await.is_some() {}
    let (session, end) = begin(resuming(ID), &mut cli).await;
    stop(session, end).await;
}

// Guards: the CLI names a conversation by what is not a UUID
#[tokio::test(start_paused = true)]
async fn a_conversation_named_by_no_uuid_ends_the_session() {
    let mut cli = Cli::new();
    let (session, mut end) = begin(Session::builder(), &mut cli).await;
    let mut events = session.events();
    names(&mut end, "../../../etc/cron.d/x");
    let (cause, ()) = tokio::join!(
        event(&mut events, |event| match event {
            Event::Failed { cause } => Some(cause.clone()),
            _ => None,
        }),
        end.run_out()
    );
    assert!(cause.contains("not a UUID"), "{cause}");
    assert_eq!(session.session_id(), None);
}
