//! The sender of a message.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::lenient::{by_json, read_object};
use crate::wire::objects::objects;

/// The sender of a message, or the cause of a turn (`origin`, told apart by its `kind`).
///
/// Only [`Human`](Origin::Human) is a person; an unknown kind is not.
///
/// ```
/// use greenroom::message::Origin;
///
/// let origin: Origin = serde_json::from_str(r#"{"kind": "task-notification", "runId": "r1"}"#)?;
/// assert!(!origin.is_human() && origin.kind() == "task-notification");
/// let Origin::TaskNotification(task) = origin else { unreachable!() };
/// assert_eq!(task.run_id.as_deref(), Some("r1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub enum Origin {
    /// A person (`human`).
    Human,
    /// A channel of an MCP server (`channel`).
    #[non_exhaustive]
    Channel { server: String },
    /// Another session, or an agent of this session (`peer`).
    Peer(Box<PeerOrigin>),
    /// A background task with news, or a scheduled task (`task-notification`).
    TaskNotification(Box<TaskOrigin>),
    /// The session that coordinates this session (`coordinator`).
    Coordinator,
    /// The CLI does not say (`unclassified`); CLI 2.1.328 does so for a turn whose prompt was marked as synthetic.
    Unclassified,
    /// A process that observes the session (`observer`).
    #[non_exhaustive]
    Observer { from: String, sender_task_id: String },
    /// The CLI continues without being asked (`auto-continuation`).
    AutoContinuation,
    /// Activity of an observer (`observer-activity`).
    ObserverActivity,
    /// An unknown kind, or fields of an unexpected shape, unchanged.
    Other(Value),
}

objects! {
    /// Another session, or an agent, as the sender of a message.
    part PeerOrigin {
        /// The sender's address. The sender writes it, so it proves nothing.
        from: String,
        /// `bypass` if the sender runs tools without asking, else `prompting`; its host says so.
        from_mode: Option<String> = "fromMode",
        /// The sender's name, for people.
        name: Option<String>,
        /// The sender's session at its host.
        from_session: Option<String> = "fromSession",
        /// The task, if the sender is a background subagent of this session.
        sender_task_id: Option<String> = "senderTaskId",
        /// The text, without what is wrapped around it for the model.
        body: Option<String>,
        /// The process that delivered the message, as the kernel reports it.
        verified_peer_pid: Option<u64> = "verifiedPeerPid",
    }

    /// A background task as the origin of a message or a turn.
    part TaskOrigin {
        /// `scheduled-trigger`, `peer-send-message`, `projects-relay`, `session-inbox`; an open set.
        subkind: Option<String>,
        /// Why a scheduled task ran: `scheduled`, `manual`, `retry` and others.
        fire_reason: Option<String> = "fireReason",
        /// The run, as in the messages about the task.
        run_id: Option<String> = "runId",
        /// The component that made the message, such as `session-task` (seen with CLI 2.1.328).
        producer: Option<String>,
    }
}

impl Origin {
    /// The `kind`; empty if there is none.
    pub fn kind(&self) -> &str {
        match self {
            Origin::Human => "human",
            Origin::Channel { .. } => "channel",
            Origin::Peer(_) => "peer",
            Origin::TaskNotification(_) => "task-notification",
            Origin::Coordinator => "coordinator",
            Origin::Unclassified => "unclassified",
            Origin::Observer { .. } => "observer",
            Origin::AutoContinuation => "auto-continuation",
            Origin::ObserverActivity => "observer-activity",
            Origin::Other(value) => value.get("kind").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// Whether the sender is a person.
    pub fn is_human(&self) -> bool {
        matches!(self, Origin::Human)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Fields {
            kind: Option<String>,
            server: Option<String>,
            from: Option<String>,
            #[serde(rename = "senderTaskId")]
            sender_task_id: Option<String>,
        }
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let read = || {
            let fields: Fields = read_object(raw.get()).ok()?;
            Some(match fields.kind.as_deref()? {
                "human" => Origin::Human,
                "channel" => Origin::Channel { server: fields.server? },
                "peer" => Origin::Peer(serde_json::from_str(raw.get()).ok()?),
                "task-notification" => Origin::TaskNotification(serde_json::from_str(raw.get()).ok()?),
                "coordinator" => Origin::Coordinator,
                "unclassified" => Origin::Unclassified,
                "observer" => Origin::Observer { from: fields.from?, sender_task_id: fields.sender_task_id? },
                "auto-continuation" => Origin::AutoContinuation,
                "observer-activity" => Origin::ObserverActivity,
                _ => return None,
            })
        };
        match read() {
            Some(origin) => Ok(origin),
            None => serde_json::from_str(raw.get()).map(Origin::Other).map_err(de::Error::custom),
        }
    }
}

by_json!(Origin);
