//! Give a session what the application shares with it: data, and a watchdog.

use super::builder::SessionBuilder;
use crate::guardian::Watchdog;

impl SessionBuilder {
    /// Gives the session a value of the application, such as its user or its tenant, so that definitions of tools and
    /// handlers can be shared by many sessions. Tools, resources, hooks, permission handlers and
    /// factories of states find it by its type, with `cx.data::<T>()`.
    ///
    /// A second value of the same type replaces the first: give each kind of data a type of its own. The value is
    /// shared, not cloned, also by the clones of a builder. It is dropped when the session has ended and nobody holds
    /// the builder, a `Session` or a context any more.
    ///
    /// ```
    /// use greenroom::{NoArgs, Session, ToolContext, ToolServer};
    ///
    /// struct User { name: String }
    ///
    /// let account = ToolServer::new("account", "1.0.0")
    ///     .tool("whoami", "Who is asking", async |_: NoArgs, cx: ToolContext| {
    ///         Ok::<_, greenroom::Error>(cx.data::<User>()?.name.clone())
    ///     });
    /// let everybody = Session::builder().mcp_server(account).allow_server_tools("account");
    /// let ada = everybody.clone().data(User { name: "ada".into() });
    /// let bob = everybody.data(User { name: "bob".into() });
    /// # let _ = (ada, bob);
    /// ```
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Ends the session's CLI when the deadline of a watchdog passes. Until the deadline is extended, no CLI starts, and requests
    /// that the CLI has left behind are refused: no tool, hook or permission handler begins. Without the call there is no deadline.
    ///
    /// No CLI starts either if the guardian does not run, or if it could not find what the CLI starts: with
    /// [`Containment::Group`](crate::options::Containment::Group), or where [`Containment::Auto`](crate::options::Containment::Auto)
    /// has no other way.
    ///
    /// Only [`ChildProcess`](crate::transport::ChildProcess) knows watchdogs. A transport of your own finds it in
    /// [`Command::watchdog`](crate::transport::Command::watchdog).
    pub fn watchdog(mut self, watchdog: &Watchdog) -> Self {
        self.watchdog = Some(watchdog.clone());
        self
    }
}
