//! Messages of the model since the last result, each counted once.

use std::collections::{BTreeMap, HashMap};

use super::AgentUsage;
use super::tokens::TokenUsage;

/// Subagents whose names are remembered over turns.
const NAMED_AGENTS: usize = 1024;

/// What a message or an entry says.
#[derive(Clone, Debug)]
pub(crate) struct SaidUsage {
    /// The subagent; `None` for the main thread.
    pub(super) agent: Option<AgentName>,
    /// The message's id, its model, and its tokens so far.
    pub(super) message: Option<(String, String, TokenUsage)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct AgentName {
    pub(super) agent_id: Option<String>,
    pub(super) agent_type: Option<String>,
    pub(super) tool_use_id: Option<String>,
}

/// The messages since the last result.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    agents: Vec<AgentName>,
    /// Messages since the last result, by their ids.
    messages: HashMap<String, Counted>,
    /// Messages of the turn before: the transcript may tell their final tokens after the result.
    earlier: HashMap<String, Counted>,
    /// Tokens since the last result, by thread and model.
    used: BTreeMap<(Thread, String), TokenUsage>,
}

/// What was counted of a message: its model and its tokens.
#[derive(Clone, Debug, Default)]
struct Counted {
    model: String,
    tokens: TokenUsage,
}

/// The main thread, or a subagent by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thread {
    Main,
    Agent(usize),
}

impl Ledger {
    pub(super) fn take(&mut self, said: SaidUsage) {
        let thread = said.agent.map_or(Thread::Main, |agent| Thread::Agent(self.agent(agent)));
        let Some((id, model, tokens)) = said.message else { return };
        let earlier = self.earlier.remove(&id);
        let first = || earlier.unwrap_or_else(|| Counted { model: model.clone(), ..Counted::default() });
        let known = self.messages.entry(id).or_insert_with(first);
        // The tokens of a message grow while the model writes it.
        let all = known.tokens.max(tokens);
        let more = all.since(known.tokens);
        known.tokens = all;
        if !more.is_nothing() {
            *self.used.entry((thread, model)).or_default() += more;
        }
    }

    /// Takes the final tokens of a message of the main thread that has begun.
    pub(super) fn grow(&mut self, id: &str, tokens: TokenUsage) {
        let Some(Counted { model, .. }) = self.messages.get(id).cloned() else { return };
        self.take(SaidUsage { agent: None, message: Some((id.to_owned(), model, tokens)) });
    }

    /// The place of a subagent, whose name may have become known only now.
    fn agent(&mut self, name: AgentName) -> usize {
        let known = self.agents.iter().position(|agent| agent.is(&name));
        let at = known.unwrap_or_else(|| {
            self.agents.push(AgentName::default());
            self.agents.len() - 1
        });
        let agent = &mut self.agents[at];
        agent.agent_id = agent.agent_id.take().or(name.agent_id);
        agent.agent_type = agent.agent_type.take().or(name.agent_type);
        agent.tool_use_id = agent.tool_use_id.take().or(name.tool_use_id);
        at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    pub(super) fn by_model(&self) -> BTreeMap<String, TokenUsage> {
        let mut models = BTreeMap::new();
        for ((_, model), tokens) in &self.used {
            *models.entry(model.clone()).or_insert_with(TokenUsage::default) += *tokens;
        }
        models
    }

    pub(super) fn main(&self) -> TokenUsage {
        let main = self.used.iter().filter(|((thread, _), _)| *thread == Thread::Main);
        main.map(|(_, tokens)| *tokens).sum()
    }

    /// Ends the turn, and splits its money between the threads: `cost` is that of each model.
    pub(super) fn close(&mut self, cost: &BTreeMap<String, TokenUsage>) -> Vec<AgentUsage> {
        let said = self.by_model();
        let mut agents: BTreeMap<usize, AgentUsage> = BTreeMap::new();
        for ((thread, model), mut tokens) in std::mem::take(&mut self.used) {
            let Thread::Agent(at) = thread else { continue };
            if let (Some(all), Some(said)) = (cost.get(&model), said.get(&model)) {
                let whole = all.weight().max(said.weight());
                tokens.cost_usd = if whole > 0.0 { all.cost_usd * tokens.weight() / whole } else { 0.0 };
            }
            let agent = agents.entry(at).or_insert_with(|| {
                let AgentName { agent_id, agent_type, tool_use_id } = self.agents[at].clone();
                AgentUsage { agent_id, agent_type, tool_use_id, models: BTreeMap::new() }
            });
            agent.models.insert(model, tokens);
        }
        self.earlier = std::mem::take(&mut self.messages);
        if self.agents.len() > NAMED_AGENTS {
            self.agents.clear();
        }
        agents.into_values().collect()
    }
}

impl AgentName {
    fn is(&self, other: &AgentName) -> bool {
        match (&self.agent_id, &other.agent_id) {
            (Some(id), Some(other)) => id == other,
            _ => self.tool_use_id.is_some() && self.tool_use_id == other.tool_use_id,
        }
    }
}
