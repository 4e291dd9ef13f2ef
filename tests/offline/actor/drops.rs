//! Values of the application whose drop panics: they are dropped apart from whoever drops the last reference.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use greenroom::mcp::{ReadResource, ResourceDef};
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore, StoreResult};
use greenroom::transport::{Connection, Conversations, Launch, MemoryTransport, Transport};
use greenroom::{
    Hook, NoArgs, PermissionDecision, Session, SessionBuilder, ToolContext, ToolDef, ToolServer, hook,
};
use greenroom_testkit::{CliEnd, ScriptedCli};
use tokio::sync::mpsc;

use crate::common::*;

/// Tells its name when it is dropped, and then panics.
struct Burns(&'static str, mpsc::UnboundedSender<&'static str>);

impl Drop for Burns {
    fn drop(&mut self) {
        self.1.send(self.0).ok();
        panic!("{} burns", self.0);
    }
}

struct OwnTransport(MemoryTransport, #[allow(dead_code, reason = "dropped")] Burns);

impl Transport for OwnTransport {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        self.0.open(launch)
    }

    fn conversations(&self) -> Conversations {
        self.0.conversations()
    }
}

struct OwnStore(MemoryStore, #[allow(dead_code, reason = "dropped")] Burns);

impl SessionStore for OwnStore {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        self.0.append(key, entries)
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        self.0.load(key)
    }
}

/// Makes values, and hears of their drops.
struct Fire {
    tell: mpsc::UnboundedSender<&'static str>,
    told: mpsc::UnboundedReceiver<&'static str>,
    lit: BTreeSet<&'static str>,
}

impl Fire {
    fn new() -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Self { tell, told, lit: BTreeSet::new() }
    }

    fn burns(&mut self, name: &'static str) -> Burns {
        assert!(self.lit.insert(name));
        Burns(name, self.tell.clone())
    }

    /// Waits until each value was dropped, in whatever order.
    async fn out(mut self) {
        while let Some(name) = self.lit.pop_first() {
            self.lit.insert(name);
            let dropped = within(SOON, self.told.recv()).await.unwrap();
            assert!(self.lit.remove(dropped), "{dropped} was dropped twice");
        }
    }

    fn server(&mut self) -> ToolServer {
        let [tool, blocking, raw, resource, factory] =
            ["tool", "blocking tool", "raw tool", "resource", "factory"].map(|name| self.burns(name));
        ToolServer::new("bench", "1.0.0")
            .tool("tool", "", move |_: NoArgs, _: ToolContext| {
                let _ = &tool;
                async { "done" }
            })
            .add_tool(ToolDef::blocking("blocking", "", move |_: NoArgs, _: ToolContext| {
                let _ = &blocking;
                "done"
            }))
            .add_tool(ToolDef::raw(
                "raw",
                "",
                serde_json::json!({ "type": "object" }),
                move |_: serde_json::Value, _: ToolContext| {
                    let _ = &raw;
                    async { "done" }
                },
            ))
            .resource(ResourceDef::new("a://b", "b", move |_: ReadResource, _: ToolContext| {
                let _ = &resource;
                async { "done" }
            }))
            .state(move || {
                let _ = &factory;
            })
    }

    fn session(&mut self, transport: MemoryTransport) -> SessionBuilder {
        let [permission, stop, elicitation, stderr] =
            ["permission", "hook", "elicitation", "stderr"].map(|name| self.burns(name));
        Session::builder()
            .can_use_tool(move |_, _| {
                let _ = &permission;
                async { PermissionDecision::deny("no") }
            })
            .hook(Hook::on(hook::Stop, move |_, _| {
                let _ = &stop;
                async { hook::StopOutput::pass() }
            }))
            .on_elicitation(move |_, _| {
                let _ = &elicitation;
                async { greenroom::callback::ElicitationAnswer::Decline }
            })
            .on_stderr(move |_| {
                let _ = &stderr;
            })
            .data(self.burns("data"))
            .session_store(Arc::new(OwnStore(MemoryStore::default(), self.burns("store"))))
            .mcp_server(self.server())
            .transport(OwnTransport(transport, self.burns("transport")))
    }
}

async fn start(fire: &mut Fire) -> (Session, CliEnd) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = within(SOON, async {
        tokio::join!(fire.session(transport).start(), async {
            let mut end = listener.accept().await;
            end.handshake().await;
            end
        })
    })
    .await;
    (session.unwrap(), end)
}

// Guards: a handler or another value of the application panics when it is dropped
#[tokio::test]
async fn a_drop_that_panics_does_not_reach_who_drops_the_last_handle() {
    let mut fire = Fire::new();
    let (session, end) = start(&mut fire).await;
    // The last handle is dropped in here.
    stop(session, end).await;
    fire.out().await;
}

// Guards: a handler or another value of the application panics when it is dropped
#[tokio::test]
async fn a_drop_that_panics_does_not_reach_a_thread_without_a_runtime() {
    let mut fire = Fire::new();
    let (session, end) = start(&mut fire).await;
    let last = session.clone();
    stop(session, end).await;
    let dropping = std::thread::spawn(move || drop(last));
    assert!(dropping.join().is_ok());
    fire.out().await;
}

#[tokio::test]
async fn a_drop_that_panics_does_not_reach_a_start_that_fails() {
    let mut fire = Fire::new();
    let (transport, _listener) = ScriptedCli::by_hand();
    let builder = fire.session(transport).configure(|options| options.max_turns = Some(0));
    assert_eq!(builder.start().await.unwrap_err().kind(), greenroom::ErrorKind::InvalidOption);
    fire.out().await;
}
