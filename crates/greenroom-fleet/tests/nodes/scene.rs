//! Nodes that a test drives step by step, with CLIs that answer quickly.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use greenroom_fleet::{Name, PromptId, PromptOutcome};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::node::{Heard, Node};
use crate::protocol::{LINGER, Line, NodeOf, PACE, Reply, Wish};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::wait::in_time;

/// The time that a CLI takes for a turn, in milliseconds.
const TURN: &str = "20";

pub(crate) struct Scene {
    pub(crate) scratch: PathBuf,
    pub(crate) nodes: Vec<Node>,
    /// Replies that have come, by the node's number and their id.
    pub(crate) replies: BTreeMap<(u64, u64), Reply>,
    server: Server,
    lease: Duration,
    lines: mpsc::Receiver<Heard>,
    heard: mpsc::Sender<Heard>,
    _folder: TempDir,
}

impl Scene {
    pub(crate) fn new(server: Server, lease: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().canonicalize().unwrap();
        for part in ["names", "tmp"] {
            std::fs::create_dir(scratch.join(part)).unwrap();
        }
        let (heard, lines) = mpsc::channel(1024);
        let (nodes, replies) = (Vec::new(), BTreeMap::new());
        Self { scratch, nodes, replies, server, lease, lines, heard, _folder: folder }
    }

    /// Starts a node, and waits until its fleet is open.
    pub(crate) async fn start(&mut self, number: u64) {
        let proxy = Proxy::start(self.server.port()).await;
        let of = NodeOf {
            database: format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port),
            schema: "fleet".into(),
            host: format!("host-{number}"),
            lease: self.lease,
        };
        let quick = [(LINGER, "0"), (PACE, TURN)];
        let node = Node::start(&self.scratch, number, 1, &of, proxy, self.heard.clone(), &quick);
        self.nodes.push(node);
        while !self.node(number).ready {
            self.hear().await;
        }
    }

    pub(crate) fn node(&mut self, number: u64) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.number == number).expect("the node runs")
    }

    pub(crate) fn runs(&self, number: u64) -> bool {
        self.nodes.iter().any(|node| node.number == number)
    }

    /// Takes the next line of any node.
    pub(crate) async fn hear(&mut self) {
        let (number, line) = in_time("a line of a node", self.lines.recv()).await.unwrap();
        match line {
            None => {
                let at = self.nodes.iter().position(|node| node.number == number).unwrap();
                self.nodes.swap_remove(at).gone().await;
            }
            Some(Line::Ready) => self.node(number).ready = true,
            Some(Line::Reply { id, reply }) => drop(self.replies.insert((number, id), reply)),
            Some(_) => {}
        }
    }

    pub(crate) async fn reply(&mut self, number: u64, wish: Wish) -> Reply {
        let id = self.node(number).ask(wish);
        loop {
            if let Some(reply) = self.replies.remove(&(number, id)) {
                return reply;
            }
            self.hear().await;
        }
    }

    /// Has a node accept a prompt.
    pub(crate) async fn accepted(&mut self, number: u64, name: &str, text: &str) -> PromptId {
        match self.reply(number, prompt(name, text)).await {
            Reply::Accepted { prompt, .. } => prompt,
            other => panic!("{text}: {other:?}"),
        }
    }

    pub(crate) async fn outcome(&mut self, number: u64, prompt: PromptId) -> PromptOutcome {
        match self.reply(number, Wish::Outcome(prompt)).await {
            Reply::Ended(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn prompt(name: &str, text: &str) -> Wish {
    let name: Name = format!("acme/{name}").parse().unwrap();
    Wish::Prompt { name, key: text.to_owned(), text: text.to_owned(), continuations: 0 }
}
