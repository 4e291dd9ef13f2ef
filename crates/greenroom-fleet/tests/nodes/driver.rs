//! The driver: keeps two to four nodes alive, sends prompts to any of them, and writes down what it is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use greenroom_fleet::{Name, NodeId, PromptId};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::journal::Journal;
use crate::node::{Heard, Node, Trouble};
use crate::prompts::{Known, Prompt, Prompts};
use crate::protocol::{Dice, Line, NodeOf, Reply, Wish};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::wait::SOON;

const NAMES: usize = 200;

/// Names that get a third of all prompts, so that some have queues.
const BUSY: u64 = 10;

/// Prompts that wait or run at a time, so that the calm after the storm is short.
const OPEN: usize = 60;

/// The lease of the nodes.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// A request that waits for its reply.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    Prompt(usize),
    Outcome(PromptId),
    Other,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) cuts: u64,
    pub(crate) drains: u64,
    pub(crate) restarts_of_the_server: u64,
    pub(crate) cli_kills: u64,
    /// Nodes that ended by themselves, because they had lost their lease or did not start.
    pub(crate) ended: u64,
    /// Prompts that were sent again and found.
    pub(crate) found: u64,
    pub(crate) refused: u64,
    /// The times from the loss of a node until another one had declared it dead.
    pub(crate) lost: Vec<Duration>,
    pub(crate) events: BTreeMap<String, u64>,
}

/// A node that another one has to declare dead.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    /// Nodes with which nothing was wrong since then.
    pub(crate) witnesses: Vec<u64>,
}

pub(crate) struct Driver {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) scratch: PathBuf,
    pub(crate) folder: TempDir,
    pub(crate) journal: Journal,
    pub(crate) prompts: Prompts,
    pub(crate) counts: Counts,
    pub(crate) dice: Dice,
    pub(crate) nodes: Vec<Node>,
    pub(crate) losses: BTreeMap<NodeId, Loss>,
    pub(crate) server: Server,
    /// The moment since which the server was not killed.
    pub(crate) server_since: Instant,
    names: Vec<Name>,
    started: u64,
    lines: mpsc::Receiver<Heard>,
    heard: mpsc::Sender<Heard>,
    /// Requests by the node's number and their id.
    pub(crate) waiting: BTreeMap<(u64, u64), Waiting>,
    /// What must not happen.
    pub(crate) failures: Vec<String>,
    /// What was done to whom and when, for a failure.
    pub(crate) plan: Vec<String>,
    began: Instant,
}

impl Driver {
    pub(crate) fn new(seed: u64, length: Duration, server: Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().canonicalize().unwrap();
        for part in ["names", "tmp"] {
            std::fs::create_dir(scratch.join(part)).unwrap();
        }
        let (heard, lines) = mpsc::channel(1024);
        Self {
            seed,
            length,
            journal: Journal::new(&scratch),
            scratch,
            folder,
            prompts: Prompts::default(),
            counts: Counts::default(),
            dice: Dice::new(seed),
            nodes: Vec::new(),
            losses: BTreeMap::new(),
            server,
            server_since: Instant::now(),
            names: (0..NAMES)
                .map(|number| format!("tenant-{}/customer-{number}", number % 5).parse().unwrap())
                .collect(),
            started: 0,
            lines,
            heard,
            waiting: BTreeMap::new(),
            failures: Vec::new(),
            plan: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Prompts and disturbs, until the time is over and enough has happened: a busy machine takes longer.
    pub(crate) async fn rage(&mut self) {
        let end = Instant::now() + self.length;
        for _ in 0..3 {
            self.start().await;
        }
        let (mut act, mut disturb) = (Instant::now(), Instant::now() + LEASE);
        while Instant::now() < end || (self.lacks().is_some() && Instant::now() < end + SOON) {
            self.hear_until(act.min(disturb)).await;
            self.recover();
            if Instant::now() >= act {
                self.act();
                act = Instant::now() + Duration::from_millis(2 + self.dice.below(30));
            }
            if Instant::now() >= disturb {
                self.disturb().await;
                disturb = Instant::now() + Duration::from_millis(500 + self.dice.below(3000));
            }
            self.look().await;
        }
    }

    /// Waits until all prompts have an outcome, on nodes that nobody disturbs.
    pub(crate) async fn calm(&mut self) {
        self.note("calm".into());
        self.end_troubles();
        let mut asked: BTreeMap<PromptId, u64> = BTreeMap::new();
        while self.prompts.open() > 0 {
            while self.nodes.iter().filter(|node| node.trouble == Trouble::None).count() < 2 {
                self.start().await;
            }
            self.hear_until(Instant::now() + Duration::from_millis(20)).await;
            let Some(at) = self.nodes.iter().position(|node| node.ready && node.trouble == Trouble::None)
            else {
                continue;
            };
            let number = self.nodes[at].number;
            for prompt in 0..self.prompts.all.len() {
                match self.prompts.all[prompt].known {
                    Known::Sent => self.send(at, prompt),
                    Known::Accepted(id) if asked.get(&id) != Some(&number) => {
                        asked.insert(id, number);
                        self.ask(at, Wish::Outcome(id), Waiting::Outcome(id));
                    }
                    _ => {}
                }
            }
            self.look().await;
        }
    }

    /// Starts a node.
    pub(crate) async fn start(&mut self) {
        self.started += 1;
        let number = self.started;
        let proxy = Proxy::start(self.server.port()).await;
        let of = NodeOf {
            database: format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port),
            schema: "fleet".into(),
            host: format!("host-{number}"),
            lease: LEASE,
        };
        let node = Node::start(&self.scratch, number, self.seed, &of, proxy, self.heard.clone(), &[]);
        self.note(format!("node {number} starts"));
        self.nodes.push(node);
    }

    pub(crate) fn note(&mut self, what: String) {
        self.plan.push(format!("{:.2} s: {what}", self.began.elapsed().as_secs_f64()));
    }

    fn act(&mut self) {
        if self.dice.percent(10) {
            self.counts.cli_kills += u64::from(self.journal.kill_one(&mut self.dice));
            return;
        }
        let Some(at) = self.some_node() else { return };
        let among = if self.dice.percent(30) { BUSY } else { NAMES as u64 };
        let name = self.dice.below(among) as usize;
        match self.dice.below(100) {
            0..70 if self.prompts.open() < OPEN => {
                let number = self.prompts.all.len();
                let continuations = if self.dice.percent(30) { 1 + self.dice.below(2) as u32 } else { 0 };
                let text = format!("prompt {number}.");
                self.prompts.all.push(Prompt {
                    session: name,
                    deletions: 0,
                    text,
                    continuations,
                    known: Known::Sent,
                });
                self.send(at, number);
            }
            70..80 => self.send_again(at),
            80..85 => self.ask(at, Wish::Passivate(self.names[name].clone()), Waiting::Other),
            85..90 => self.ask(at, Wish::Interrupt(self.names[name].clone()), Waiting::Other),
            _ => self.ask_for_outcome(at),
        }
    }

    /// Any node that has opened its fleet, a disturbed one too.
    fn some_node(&mut self) -> Option<usize> {
        let open: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].ready).collect();
        let bound = open.len() as u64;
        (bound > 0).then(|| open[self.dice.below(bound) as usize])
    }

    /// Sends a prompt that the fleet has, or may have, with its key.
    fn send_again(&mut self, at: usize) {
        let Some(newest) = self.prompts.all.len().checked_sub(1) else { return };
        let number = newest - (self.dice.below(200) as usize).min(newest);
        if self.prompts.all[number].known != Known::Refused {
            self.send(at, number);
        }
    }

    fn ask_for_outcome(&mut self, at: usize) {
        let open: Vec<PromptId> =
            self.prompts.all.iter().filter(|prompt| prompt.is_open()).filter_map(Prompt::id).collect();
        if !open.is_empty() {
            let id = open[self.dice.below(open.len() as u64) as usize];
            self.ask(at, Wish::Outcome(id), Waiting::Outcome(id));
        }
    }

    pub(crate) fn send(&mut self, at: usize, number: usize) {
        let is_sent = |waiting: &Waiting| matches!(waiting, Waiting::Prompt(sent) if *sent == number);
        if self.prompts.all[number].known == Known::Sent && self.waiting.values().any(is_sent) {
            return;
        }
        let prompt = &self.prompts.all[number];
        let wish = Wish::Prompt {
            name: self.names[prompt.session].clone(),
            key: number.to_string(),
            text: prompt.text.clone(),
            continuations: prompt.continuations,
        };
        self.ask(at, wish, Waiting::Prompt(number));
    }

    pub(crate) fn ask(&mut self, at: usize, wish: Wish, waiting: Waiting) {
        let node = &mut self.nodes[at];
        let id = node.ask(wish);
        self.waiting.insert((node.number, id), waiting);
    }

    /// Takes lines until then.
    pub(crate) async fn hear_until(&mut self, end: Instant) {
        while let Ok(Some((number, line))) = timeout_at(end, self.lines.recv()).await {
            match line {
                Some(line) => self.take(number, line),
                None => self.ended(number).await,
            }
        }
    }

    /// A node has ended: what it was asked has no answer.
    async fn ended(&mut self, number: u64) {
        self.waiting.retain(|(node, _), _| *node != number);
        let Some(at) = self.nodes.iter().position(|node| node.number == number) else { return };
        let mut node = self.nodes.swap_remove(at);
        node.gone().await;
        self.is_disturbed(number);
        self.note(format!("node {number} has ended"));
        self.counts.ended += u64::from(node.trouble != Trouble::Draining);
    }

    fn take(&mut self, number: u64, line: Line) {
        let Some(node) = self.nodes.iter_mut().find(|node| node.number == number) else { return };
        let (id, reply) = match line {
            Line::Ready => {
                node.ready = true;
                return self.note(format!("node {number} is ready"));
            }
            Line::Joined(id) => return node.id = Some(id),
            Line::Lost(id) => return self.is_lost(number, id),
            Line::Event(kind) => {
                if kind == "backend_unavailable" {
                    // It gives the others another lease.
                    node.well_since = Instant::now();
                    self.is_disturbed(number);
                    self.note(format!("node {number} cannot use the server"));
                }
                return *self.counts.events.entry(kind).or_default() += 1;
            }
            Line::Reply { id, reply } => (id, reply),
        };
        match (self.waiting.remove(&(number, id)), reply) {
            (Some(Waiting::Prompt(number)), Reply::Accepted { prompt, is_duplicate }) => {
                self.counts.found += u64::from(is_duplicate);
                self.prompts.accepted(number, prompt);
            }
            (Some(Waiting::Prompt(_)), Reply::Refused(_)) => self.counts.refused += 1,
            (Some(Waiting::Outcome(id)), Reply::Ended(outcome)) => self.prompts.ended(id, outcome),
            // The node was cut off, the server was away, or another node owns the session.
            (Some(_), Reply::Failed(_)) | (Some(Waiting::Other), Reply::Done) => {}
            (waited, reply) => self.failures.push(format!("the reply to {waited:?} was {reply:?}")),
        }
    }

    /// Ends the storm at the first fault: what follows may never end.
    async fn look(&mut self) {
        self.journal.read();
        self.look_at_losses().await;
        let faults = self.faults();
        assert!(faults.is_empty(), "{}:\n{}\n{}", self.told(), faults.join("\n"), self.story());
    }
}
