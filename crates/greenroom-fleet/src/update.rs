//! Updates of a turn: the things that a page shows, made of messages, questions and the outcome.

use std::fmt;
use std::ops::Not;
use std::str::FromStr;

use greenroom::Message;
use greenroom::message::{ContentBlock, ResultMessage, UsageTracker};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::id::Timestamp;
use crate::record::{Cause, InterruptedBy, PromptOutcome, QuestionRecord, Unsent};

/// Something that a page shows of a turn, in the order of [`FleetTurn::updates`](crate::FleetTurn::updates).
///
/// Its JSON has the name of the variant in snake case as `type`, and the fields beside it:
///
/// ```
/// use greenroom_fleet::Update;
///
/// let update = Update::Delta { text: "Hel".to_owned(), starts: true };
/// assert_eq!(serde_json::to_string(&update)?, r#"{"type":"delta","text":"Hel","starts":true}"#);
/// assert_eq!((update.event_name(), update.id()), ("delta", None));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// | update | from | [id](Self::id) | after a reconnect |
/// |---|---|---|---|
/// | `Delta` | the main thread | none | from then on |
/// | `Text` | the main thread | yes | once |
/// | `ToolCall`, `ToolResult` | the main thread, and subagents with their `parent` | yes | once |
/// | `Asked`, `Decided` | the questions of the turn | none | again, and `Asked` also when the turn is parked: replace a question by its id |
/// | `Usage` | the end of the CLI's turn | yes | once |
/// | `Gap` | messages that were not kept | yes | once |
/// | `Held` | a prompt whose credential is held | none | again |
/// | `Heartbeat` | a turn that is silent for 15 s | none | from then on |
/// | `Outcome` | the end of the turn: the last update | [`END`](UpdateId::END) | never, after `END` |
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Update {
    /// Text that the model is writing, if the profile asks for
    /// [`include_partial_messages`](greenroom::Options::include_partial_messages). The next [`Text`](Self::Text) has all of it:
    /// show it in place of the deltas before it. Deltas may be missing, and then those up to the next text are left out: the
    /// deltas shown are always a part without holes.
    Delta {
        /// The addition.
        text: String,
        /// A new text begins here. Remove deltas without a `Text`: the model began anew. Left out of the JSON if `false`.
        #[serde(skip_serializing_if = "Not::not")]
        starts: bool,
    },
    /// A complete text block of the model.
    Text {
        /// The place of the update.
        id: UpdateId,
        /// The text, which may be Markdown.
        text: String,
    },
    /// The model calls a tool.
    ToolCall {
        /// The place of the update.
        id: UpdateId,
        /// The id of the call, which its `ToolResult` names.
        call: String,
        /// The tool. Tools of MCP servers are named `mcp__SERVER__TOOL`.
        name: String,
        /// The arguments.
        input: Value,
        /// The call that started the subagent which calls the tool. `None`, and left out of the JSON: the main thread.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// A tool has answered.
    ToolResult {
        /// The place of the update.
        id: UpdateId,
        /// The id of the call.
        call: String,
        /// The text blocks of the result, joined by newlines. Images and the results of the API's own tools are left out.
        text: String,
        /// The call failed or was denied.
        is_error: bool,
        /// As in `ToolCall`.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// The session asks a person: see [`QuestionRecord::inquiry`]. Comes again when the turn is [parked](QuestionRecord::parked).
    Asked {
        /// The open question.
        question: Box<QuestionRecord>,
    },
    /// A question is open no more. Without a [`decision`](QuestionRecord::decision) it has ended with its turn, or with the owner
    /// that asked it.
    Decided {
        /// The question.
        question: Box<QuestionRecord>,
    },
    /// Tokens and cost of the turn, as its CLI reports them at its end.
    Usage {
        /// The place of the update.
        id: UpdateId,
        /// Tokens and money, subagents included.
        #[serde(flatten)]
        usage: TurnUsage,
    },
    /// Messages of the turn were not kept, as [`TurnItem::Gap`](crate::TurnItem::Gap).
    Gap {
        /// The place of the update.
        id: UpdateId,
        /// The number of the first missing message.
        from: u64,
        /// The number of the last missing message.
        to: u64,
    },
    /// The API rejects the credential of the session for now, such as for a rate limit: the prompt waits, and is not lost. Show it until the
    /// next update, or until the moment has passed.
    Held {
        /// The cause.
        cause: Cause,
        /// When one prompt of the credential tries again, in milliseconds since 1970 on the backend's clock.
        until: Timestamp,
    },
    /// Nothing has come for 15 seconds. It keeps proxies from closing a silent connection.
    Heartbeat,
    /// The turn has ended. Its JSON is for the people of the tenant, without error texts and without the CLI's `result`:
    /// `outcome` is the [word](PromptOutcome::word), `text` the answer of a completed turn, and `why` the cause of any other end,
    /// such as `rate_limited`, `user` or `expired`.
    Outcome {
        /// [`UpdateId::END`].
        id: UpdateId,
        /// The outcome.
        #[serde(flatten, serialize_with = "outcome_for_page")]
        outcome: Box<PromptOutcome>,
    },
}

/// Tokens and cost of a turn, subagents included. Of a CLI that tells only the sum of the conversation: the tokens of the main thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnUsage {
    /// Input tokens that neither came from the prompt cache nor were put into it.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens that came from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Input tokens that were put into the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// US dollars of the turn with its subagents, as the CLI estimates them. `None`, and left out of the JSON: the CLI tells only
    /// the sum of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl TurnUsage {
    /// The usage of the turn that a result ends.
    fn of(result: &ResultMessage) -> Self {
        let is_of_turn = result.model_usage_since_last_result.is_some();
        let turn = UsageTracker::new().feed_result(result);
        let used = if is_of_turn { turn.total() } else { turn.main };
        Self {
            input_tokens: used.input,
            output_tokens: used.output,
            cache_read_input_tokens: used.cache_read,
            cache_creation_input_tokens: used.cache_creation,
            cost_usd: is_of_turn.then_some(used.cost_usd),
        }
    }
}

impl Update {
    /// The place of the update in its turn, for [`TurnUpdates::after`](crate::TurnUpdates::after): the `id` of a server-sent event.
    /// `None` for updates that do not come again, and for those of questions, which come again anyway.
    pub fn id(&self) -> Option<UpdateId> {
        match self {
            Self::Text { id, .. }
            | Self::ToolCall { id, .. }
            | Self::ToolResult { id, .. }
            | Self::Usage { id, .. }
            | Self::Gap { id, .. }
            | Self::Outcome { id, .. } => Some(*id),
            Self::Delta { .. }
            | Self::Asked { .. }
            | Self::Decided { .. }
            | Self::Held { .. }
            | Self::Heartbeat => None,
        }
    }

    /// The `type` in the JSON: the `event` of a server-sent event.
    pub fn event_name(&self) -> &'static str {
        match self {
            Self::Delta { .. } => "delta",
            Self::Text { .. } => "text",
            Self::ToolCall { .. } => "tool_call",
            Self::ToolResult { .. } => "tool_result",
            Self::Asked { .. } => "asked",
            Self::Decided { .. } => "decided",
            Self::Usage { .. } => "usage",
            Self::Gap { .. } => "gap",
            Self::Held { .. } => "held",
            Self::Heartbeat => "heartbeat",
            Self::Outcome { .. } => "outcome",
        }
    }

    /// The updates of a complete message, in order. They are the same ones each time, because their ids count them.
    pub(crate) fn of_message(seq: u64, message: &Message) -> Vec<Self> {
        let parent = message.parent_tool_use_id().map(str::to_owned);
        let mut updates = Vec::new();
        for block in message.content() {
            let id = UpdateId { seq, part: updates.len() as u32 + 1 };
            // The CLI tells errors of the API as texts.
            let is_models = matches!(message, Message::Assistant(said) if said.error.is_none());
            updates.extend(of_block(id, block, parent.clone(), is_models));
        }
        if let Message::Result(result) = message {
            updates.push(Self::Usage { id: UpdateId { seq, part: 1 }, usage: TurnUsage::of(result) });
        }
        updates
    }

    pub(crate) fn of_gap(from: u64, to: u64) -> Self {
        Self::Gap { id: UpdateId { seq: to, part: 1 }, from, to }
    }
}

/// The update of a block of a message of the model, or of one for the model.
fn of_block(id: UpdateId, block: &ContentBlock, parent: Option<String>, is_models: bool) -> Option<Update> {
    Some(match block {
        ContentBlock::Text { text, .. } if is_models && parent.is_none() && !text.is_empty() => {
            Update::Text { id, text: text.clone() }
        }
        ContentBlock::ToolUse { id: call, name, input, .. }
        | ContentBlock::ServerToolUse { id: call, name, input, .. } => {
            Update::ToolCall { id, call: call.clone(), name: name.clone(), input: input.clone(), parent }
        }
        ContentBlock::ToolResult { tool_use_id, content, is_error, .. } => Update::ToolResult {
            id,
            call: tool_use_id.clone(),
            text: content.text().into_owned(),
            is_error: *is_error,
            parent,
        },
        ContentBlock::ServerToolResult { tool_use_id, content, .. } => {
            let is_error = content["type"].as_str().is_some_and(|kind| kind.ends_with("_error"));
            Update::ToolResult { id, call: tool_use_id.clone(), text: String::new(), is_error, parent }
        }
        _ => return None,
    })
}

/// Writes the part of an outcome that is for the people of the tenant.
fn outcome_for_page<S: Serializer>(outcome: &PromptOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown<'a> {
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<&'a str>,
    }
    let why = match outcome {
        PromptOutcome::Completed { .. } => None,
        PromptOutcome::Failed { kind, .. } => Some(kind.as_str()),
        PromptOutcome::Interrupted { by, .. } => Some(match by {
            InterruptedBy::User => "user",
            InterruptedBy::OwnerLost { .. } => "owner_lost",
            InterruptedBy::Session { .. } => "session",
        }),
        PromptOutcome::Unsent { why } => Some(match why {
            Unsent::Expired { .. } => "expired",
            Unsent::Withdrawn => "withdrawn",
            Unsent::Deleted => "deleted",
            Unsent::Dropped { .. } => "dropped",
        }),
    };
    Shown { outcome: outcome.word(), text: outcome.text(), why }.serialize(serializer)
}

/// The place of an update in its turn: the number of its message, and its number in the message.
///
/// A message may have several updates, such as a text and the calls of two tools, so the number of the message alone would lose or
/// double some of them after a reconnect. As text it is such as `7.2`, and `end` behind the last update of a turn.
///
/// ```
/// use greenroom_fleet::UpdateId;
///
/// let id: UpdateId = "7.2".parse()?;
/// assert_eq!(id.to_string(), "7.2");
/// assert!(id < UpdateId::END);
/// # Ok::<(), greenroom_fleet::InvalidUpdateId>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UpdateId {
    pub(crate) seq: u64,
    pub(crate) part: u32,
}

impl UpdateId {
    /// Before the first update.
    pub(crate) const START: Self = Self { seq: 0, part: 0 };

    /// The id of the outcome: nothing comes after it. A browser reconnects when a response ends, unless the page closes its
    /// `EventSource`. Answer a reconnect after `END` with the status 204, which makes the browser stop.
    pub const END: Self = Self { seq: u64::MAX, part: u32::MAX };
}

/// A text that is no [`UpdateId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of an update is a text such as `7.2`, or `end`: send the last one that was received")]
pub struct InvalidUpdateId;

impl fmt::Display for UpdateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::END => f.write_str("end"),
            Self { seq, part } => write!(f, "{seq}.{part}"),
        }
    }
}

impl FromStr for UpdateId {
    type Err = InvalidUpdateId;

    fn from_str(text: &str) -> Result<Self, InvalidUpdateId> {
        if text == "end" {
            return Ok(Self::END);
        }
        let (seq, part) = text.split_once('.').ok_or(InvalidUpdateId)?;
        // `parse` takes a sign as well.
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(seq) || !is_number(part) {
            return Err(InvalidUpdateId);
        }
        let (seq, part) = (seq.parse().map_err(|_| InvalidUpdateId)?, part.parse());
        Ok(Self { seq, part: part.map_err(|_| InvalidUpdateId)? })
    }
}

impl TryFrom<String> for UpdateId {
    type Error = InvalidUpdateId;

    fn try_from(text: String) -> Result<Self, InvalidUpdateId> {
        text.parse()
    }
}

impl From<UpdateId> for String {
    fn from(id: UpdateId) -> String {
        id.to_string()
    }
}
