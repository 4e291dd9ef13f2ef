//! What a message of the stream, or an entry of a transcript, says of tokens.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::ledger::{AgentName, Ledger, SaidUsage};
use super::tokens::TokenUsage;
use crate::wire::lenient::or_default;
use crate::wire::message::read::mend;
use crate::wire::message::{ApiEvent, ApiMessage, Message, ModelUsage, SystemDetail, Usage};

/// The type of an entry that names a subagent. Only stores have it.
pub(crate) const AGENT_METADATA: &str = "agent_metadata";

pub(super) enum Said {
    Usage(SaidUsage),
    /// The CLI's note of what it has counted since `began`.
    CostState {
        began: f64,
        cost: f64,
        models: BTreeMap<String, TokenUsage>,
    },
}

/// Enters what a message of the stream says.
pub(super) fn of_message(message: &Message, ledger: &mut Ledger) {
    let of_main = |message| SaidUsage { agent: None, message };
    match message {
        Message::Assistant(said) => {
            let agent_id = said.agent_id.clone();
            let tool_use_id = message.parent_tool_use_id().map(str::to_owned);
            let is_main = agent_id.is_none() && tool_use_id.is_none();
            let agent = AgentName { agent_id, agent_type: said.subagent_type.clone(), tool_use_id };
            let agent = if is_main { None } else { Some(agent) };
            ledger.take(SaidUsage { agent, message: counted(&said.message) });
        }
        // Pieces of subagents are not sent, and pieces of the main thread name its final tokens.
        Message::StreamEvent(piece) if message.is_main_thread() => match piece.event_type() {
            "message_start" => {
                if let ApiEvent::MessageStart(started) = piece.api_event() {
                    ledger.take(of_main(counted(started)));
                }
            }
            "message_delta" => {
                if let ApiEvent::MessageDelta { usage: Some(usage), .. } = piece.api_event()
                    && let Some(id) = &piece.api_message_id
                {
                    ledger.grow(id, TokenUsage::from(&**usage));
                }
            }
            _ => {}
        },
        Message::System(system) => {
            if let SystemDetail::TaskStarted(task) = system.detail()
                && task.subagent_type.is_some()
            {
                let agent = AgentName {
                    agent_id: Some(task.task_id.clone()),
                    agent_type: task.subagent_type.clone(),
                    tool_use_id: task.tool_use_id.clone(),
                };
                ledger.take(SaidUsage { agent: Some(agent), message: None });
            }
        }
        message if message.kind() == "transcript_mirror" => {
            of_mirror_frame(message.raw()).into_iter().for_each(|said| ledger.take(said));
        }
        _ => {}
    }
}

fn counted(message: &ApiMessage) -> Option<(String, String, TokenUsage)> {
    let tokens = TokenUsage::from(message.usage.as_ref()?);
    let model = message.model.clone().unwrap_or_default();
    Some((message.id.clone()?, model, tokens)).filter(|_| !tokens.is_nothing())
}

/// An entry of a transcript.
#[derive(Deserialize)]
struct Entry {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, rename = "agentId", deserialize_with = "or_default")]
    agent_id: Option<String>,
    #[serde(default, rename = "attributionAgent", deserialize_with = "or_default")]
    attribution: Option<String>,
    #[serde(default, rename = "agentType", deserialize_with = "or_default")]
    agent_type: Option<String>,
    #[serde(default, rename = "toolUseId", deserialize_with = "or_default")]
    tool_use_id: Option<String>,
    #[serde(default)]
    message: Option<Answer>,
    #[serde(default, rename = "startTime", deserialize_with = "or_default")]
    began: f64,
    #[serde(default, rename = "totalCostUSD", deserialize_with = "or_default")]
    cost: f64,
    #[serde(default, rename = "modelUsage", deserialize_with = "or_default")]
    models: BTreeMap<String, ModelUsage>,
}

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default, deserialize_with = "or_default")]
    id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    model: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    usage: Option<Usage>,
}

/// What an entry says; nothing for most of them.
pub(super) fn of_entry(agent_id: Option<&str>, entry: &str) -> Option<Said> {
    // Most entries are long, and say nothing of tokens.
    if !["\"assistant\"", "\"cost-state\"", "\"agent_metadata\""].iter().any(|word| entry.contains(word)) {
        return None;
    }
    let entry: Entry = serde_json::from_str(&mend(entry)).ok()?;
    let agent_id = entry.agent_id.or(agent_id.map(str::to_owned));
    match &*entry.kind {
        "assistant" => {
            let Answer { id, model, usage } = entry.message?;
            let tokens = TokenUsage::from(&usage?);
            let agent_type = entry.attribution;
            let agent = agent_id.map(|agent_id| AgentName {
                agent_id: Some(agent_id),
                agent_type,
                tool_use_id: None,
            });
            let message = (id?, model.unwrap_or_default(), tokens);
            (!tokens.is_nothing()).then_some(Said::Usage(SaidUsage { agent, message: Some(message) }))
        }
        AGENT_METADATA => {
            let (agent_type, tool_use_id) = (entry.agent_type, entry.tool_use_id);
            let agent = Some(AgentName { agent_id: Some(agent_id?), agent_type, tool_use_id });
            Some(Said::Usage(SaidUsage { agent, message: None }))
        }
        "cost-state" => {
            let models = entry.models.iter().map(|(name, model)| (name.clone(), model.into())).collect();
            Some(Said::CostState { began: entry.began, cost: entry.cost, models })
        }
        _ => None,
    }
}

#[derive(Deserialize)]
struct MirrorFrame<'a> {
    #[serde(rename = "filePath")]
    path: String,
    #[serde(borrow)]
    entries: Vec<&'a RawValue>,
}

/// What the entries of a `transcript_mirror` frame say of messages. The CLI's notes of the cost do not count: its results do.
pub(crate) fn of_mirror_frame(frame: &RawValue) -> Vec<SaidUsage> {
    let text = frame.get();
    if !text.contains("\"assistant\"") && !text.contains("\"agent_metadata\"") {
        return Vec::new();
    }
    let Ok(MirrorFrame { path, entries }) = serde_json::from_str(text) else { return Vec::new() };
    let agent = agent_of(&path);
    let said = entries.into_iter().filter_map(|entry| match of_entry(agent, entry.get())? {
        Said::Usage(said) => Some(said),
        Said::CostState { .. } => None,
    });
    said.collect()
}

/// The subagent whose transcript has this path.
fn agent_of(path: &str) -> Option<&str> {
    Path::new(path).file_stem()?.to_str()?.strip_prefix("agent-")
}
