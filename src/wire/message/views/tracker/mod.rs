//! Money and tokens of a conversation: by turn, by model, by subagent.
//!
//! ```text
//!   assistant, stream_event, task_started ─┐
//!   entries of transcripts ────────────────┴─► ledger: each message id once, by thread and model
//!                                                │ split between the threads
//!   result: model_usage_since_last_result ───────┴─► the turn's usage ──► totals
//!   no result: the CLI ended, or the transcript ─┘
//! ```
//!
//! - [`tokens`]: counts that can be added
//! - [`ledger`]: which messages there were since the last result
//! - [`entry`]: what a message or an entry of a transcript says

mod entry;
mod ledger;
pub(crate) mod tokens;

use std::collections::BTreeMap;

use serde::Serialize;

use self::entry::Said;
use self::ledger::Ledger;
use self::tokens::TokenUsage;
use crate::wire::message::{Message, ResultMessage, SessionUsage};

pub(crate) use self::entry::{AGENT_METADATA, of_mirror_frame};
pub(crate) use self::ledger::SaidUsage;

/// Subagents that [`UsageTracker::agents`] lists one by one. Further ones are added up by their type.
const LISTED_AGENTS: usize = 1024;

/// Adds up money and tokens of a conversation.
///
/// The figures of the CLI's results count: `modelUsage`, which has the tokens and the cost of subagents and side calls, too. The
/// tracker takes what the CLI reports since its last result. A CLI that does not report it (before 2.1.328) reports totals, and the tracker takes
/// the difference of two totals; these start at 0 again after `/clear`, and in a new process that does not resume.
///
/// A result says nothing of subagents. The tracker counts the tokens of each message of the model once, by its id, and splits each
/// turn between the main thread and the subagents. The stream names only the tokens that a message began with, so the
/// output of a subagent is complete only in transcripts; the turns of a [`Session`](crate::Session) with a
/// [session store](crate::SessionBuilder::session_store) have it.
///
/// Feed every message of the stream with [`feed`](Self::feed), or every entry of the transcripts with
/// [`feed_entry`](Self::feed_entry) and then [`end`](Self::end).
///
/// ```
/// use greenroom::{Message, message::UsageTracker};
///
/// let mut tracker = UsageTracker::new();
/// let result = |cost: &str| format!(r#"{{"type": "result", "subtype": "success", "total_cost_usd": {cost}}}"#);
/// tracker.feed(&Message::parse(&result("0.25"))?);
/// let turn = tracker.feed(&Message::parse(&result("0.75"))?).unwrap();
/// assert_eq!(turn.cost_usd, 0.5);
/// tracker.feed(&Message::parse(r#"{"type": "conversation_reset", "new_conversation_id": "s2"}"#)?);
/// tracker.feed(&Message::parse(&result("0.125"))?);
/// assert_eq!(tracker.total_cost_usd(), 0.875);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct UsageTracker {
    /// Totals of the last result, for a CLI that reports nothing else.
    last: Totals,
    /// The last result was of the process that runs.
    in_process: bool,
    ledger: Ledger,
    /// What the CLI's own notes in the transcript say, for transcripts.
    noted: Totals,
    /// The last of these notes, and when it began to count.
    last_note: (f64, Totals),
    /// Sum over all turns.
    total: Totals,
    agents: Vec<AgentUsage>,
    turns: u64,
}

/// Money and tokens by model.
#[derive(Clone, Debug, Default)]
struct Totals {
    cost: f64,
    models: BTreeMap<String, TokenUsage>,
}

/// Money and tokens of one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnUsage {
    /// Money in US dollars, including subagents and side calls, as the CLI estimates it. If the CLI told none
    /// ([`accounted`](Self::accounted)): the tokens at the price of the turns before.
    pub cost_usd: f64,
    /// Tokens of the main thread, without subagents and side calls. Their cost is not known.
    pub main: TokenUsage,
    /// Tokens and money by model, including subagents and side calls.
    pub models: BTreeMap<String, TokenUsage>,
    /// Tokens and money by subagent, as far as messages of the subagents tell. They are part of `models`.
    pub agents: Vec<AgentUsage>,
    /// True if the CLI has told the turn's usage. False if it ended before, or gave no result: the figures are the
    /// sum of the messages that arrived.
    pub accounted: bool,
}

/// Money and tokens of one subagent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AgentUsage {
    /// The subagent's id. `None` for the sum of many subagents of a type.
    pub agent_id: Option<String>,
    /// The type of agent, such as `general-purpose`.
    pub agent_type: Option<String>,
    /// The tool call that started the subagent.
    pub tool_use_id: Option<String>,
    /// Tokens by model. The money is the subagent's share of what the model cost in the turn, by tokens and the
    /// ratios of list prices.
    pub models: BTreeMap<String, TokenUsage>,
}

impl TurnUsage {
    /// Adds another part of the same turn.
    pub(crate) fn add(&mut self, more: TurnUsage) {
        self.cost_usd += more.cost_usd;
        self.main += more.main;
        for (model, used) in more.models {
            *self.models.entry(model).or_default() += used;
        }
        for agent in more.agents {
            match self.agents.iter_mut().find(|known| known.is(&agent)) {
                Some(known) => known.add(agent.models),
                None => self.agents.push(agent),
            }
        }
        self.accounted &= more.accounted;
    }

    /// The sum over all models. Only tokens of the main thread, if the CLI does not tell them by model.
    pub fn total(&self) -> TokenUsage {
        if self.models.is_empty() {
            return TokenUsage { cost_usd: self.cost_usd, ..self.main };
        }
        TokenUsage { cost_usd: self.cost_usd, ..self.models.values().copied().sum() }
    }
}

impl AgentUsage {
    /// The sum over all models.
    pub fn total(&self) -> TokenUsage {
        self.models.values().copied().sum()
    }
}

impl UsageTracker {
    /// A tracker for a new conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tracker for a resumed conversation. `last` is its last result, whose totals do not count.
    pub fn resuming(last: &ResultMessage) -> Self {
        Self { last: Totals::of(last), ..Self::default() }
    }

    /// Takes a message. Returns the usage of the turn for a result, and `None` for every other message.
    pub fn feed(&mut self, message: &Message) -> Option<TurnUsage> {
        match message {
            Message::ConversationReset(_) => {
                self.last = Totals::default();
                None
            }
            Message::Result(result) => Some(self.feed_result(result)),
            message => {
                entry::of_message(message, &mut self.ledger);
                None
            }
        }
    }

    /// Takes a result in place of its message.
    pub fn feed_result(&mut self, result: &ResultMessage) -> TurnUsage {
        let now = Totals::of(result);
        let (used, accounted) = match &result.model_usage_since_last_result {
            Some(models) => {
                let models: BTreeMap<_, _> =
                    models.iter().map(|(name, m)| (name.clone(), m.into())).collect();
                let cost = models.values().map(|model: &TokenUsage| model.cost_usd).sum();
                (Totals { cost, models }, true)
            }
            None => (now.since(&self.last), result.total_cost_usd.is_some()),
        };
        // A turn without a model call may report no total, or 0.
        if now.cost > 0.0 || !now.models.is_empty() {
            self.last = now;
        }
        self.in_process = true;
        let main = result.usage.as_ref().map(TokenUsage::from);
        self.close(used, main, accounted)
    }

    /// Takes an entry of a transcript, as JSON: of the conversation's own, or of a subagent's. `agent_id` is the subagent's id, which its
    /// file is named after. What is no entry is ignored. [`LocalSessions::usage`](crate::sessions::LocalSessions::usage) and
    /// [`StoredSessions::usage`](crate::store::StoredSessions::usage) feed all entries of a conversation.
    ///
    /// A fork's transcript has the messages that it was copied from, and they count.
    pub fn feed_entry(&mut self, agent_id: Option<&str>, entry: &str) {
        match entry::of_entry(agent_id, entry) {
            None => {}
            Some(Said::Usage(said)) => self.feed_said(said),
            Some(Said::CostState { began, cost, models }) => {
                let state = Totals { cost, models };
                // Counts go on over processes that resume after an orderly exit.
                let (last_began, last) = std::mem::replace(&mut self.last_note, (began, state.clone()));
                self.noted.add(&if last_began == began { state.since(&last) } else { state });
            }
        }
    }

    /// Takes what a message or an entry said.
    pub(crate) fn feed_said(&mut self, said: SaidUsage) {
        self.ledger.take(said);
    }

    /// Ends a turn that has no result, because its CLI has ended; or transcripts that have been read.
    ///
    /// What the messages say counts, and, in transcripts, what the CLI has noted of the cost when it exited.
    pub fn end(&mut self) -> TurnUsage {
        let (noted, said) = (std::mem::take(&mut self.noted), self.ledger.by_model());
        let mut used = Totals::default();
        let mut accounted = true;
        for model in noted.models.keys().chain(said.keys()) {
            if used.models.contains_key(model) {
                continue;
            }
            let (noted, said) = (noted.models.get(model).copied(), said.get(model).copied());
            let (noted, said) = (noted.unwrap_or_default(), said.unwrap_or_default());
            let mut all = noted.max(said);
            all.cost_usd = noted.cost_usd;
            if all.weight() > noted.weight() {
                // Messages of a CLI that was killed: it has noted nothing of them.
                accounted = false;
                let price = noted.price().or_else(|| self.total.models.get(model)?.price());
                all.cost_usd = price.unwrap_or_default() * all.weight();
            }
            used.cost += all.cost_usd;
            used.models.insert(model.clone(), all);
        }
        self.last_note = Default::default();
        let main = self.ledger.main();
        self.close(used, Some(main), accounted)
    }

    /// Takes what a process says of all its work, and ends a turn for which it will give no result.
    pub(crate) fn feed_session(&mut self, told: &SessionUsage) -> TurnUsage {
        let models = told.model_usage.iter().map(|(name, model)| (name.clone(), model.into())).collect();
        let now = Totals { cost: told.total_cost_usd, models };
        let said = self.ledger.by_model();
        let input = |models: &BTreeMap<String, TokenUsage>| {
            models.values().map(TokenUsage::all_input).fold(0, u64::saturating_add)
        };
        let main = self.ledger.main();
        if self.in_process || input(&now.models) == input(&said) {
            let used =
                now.since(&if self.in_process { std::mem::take(&mut self.last) } else { Totals::default() });
            self.last = now;
            return self.close(used, Some(main), true);
        }
        // The process has resumed, and its totals are those of processes before, too.
        let mut used = Totals::default();
        for (model, mut tokens) in said {
            let price = now.models.get(&model).and_then(TokenUsage::price);
            tokens.cost_usd = price.unwrap_or_default() * tokens.weight();
            used.cost += tokens.cost_usd;
            used.models.insert(model, tokens);
        }
        self.close(used, Some(main), false)
    }

    /// The next totals are those of another process.
    pub(crate) fn process_ended(&mut self) {
        self.in_process = false;
    }

    /// True if messages have arrived since the last result.
    pub(crate) fn is_open(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// Ends a turn.
    fn close(&mut self, used: Totals, main: Option<TokenUsage>, accounted: bool) -> TurnUsage {
        self.turns += 1;
        self.total.add(&used);
        let agents = self.ledger.close(&used.models);
        for agent in &agents {
            self.add_agent(agent);
        }
        let models = used.models.into_iter().filter(|(_, used)| !used.is_nothing()).collect();
        TurnUsage { cost_usd: used.cost, main: main.unwrap_or_default(), models, agents, accounted }
    }

    fn add_agent(&mut self, more: &AgentUsage) {
        let sum_of_type = AgentUsage { agent_type: more.agent_type.clone(), ..AgentUsage::default() };
        let is_full = self.agents.len() >= LISTED_AGENTS;
        let found = self.agents.iter().position(|agent| agent.is(more));
        let at =
            match found.or_else(|| self.agents.iter().position(|agent| is_full && agent.is(&sum_of_type))) {
                Some(at) => at,
                None => {
                    let named = AgentUsage { models: BTreeMap::new(), ..more.clone() };
                    self.agents.push(if is_full { sum_of_type } else { named });
                    self.agents.len() - 1
                }
            };
        self.agents[at].add(more.models.clone());
    }

    /// Money of all turns in US dollars.
    pub fn total_cost_usd(&self) -> f64 {
        self.total.cost
    }

    /// Money and tokens of all turns, by model.
    pub fn models(&self) -> &BTreeMap<String, TokenUsage> {
        &self.total.models
    }

    /// Money and tokens of the subagents of all turns. The first 1,024 are listed one by one, and further ones added up by their
    /// type.
    pub fn agents(&self) -> &[AgentUsage] {
        &self.agents
    }

    /// Turns so far: results, and ends without a result.
    pub fn turns(&self) -> u64 {
        self.turns
    }
}

impl AgentUsage {
    fn add(&mut self, more: BTreeMap<String, TokenUsage>) {
        for (model, used) in more {
            *self.models.entry(model).or_default() += used;
        }
    }

    fn is(&self, other: &AgentUsage) -> bool {
        let key = |agent: &AgentUsage| {
            (agent.agent_id.clone(), agent.tool_use_id.clone(), agent.agent_type.clone())
        };
        match (&self.agent_id, &other.agent_id) {
            (Some(id), Some(other)) => id == other,
            _ => key(self) == key(other),
        }
    }
}

impl Totals {
    fn of(result: &ResultMessage) -> Self {
        let models = result.model_usage.iter().map(|(name, model)| (name.clone(), model.into())).collect();
        Self { cost: result.total_cost_usd.unwrap_or_default(), models }
    }

    /// What was used since these totals; all of it if they have started again.
    fn since(&self, before: &Totals) -> Totals {
        let is_first = before.cost <= 0.0 || self.cost < before.cost;
        let cost = if is_first { self.cost } else { self.cost - before.cost };
        let models = self.models.iter().map(|(name, now)| {
            let before = before.models.get(name).copied().unwrap_or_default();
            (name.clone(), now.since(before))
        });
        Totals { cost, models: models.collect() }
    }

    fn add(&mut self, more: &Totals) {
        self.cost += more.cost;
        for (model, used) in more.models.iter().filter(|(_, used)| !used.is_nothing()) {
            *self.models.entry(model.clone()).or_default() += *used;
        }
    }
}
