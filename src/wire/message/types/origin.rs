//! The sender of a message.

use crate::wire::objects::objects;

objects! {
    /// The sender of a message, or the cause of a turn (`origin`). A field is set for the kinds that have it.
    ///
    /// Only [a human](Self::is_human) is a person; an unknown kind is not.
    ///
    /// ```
    /// use greenroom::message::Origin;
    ///
    /// let origin: Origin = serde_json::from_str(r#"{"kind": "task-notification", "runId": "r1"}"#)?;
    /// assert!(!origin.is_human() && origin.kind == "task-notification");
    /// assert_eq!(origin.run_id.as_deref(), Some("r1"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    part Origin {
        /// `human`: a person. `channel`: a channel of an MCP server. `peer`: another session, or an agent of this
        /// session. `task-notification`: a background task with news, or a scheduled task. `coordinator`: the session
        /// that coordinates this session. `observer`, `observer-activity`: a process that observes the session, and its
        /// activity. `auto-continuation`: the CLI continues without being asked. `unclassified`: the CLI does not say,
        /// as CLI 2.1.328 of a turn whose prompt was marked as synthetic. An open set; empty if there is none.
        kind: String,
        /// The MCP server of a channel.
        server: Option<String>,
        /// The address of a peer or an observer. The sender writes it, so it proves nothing.
        from: Option<String>,
        /// `bypass` if the peer runs tools without asking, else `prompting`; its host says so.
        from_mode: Option<String> = "fromMode",
        /// The peer's name, for people.
        name: Option<String>,
        /// The peer's session at its host.
        from_session: Option<String> = "fromSession",
        /// The task, if the sender is a background subagent of this session.
        sender_task_id: Option<String> = "senderTaskId",
        /// The peer's text, without what is wrapped around it for the model.
        body: Option<String>,
        /// The process that delivered the peer's message, as the kernel reports it.
        verified_peer_pid: Option<u64> = "verifiedPeerPid",
        /// Of a task: `scheduled-trigger`, `peer-send-message`, `projects-relay`, `session-inbox`; an open set.
        subkind: Option<String>,
        /// Why a scheduled task ran: `scheduled`, `manual`, `retry` and others.
        fire_reason: Option<String> = "fireReason",
        /// The run of a task, as in the messages about the task.
        run_id: Option<String> = "runId",
    }
}

impl Origin {
    /// Whether the sender is a person.
    pub fn is_human(&self) -> bool {
        self.kind == "human"
    }
}
