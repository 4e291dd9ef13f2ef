//! The journal of the stand-ins: the promises that are checked at each moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use greenroom::{NoArgs, Session, SessionBuilder, ToolServer};
use greenroom_fleet::{ActivationContext, Term};
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use tokio::sync::watch;

use super::StandIn;
use super::death::SlowDeath;

/// The bounds that the journal checks at each moment.
#[derive(Clone, Debug)]
pub(crate) struct Caps {
    pub(crate) live: usize,
    pub(crate) starting: usize,
    pub(crate) tenants: BTreeMap<String, usize>,
    /// The time in which a tool call or an interrupt is answered, however slow the backend is.
    pub(crate) answer: Duration,
}

/// The events that the stand-ins of a case have seen.
#[derive(Clone)]
pub(crate) struct Journal {
    state: Arc<Mutex<JournalState>>,
    pub(super) crash: watch::Sender<(u64, String)>,
}

pub(crate) struct JournalState {
    pub(super) caps: Caps,
    /// Live stand-ins: name, tenant, conversation, and whether each is starting.
    pub(super) live: BTreeMap<u64, Live>,
    next: u64,
    /// Number of the process that owns the backend: a fleet of an earlier one acts no more.
    process: u64,
    /// The latest moment at which another process took over.
    taken: Taken,
    /// The prompts that reached a CLI, by the first part of their text, with the names of their sessions.
    pub(crate) reached: BTreeMap<String, Vec<String>>,
    /// The sessions of the turns that have begun, in their order.
    pub(crate) order: Vec<String>,
    /// Prompts whose result a CLI has told.
    pub(crate) finished: BTreeMap<String, u32>,
    terms: BTreeMap<String, Term>,
    violations: Vec<String>,
    pub(crate) launches: u64,
    pub(crate) calls: u64,
    /// Launches that are to fail.
    pub(crate) fail_starts: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) name: String,
    tenant: String,
    conversation: String,
    pub(super) starting: bool,
    /// A turn runs.
    pub(super) in_turn: bool,
    process: u64,
}

/// The work of earlier processes at the moment at which another one took over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Turns that had begun, or may have begun.
    pub(crate) begun: BTreeSet<String>,
    /// The last term of each name.
    pub(crate) terms: BTreeMap<String, Term>,
}

impl JournalState {
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Checks the bounds when a stand-in has begun. A process that another one has taken over counts for nothing.
    fn check(&mut self, number: u64) {
        let begun = &self.live[&number];
        if begun.process != self.process {
            return;
        }
        let counted = |of: &dyn Fn(&Live) -> bool| {
            self.live.values().filter(|live| live.process == self.process && of(live)).count()
        };
        let same = counted(&|live| live.name == begun.name || live.conversation == begun.conversation);
        let all = counted(&|_| true);
        let of_tenant = counted(&|live| live.tenant == begun.tenant);
        let most_of_tenant = self.caps.tenants.get(&begun.tenant).copied().unwrap_or(usize::MAX);
        let starting = counted(&|live| live.starting);
        let checks = [
            (same, 1, "one-owner: live CLIs of one name"),
            (all, self.caps.live, "capped: live CLIs"),
            (of_tenant, most_of_tenant, "capped: live CLIs of one tenant"),
            (starting, self.caps.starting, "capped: CLIs that start at once"),
        ];
        let wrong = checks.into_iter().filter(|(count, most, _)| count > most);
        let wrong: Vec<_> = wrong
            .map(|(count, most, what)| format!("{what}: {count}, not {most}: {begun:?} of {:?}", self.live))
            .collect();
        self.violations.extend(wrong);
    }

    /// A turn begins in a stand-in.
    pub(super) fn turn_begins(&mut self, number: u64, turn: &str) {
        let Some(live) = self.live.get_mut(&number) else { return };
        live.in_turn = true;
        if live.process != self.process && !self.taken.begun.contains(turn) {
            let text = format!("one-owner: {turn} has begun for an owner that was lost: {live:?}");
            self.violations.push(text);
        }
        let name = live.name.clone();
        self.order.push(name.clone());
        self.reached.entry(turn.to_owned()).or_default().push(name);
    }

    /// The stand-in is about to tell the result of its turn.
    pub(super) fn turn_ends(&mut self, number: u64) {
        if let Some(live) = self.live.get_mut(&number) {
            live.in_turn = false;
        }
    }
}

impl Journal {
    pub(crate) fn new(caps: Caps) -> Self {
        let state = JournalState {
            caps,
            live: BTreeMap::new(),
            next: 0,
            process: 0,
            taken: Taken::default(),
            reached: BTreeMap::new(),
            order: Vec::new(),
            finished: BTreeMap::new(),
            terms: BTreeMap::new(),
            violations: Vec::new(),
            launches: 0,
            calls: 0,
            fail_starts: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), crash: watch::Sender::new((0, String::new())) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a promise was broken.
    pub(crate) fn violate(&self, what: impl Into<String>) {
        self.state().violations.push(what.into());
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Live stand-ins of the process that owns the backend, for a message.
    pub(crate) fn live(&self) -> Vec<String> {
        let state = self.state();
        state
            .live
            .values()
            .filter(|live| live.process == state.process)
            .map(|live| format!("{live:?}"))
            .collect()
    }

    /// Live stand-ins of all processes.
    pub(crate) fn count(&self) -> usize {
        self.state().live.len()
    }

    /// Another process takes over. The stand-ins of this one live on until its fleet notices.
    pub(crate) fn take_over(&self, taken: Taken) {
        let mut state = self.state();
        state.process += 1;
        state.taken.begun.extend(taken.begun);
        for (name, term) in taken.terms {
            let last = state.taken.terms.entry(name).or_default();
            // A name that was deleted and made again has no term until somebody claims it.
            *last = term.max(*last);
        }
    }

    /// A fleet of a process has claimed a name. If another process has taken over, the claim must be an earlier one.
    pub(crate) fn claimed(&self, process: u64, name: &str, term: Term) {
        let mut state = self.state();
        let last = state.taken.terms.get(name);
        if process != state.process && last.is_none_or(|last| *last < term) {
            let text = format!("one-owner: a dead node has claimed {name} with term {term} after {last:?}");
            state.violations.push(text);
        }
    }

    /// The process that owns the backend now.
    pub(crate) fn process(&self) -> u64 {
        self.state().process
    }

    /// A CLI of a name works at a turn.
    pub(crate) fn is_in_turn(&self, name: &str) -> bool {
        self.state().live.values().any(|live| live.name == name && live.in_turn)
    }

    /// A control frame was answered after this time.
    pub(crate) fn answered(&self, what: &str, took: Duration) {
        let mut state = self.state();
        if took > state.caps.answer {
            let text = format!("isolated: {what} was answered after {took:?}");
            state.violations.push(text);
        }
    }

    /// Crashes the CLI of a name, if it lives.
    pub(crate) fn crash(&self, name: &str) {
        self.crash.send_modify(|crash| *crash = (crash.0 + 1, name.to_owned()));
    }

    /// The session of a new activation, with its stand-ins.
    pub(crate) fn activate(&self, cx: &ActivationContext, process: u64) -> SessionBuilder {
        if cx.is_probe() {
            return Session::builder();
        }
        let (name, term) = (cx.name.session().to_owned(), cx.term);
        {
            let mut state = self.state();
            if process == state.process {
                let before = state.terms.insert(name.clone(), term);
                if before.is_some_and(|before| before >= term) {
                    let text = format!("one-owner: {name} is activated with term {term} after {before:?}");
                    state.violations.push(text);
                }
            }
        }
        let (transport, listener) = ScriptedCli::by_hand();
        tokio::spawn(self.clone().accept(listener, name, cx.name.tenant().to_string(), process));
        let probe = ToolServer::new("probe", "1.0.0").tool("echo", "Echoes", async |_: NoArgs| "echo");
        Session::builder().mcp_server(probe).allow_server_tools("probe").transport(SlowDeath(transport))
    }

    async fn accept(self, mut listener: ScriptedListener, name: String, tenant: String, process: u64) {
        while let Some(end) = listener.try_accept().await {
            let life = self.begin(&name, &tenant, &end, process);
            tokio::spawn(StandIn { journal: self.clone(), life, end, frames: VecDeque::new() }.run());
        }
    }

    fn begin(&self, name: &str, tenant: &str, end: &CliEnd, process: u64) -> Life {
        let mut state = self.state();
        state.launches += 1;
        let (number, conversation) = (state.next, end.session_id().to_owned());
        state.next += 1;
        let (name, tenant) = (name.to_owned(), tenant.to_owned());
        // A session that starts its CLI again is no activation.
        let starting = end.launch().epoch == 1;
        let live = Live { name, tenant, conversation, starting, in_turn: false, process };
        state.live.insert(number, live);
        state.check(number);
        Life { journal: self.clone(), number }
    }
}

/// The life of a stand-in in the journal. Its end is the end of the process.
pub(super) struct Life {
    journal: Journal,
    pub(super) number: u64,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.journal.state().live.remove(&self.number);
    }
}
