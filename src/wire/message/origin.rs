//! Who a message comes from.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::view::{loose, view};

/// Who or what a message or a turn comes from (`origin`, told apart by its `kind`).
///
/// Only [`Human`](Origin::Human) is a person; a kind that is not known is not.
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
#[non_exhaustive]
pub enum Origin {
    /// A person (`human`).
    Human,
    /// A channel of an MCP server (`channel`).
    #[non_exhaustive]
    Channel {
        /// The server.
        server: String,
    },
    /// Another session, or an agent in this one (`peer`).
    Peer(Box<PeerOrigin>),
    /// A background task that has news, or a scheduled one (`task-notification`).
    TaskNotification(Box<TaskOrigin>),
    /// The session that coordinates this one (`coordinator`).
    Coordinator,
    /// The CLI does not say (`unclassified`). CLI 2.1.328 was seen to give it to a turn whose prompt was marked as
    /// synthetic.
    Unclassified,
    /// One who watches the session (`observer`).
    #[non_exhaustive]
    Observer {
        /// Who it is.
        from: String,
        /// Its task.
        sender_task_id: String,
    },
    /// The CLI goes on by itself (`auto-continuation`).
    AutoContinuation,
    /// What one who watches does (`observer-activity`).
    ObserverActivity,
    /// A kind that this library does not know, or one whose fields are not as expected; as it came.
    Other(Value),
}

view! {
    /// Another session, or an agent, that a message comes from.
    part PeerOrigin: r#"{"from": "session-2", "name": "Review"}"# => r#"view.from == "session-2""# {
        /// Its address. The sender writes it, so it proves nothing.
        from: String,
        /// Whether it runs tools without asking (`bypass`) or not (`prompting`), as its host says.
        from_mode: Option<String> = "fromMode",
        /// Its name, for people.
        name: Option<String>,
        /// The id of its session at its host.
        from_session: Option<String> = "fromSession",
        /// The task, if it is a subagent in the background of this session.
        sender_task_id: Option<String> = "senderTaskId",
        /// What it says, without what is written around it for the model.
        body: Option<String>,
        /// The process that delivered it, as the kernel says.
        verified_peer_pid: Option<u64> = "verifiedPeerPid",
    }

    /// A background task that a message or a turn comes from.
    part TaskOrigin: r#"{"kind": "task-notification", "producer": "session-task"}"#
        => r#"view.producer.as_deref() == Some("session-task")"#
    {
        /// What kind of delivery it is: `scheduled-trigger`, `peer-send-message`, `projects-relay`,
        /// `session-inbox`; an open set.
        subkind: Option<String>,
        /// Why a scheduled task ran, as a word: `scheduled`, `manual`, `retry` and others.
        fire_reason: Option<String> = "fireReason",
        /// The run that the messages about the task name.
        run_id: Option<String> = "runId",
        /// What made it, such as `session-task` (seen with CLI 2.1.328).
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

    /// Whether it is a person.
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
            let fields: Fields = serde_json::from_str(raw.get()).ok()?;
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

loose!(Origin);
