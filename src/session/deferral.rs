//! Leave a question open while no CLI runs, and go on with it later.

use super::builder::SessionBuilder;
use super::handle::Session;
use crate::Turn;
use crate::actor::messages::conversation::{ConversationMessage, Deferral};
use crate::actor::request::pending::RequestKind;
use crate::actor::resume::call::open_call;
use crate::callback::CallbackContext;
use crate::error::{Error, ErrorKind, Result};
use crate::report::DeferredCall;

impl Session {
    /// Defers a question about a tool call: the question stays open, and the session ends. For questions that a person
    /// may answer in minutes or in weeks: nothing of the session is left meanwhile, not even its process.
    ///
    /// Call this with the context of the handler that was asked, from the handler or beside it. The running turn ends
    /// as [`Outcome::Deferred`](crate::Outcome::Deferred), with the call that this returns. The handler is
    /// cancelled, and what it returns is ignored. When the decision is there, start a session that [resumes the call](SessionBuilder::resume_call).
    ///
    /// What can be deferred, as seen with CLI 2.1.330:
    ///
    /// | question | |
    /// |---|---|
    /// | a permission for any tool, of the main thread | yes |
    /// | questions of the model to the user (`AskUserQuestion`) | yes |
    /// | a second question of a turn that was deferred before | yes |
    /// | a permission for a tool that a subagent calls | no: the subagent would be lost |
    /// | an elicitation, a dialog, a hook | no: the CLI does not ask again |
    /// | any, while another request of the CLI is open or a background task runs | no: they would be lost |
    ///
    /// Other calls of the same message that have no result do not get one later: the model reads that they may have run. Built-in
    /// tools that only read may run beside a question, and are lost.
    ///
    /// # Errors
    /// [`NotDeferrable`](ErrorKind::NotDeferrable) with the reason: nothing has changed, and the handler is still asked.
    /// [`Stopped`](ErrorKind::Stopped) or [`SessionFailed`](ErrorKind::SessionFailed) if the session has ended.
    pub async fn defer(&self, question: &CallbackContext) -> Result<DeferredCall> {
        let refused = |why: &str| Error::new(ErrorKind::NotDeferrable, why);
        let shared = self.shared();
        let open = || {
            let pending = shared.ledger.get(question.request_id());
            pending.ok_or_else(|| refused("the question is not open in this session"))
        };
        let pending = open()?;
        let tool_use_id = match (pending.kind, question.tool_use_id()) {
            (RequestKind::Permission, Some(id)) => id,
            _ => return Err(refused("only a question about a tool call can be deferred")),
        };
        if question.agent_id().is_some() {
            return Err(refused("a subagent asks, which would be lost"));
        }
        if shared.options().persist_session == Some(false) {
            return Err(refused("the conversation is not written down (`persist_session`)"));
        }
        let session_id =
            self.session_id().ok_or_else(|| refused("the CLI has not named the conversation yet"))?;
        let call = open_call(shared, &session_id, tool_use_id).await?;
        // An older CLI does not tell it.
        let usage =
            self.requests().usage(false).await.ok().map(|report| Box::new(report.into_inner().session));
        let call = DeferredCall::new(session_id, tool_use_id, call.name, call.input);
        let deferral = Box::new(Deferral { question: open()?, call: call.clone(), usage });
        self.ask_conversation(|reply| ConversationMessage::Defer { deferral, reply }).await??;
        Ok(call)
    }

    /// Gives the session's store all entries that the CLI has reported so far, and returns when the store has taken or refused
    /// them. Does nothing without a store, which gets entries in batches otherwise.
    ///
    /// A host that may be killed while a question is open calls this a second after the question: CLI 2.1.330 reports a call
    /// some 100 ms after it asks about it. Another host can [resume the call](SessionBuilder::resume_call) then.
    pub async fn flush_store(&self) {
        if let Some(mirror) = self.shared().mirror() {
            mirror.flushed().await;
        }
    }

    /// The turn that goes on, in a session that [resumes a call](SessionBuilder::resume_call). `None` in other sessions, and
    /// after the first call.
    ///
    /// # Errors
    /// [`Stopped`](ErrorKind::Stopped) or [`SessionFailed`](ErrorKind::SessionFailed) if the session has ended.
    pub async fn resumed_turn(&self) -> Result<Option<Turn>> {
        self.ask_conversation(ConversationMessage::ResumedTurn).await
    }
}

impl SessionBuilder {
    /// Goes on with a deferred call, in its conversation: the CLI asks for the call again under the same id, and the
    /// session's handlers decide on it. The model is not asked before the call has run or was denied. Hooks for the call
    /// run again.
    ///
    /// Take the turn from [`Session::resumed_turn`]; prompts wait until it has ended. The decision may change the arguments. If
    /// the tool is not there any more, the turn ends with the terminal reason
    /// [`ToolDeferredUnavailable`](crate::message::TerminalReason::ToolDeferredUnavailable).
    ///
    /// The call need not come from [`Session::defer`]: a host that was killed while the question was open can go on with a call
    /// that it [names itself](DeferredCall::new), if the CLI had written the call down.
    ///
    /// A session whose CLI ends before this turn does fails, and starts no other CLI: the call may have run. Do the same: resume a call
    /// again only if you know that nobody has allowed it. A session that resumes the conversation without its call gives the call a
    /// result, which says that it may have run.
    ///
    /// The call is written to the transcript as deferred, on disk or in the store, as CLI 2.1.330 does for a hook that defers.
    /// Excludes `continue_conversation`, `fork_session`, `session_id`, and another conversation in `resume` or `conversation`.
    pub fn resume_call(mut self, call: DeferredCall) -> Self {
        self.resumed_call = Some(call);
        self
    }

    /// Has the options resume the conversation of the call.
    pub(super) fn resume_of_call(&mut self) -> Result<()> {
        let Some(call) = &self.resumed_call else { return Ok(()) };
        let options = &mut self.options;
        let named = options.resume.as_ref().or(options.conversation.as_ref());
        let is_other = named.is_some_and(|id| !id.eq_ignore_ascii_case(&call.session_id));
        if is_other || options.continue_conversation || options.fork_session || options.session_id.is_some() {
            return Err(Error::invalid_option("`resume_call` resumes the conversation of the call, and the options name another one")
                .with_help("leave `resume`, `conversation`, `continue_conversation`, `fork_session` and `session_id` out"));
        }
        if named.is_none() {
            options.resume = Some(call.session_id.clone());
        }
        Ok(())
    }
}
