//! Interrupts, withdrawn prompts, background tasks, MCP servers.

use serde_json::json;

use super::{RequestBody, Requests};
use crate::actor::messages::conversation::ConversationMessage;
use crate::error::Result;
use crate::requests::{Backgrounded, CancelledMessage, InterruptReceipt, McpResource, McpStatus, Reply};
use crate::session::Session;

impl Session {
    /// Interrupts the CLI, like the escape key. Returns when the CLI has acknowledged; soon after, the running turn
    /// ends with [`Outcome::Interrupted`](crate::Outcome::Interrupted), and handlers of its tool calls are cancelled.
    /// Waiting prompts stay, and the receipt names them. Without a running turn, this interrupts work that the CLI
    /// started itself, such as a turn for a background task.
    ///
    /// Dropping the future does not withdraw the interrupt.
    ///
    /// # Errors
    /// Those of [`control`](crate::session::Requests::control), but succeeds while there is neither a turn nor a CLI.
    pub async fn interrupt(&self) -> Result<Reply<InterruptReceipt>> {
        self.send_interrupt(false).await
    }

    /// Interrupts the CLI and cancels all waiting prompts: prompts that were not sent end at once with
    /// [`Outcome::NotStarted`](crate::Outcome::NotStarted), and the CLI drops its own queue. The receipt names both.
    ///
    /// # Errors
    /// Besides those of [`interrupt`](Session::interrupt): [`Unsupported`](crate::ErrorKind::Unsupported), with nothing
    /// done, if the CLI is known to lack `interrupt_cancel_queued_v1`.
    pub async fn interrupt_cancel_queued(&self) -> Result<Reply<InterruptReceipt>> {
        self.require("interrupt_cancel_queued_v1", "an interrupt that cancels what is queued")?;
        self.send_interrupt(true).await
    }

    async fn send_interrupt(&self, cancel_queued: bool) -> Result<Reply<InterruptReceipt>> {
        let limit = self.limit.unwrap_or(self.shared().options().timeouts.control_request);
        self.ask_conversation(|reply| ConversationMessage::Interrupt { cancel_queued, limit, reply }).await?
    }

    /// Withdraws a waiting prompt, named by its [uuid](crate::Turn::prompt_uuid): its turn ends with
    /// [`Outcome::NotStarted`](crate::Outcome::NotStarted). A prompt in the session's own queue needs no request; for
    /// any other uuid the CLI is asked. A prompt that was started keeps running.
    pub async fn cancel_async_message(&self, message_uuid: &str) -> Result<Reply<CancelledMessage>> {
        let uuid = message_uuid.to_owned();
        if self.ask_conversation(|reply| ConversationMessage::TakeBack { uuid, reply }).await? {
            return Reply::of(json!({ "cancelled": true }));
        }
        self.request(RequestBody::new("cancel_async_message").with("message_uuid", message_uuid)).await
    }

    /// Stops a background task. A message reports the end of the task. CLI 2.1.328 also acknowledges unknown tasks.
    pub async fn stop_task(&self, task_id: &str) -> Result<()> {
        self.acknowledged(RequestBody::new("stop_task").with("task_id", task_id)).await
    }

    /// State of the MCP servers, including in-process servers.
    pub async fn mcp_status(&self) -> Result<Reply<McpStatus>> {
        self.request(RequestBody::new("mcp_status")).await
    }

    /// Reconnects an MCP server, named as in [`mcp_status`](Session::mcp_status).
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` if the server is unreachable, and for in-process
    /// servers, which the CLI does not connect to.
    pub async fn mcp_reconnect(&self, server: &str) -> Result<()> {
        self.acknowledged(RequestBody::new("mcp_reconnect").with("serverName", server)).await
    }

    /// Switches an MCP server on or off. CLI 2.1.328 stores the choice for the project, so it also applies to the next
    /// incarnation and to other sessions of the project.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for an unknown server.
    pub async fn mcp_toggle(&self, server: &str, enabled: bool) -> Result<()> {
        let body = RequestBody::new("mcp_toggle").with("serverName", server);
        self.acknowledged(body.with("enabled", enabled)).await
    }
}

impl Requests<'_> {
    /// Moves all shells and subagents that the turn waits for into the background: their tool calls return at once, the
    /// turn goes on, and messages report when the tasks end.
    pub async fn background_tasks(self) -> Result<Reply<Backgrounded>> {
        self.session.request(RequestBody::new("background_tasks")).await
    }

    /// Moves the task of one tool call into the background (`background_tasks` with a `tool_use_id`).
    pub async fn background_task(self, tool_use_id: &str) -> Result<Reply<Backgrounded>> {
        self.session.request(RequestBody::new("background_tasks").with("tool_use_id", tool_use_id)).await
    }

    /// Reads a user interface resource (`ui://`) of an MCP server, for an application that displays it.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for other addresses, for servers that are not
    /// connected, and for in-process servers; [`Unsupported`](crate::ErrorKind::Unsupported), with nothing sent, if the
    /// CLI is known to lack `mcp_read_resource_v1`.
    pub async fn mcp_read_resource(self, server: &str, uri: &str) -> Result<Reply<McpResource>> {
        self.session.require("mcp_read_resource_v1", "`mcp_read_resource`")?;
        self.session
            .request(RequestBody::new("mcp_read_resource").with("serverName", server).with("uri", uri))
            .await
    }
}
