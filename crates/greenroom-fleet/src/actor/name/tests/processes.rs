//! The records of a session's processes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom::Session;
use greenroom::transport::{Connection, Exit, Launch, Process, ProcessIdentity, Transport};
use greenroom_testkit::ScriptedCli;
use serde_json::json;

use crate::actor::admitter::AdmissionLink;
use crate::actor::cell::NameCell;
use crate::actor::name::NameContext;
use crate::actor::name::live::keep_processes;
use crate::backend::MemoryBackend;
use crate::error::BackendErrorKind;
use crate::id::{AttemptId, Name};
use crate::stage::turn::{BegunTurn, fleet_on};
use crate::testkit::{Fault, FaultedBackend};

/// A transport whose processes have identities: the number of the start.
struct Identified<T>(T, Arc<AtomicU32>);

impl<T: Transport> Transport for Identified<T> {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        let (opening, number) = (self.0.open(launch), self.1.fetch_add(1, Ordering::Relaxed) + 1);
        Box::pin(async move {
            let Connection { reader, writer, process } = opening.await?;
            let identity = serde_json::from_value(json!({ "pid": number })).unwrap();
            Ok(Connection { reader, writer, process: Box::new(IdentifiedProcess(process, identity)) })
        })
    }
}

struct IdentifiedProcess(Box<dyn Process>, ProcessIdentity);

impl Process for IdentifiedProcess {
    fn pid(&self) -> Option<u32> {
        self.0.pid()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        self.0.wait()
    }

    fn terminate(&mut self) {
        self.0.terminate();
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn program(&self) -> Option<&Path> {
        self.0.program()
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        Some(self.1.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_process_that_is_refused_is_tried_again() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    backend.plan(|request| match (request.method, request.nth) {
        ("record_process", 1) => Fault::Refuse(BackendErrorKind::Damaged),
        _ => Fault::Pass,
    });
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = Session::builder().transport(Identified(transport, Arc::default())).start();
    let (session, mut cli) = tokio::join!(starting, async {
        let mut cli = listener.accept().await;
        cli.handshake().await;
        cli
    });
    let (session, cell) = (session.unwrap(), NameCell::new("acme/a".parse::<Name>().unwrap()));
    {
        let mut holdings = cell.holdings();
        (holdings.claim, holdings.owner) = (Some(AttemptId::new()), Some(begun.owner.clone()));
        holdings.session = Some(session.clone());
    }
    let cx = NameContext { shared, cell, admission: AdmissionLink::default() };
    let _watch = keep_processes(&cx, &session);
    // The first record after the end of the first CLI is refused.
    let mut before = 1;
    for _ in 0..2 {
        cli.exit(Exit::Signal(9));
        cli = listener.accept().await;
        cli.handshake().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let records = backend.requests("record_process");
        assert!(records > before, "{records} records, {before} before the last CLI");
        before = records;
    }
}
