//! What a session costs, turn by turn and altogether.

use std::collections::BTreeMap;

use super::{Message, ModelUsage, ResultMessage, Usage};

/// Adds up what a session costs.
///
/// The CLI tells totals of the conversation so far, which begin at 0 again when the conversation does
/// (`/clear`), and in a new process that does not resume one. The tracker takes the difference of two results for what
/// a turn cost, notices where the totals begin again, and adds up over that.
///
/// Feed it every message. The cost of a conversation that was resumed is in its first total, and so it counts for the
/// first turn; [`resuming`](UsageTracker::resuming) says what was there before.
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
    /// The totals of the conversation, as the last result said.
    cost: f64,
    models: BTreeMap<String, ModelUsage>,
    /// What conversations before this one came to.
    total_cost: f64,
    total_models: BTreeMap<String, ModelUsage>,
    turns: u64,
}

/// What one turn used; made by [`UsageTracker`].
///
/// ```
/// use greenroom::{Message, message::UsageTracker};
///
/// let line = r#"{"type": "result", "subtype": "success", "total_cost_usd": 0.5,
///     "modelUsage": {"m": {"outputTokens": 9, "costUSD": 0.5}}, "usage": {"output_tokens": 9}}"#;
/// let turn = UsageTracker::new().feed(&Message::parse(line)?).unwrap();
/// assert_eq!(turn.model_usage["m"].output_tokens, 9);
/// assert_eq!(turn.usage.unwrap().output_tokens, 9);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TurnUsage {
    /// What it cost in US dollars, its subagents and side calls included.
    pub cost_usd: f64,
    /// Tokens of the main thread, as the CLI says.
    pub usage: Option<Usage>,
    /// Tokens and cost by model, subagents and side calls included.
    pub model_usage: BTreeMap<String, ModelUsage>,
}

impl UsageTracker {
    /// For a session that begins a conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// For a session that resumes the conversation that this result was the last of: what it had cost does not count.
    pub fn resuming(last: &ResultMessage) -> Self {
        Self { cost: last.total_cost_usd.unwrap_or(0.0), models: last.model_usage.clone(), ..Self::default() }
    }

    /// Takes note of a message. A result gives what its turn used, every other message `None`.
    pub fn feed(&mut self, message: &Message) -> Option<TurnUsage> {
        match message {
            Message::ConversationReset(_) => {
                (self.cost, self.models) = (0.0, BTreeMap::new());
                None
            }
            Message::Result(result) => Some(self.result(result)),
            _ => None,
        }
    }

    fn result(&mut self, result: &ResultMessage) -> TurnUsage {
        self.turns += 1;
        let mut turn = TurnUsage { usage: result.usage.clone(), ..TurnUsage::default() };
        // A turn without a model call may say nothing of the totals, or 0.
        if let Some(cost) = result.total_cost_usd.filter(|cost| *cost > 0.0) {
            // Less than before: the totals have begun again, in a new process for example.
            turn.cost_usd = if cost < self.cost { cost } else { cost - self.cost };
            self.cost = cost;
            self.total_cost += turn.cost_usd;
        }
        if !result.model_usage.is_empty() {
            for (model, now) in &result.model_usage {
                let used = now.since(self.models.get(model));
                if !used.is_nothing() {
                    self.total_models.entry(model.clone()).or_default().add(&used);
                    turn.model_usage.insert(model.clone(), used);
                }
            }
            self.models.clone_from(&result.model_usage);
        }
        turn
    }

    /// What all turns cost in US dollars.
    pub fn total_cost_usd(&self) -> f64 {
        self.total_cost
    }

    /// What all turns used, by model.
    pub fn model_usage(&self) -> &BTreeMap<String, ModelUsage> {
        &self.total_models
    }

    /// How many results there were.
    pub fn turns(&self) -> u64 {
        self.turns
    }
}

impl ModelUsage {
    /// The counts that add up.
    fn counts(&mut self) -> [&mut u64; 8] {
        [
            &mut self.input_tokens,
            &mut self.output_tokens,
            &mut self.thinking_tokens,
            &mut self.cache_read_input_tokens,
            &mut self.cache_creation_input_tokens,
            &mut self.cache_creation_ephemeral_5m_input_tokens,
            &mut self.cache_creation_ephemeral_1h_input_tokens,
            &mut self.web_search_requests,
        ]
    }

    /// What was used since these totals; all of it if they have begun again.
    fn since(&self, before: Option<&ModelUsage>) -> ModelUsage {
        let mut used = self.clone();
        let Some(before) = before else { return used };
        let mut before = before.clone();
        let (cost, cost_before) = (self.cost_usd.unwrap_or(0.0), before.cost_usd.unwrap_or(0.0));
        let begun_again =
            cost < cost_before || used.counts().iter().zip(before.counts()).any(|(now, then)| **now < *then);
        if !begun_again {
            for (now, then) in used.counts().into_iter().zip(before.counts()) {
                *now -= *then;
            }
            used.cost_usd = self.cost_usd.map(|cost| cost - cost_before);
        }
        used
    }

    fn is_nothing(&self) -> bool {
        let mut usage = self.clone();
        usage.cost_usd.unwrap_or(0.0) == 0.0 && usage.counts().iter().all(|count| **count == 0)
    }

    fn add(&mut self, used: &ModelUsage) {
        let mut more = used.clone();
        let mut sum = more.clone();
        for ((sum, more), so_far) in sum.counts().into_iter().zip(more.counts()).zip(self.counts()) {
            *sum = so_far.saturating_add(*more);
        }
        sum.cost_usd = match (self.cost_usd, used.cost_usd) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        *self = sum;
    }
}
