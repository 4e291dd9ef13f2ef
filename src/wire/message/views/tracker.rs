//! Cost of a session, per turn and in total.

use std::collections::BTreeMap;

use crate::wire::message::{Message, ModelUsage, ResultMessage, Usage};

/// Adds up the cost of a session.
///
/// The CLI reports totals of the conversation so far, which start at 0 again after `/clear` and in a new process that
/// does not resume. The tracker takes the difference of two results as the cost of a turn, notices when the totals
/// start again, and keeps its own totals.
///
/// Feed every message. While no total is known, and when the totals start again, the tracker takes the usage that the CLI reports
/// since its last result (CLI 2.1.328 does), so the earlier cost of a resumed conversation does not count. With a CLI that does
/// not report it, the first total of a resumed conversation counts for the first turn, unless you start with
/// [`resuming`](UsageTracker::resuming).
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
    /// Totals of the conversation in the last result.
    cost: f64,
    models: BTreeMap<String, ModelUsage>,
    /// Sum over all turns.
    total_cost: f64,
    total_models: BTreeMap<String, ModelUsage>,
    turns: u64,
}

/// Usage of one turn, from a [`UsageTracker`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TurnUsage {
    /// Cost in US dollars, including subagents and side calls.
    pub cost_usd: f64,
    /// Tokens of the main thread, as the CLI reports them.
    pub usage: Option<Usage>,
    /// Tokens and cost by model, including subagents and side calls.
    pub model_usage: BTreeMap<String, ModelUsage>,
}

impl UsageTracker {
    /// A tracker for a new conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tracker for a resumed conversation. `last` is its last result, whose totals do not count.
    pub fn resuming(last: &ResultMessage) -> Self {
        Self { cost: last.total_cost_usd.unwrap_or(0.0), models: last.model_usage.clone(), ..Self::default() }
    }

    /// Takes a message. Returns the usage of the turn for a result, and `None` for every other message.
    pub fn feed(&mut self, message: &Message) -> Option<TurnUsage> {
        match message {
            Message::ConversationReset(_) => {
                (self.cost, self.models) = (0.0, BTreeMap::new());
                None
            }
            Message::Result(result) => Some(self.feed_result(result)),
            _ => None,
        }
    }

    /// Takes a result, such as that of an [`Outcome`](crate::Outcome::result), in place of its message.
    ///
    /// ```
    /// use greenroom::message::UsageTracker;
    /// use greenroom::Outcome;
    ///
    /// fn cost(tracker: &mut UsageTracker, outcome: &Outcome) -> f64 {
    ///     outcome.result().map_or(0.0, |result| tracker.feed_result(result).cost_usd)
    /// }
    /// ```
    pub fn feed_result(&mut self, result: &ResultMessage) -> TurnUsage {
        self.turns += 1;
        let mut turn = TurnUsage { usage: result.usage.clone(), ..TurnUsage::default() };
        // A turn without a model call may report no total, or 0.
        let total = result.total_cost_usd.filter(|cost| *cost > 0.0);
        // Less than before: the totals have started again, for example in a new process.
        let is_first = total.is_some_and(|cost| self.cost <= 0.0 || cost < self.cost);
        let since_last_result = if is_first { result.model_usage_since_last_result.as_ref() } else { None };
        if let Some(cost) = total {
            turn.cost_usd = match since_last_result {
                Some(models) => models.values().filter_map(|model| model.cost_usd).sum(),
                None if is_first => cost,
                None => cost - self.cost,
            };
            self.cost = cost;
            self.total_cost += turn.cost_usd;
        }
        for (model, now) in since_last_result.unwrap_or(&result.model_usage) {
            let before = if since_last_result.is_some() { None } else { self.models.get(model) };
            let used = now.since(before);
            if !used.is_nothing() {
                self.total_models.entry(model.clone()).or_default().add(&used);
                turn.model_usage.insert(model.clone(), used);
            }
        }
        if !result.model_usage.is_empty() {
            self.models.clone_from(&result.model_usage);
        }
        turn
    }

    /// Cost of all turns in US dollars.
    pub fn total_cost_usd(&self) -> f64 {
        self.total_cost
    }

    /// Usage of all turns, by model.
    pub fn model_usage(&self) -> &BTreeMap<String, ModelUsage> {
        &self.total_models
    }

    /// Number of results so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }
}

impl ModelUsage {
    /// The counts that can be added.
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

    /// Usage since these totals; all of it if the totals have started again.
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
