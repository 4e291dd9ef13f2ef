//! Give a session handlers for what a person may decide: one for each kind of question, or one for all.

use super::builder::SessionBuilder;
use crate::control::inquiry::{Inquiry, InquiryAnswer};
use crate::control::permission::{Answers, Question};
use crate::control::{
    CallbackContext, ElicitationAnswer, ElicitationRequest, IntoReply, PermissionDecision, PermissionRequest,
    erase,
};

/// Declares a method that takes a handler for one kind of question.
macro_rules! handler {
    ($(#[$doc:meta])* $name:ident, $field:ident: $request:ty => $answer:ty) => {
        $(#[$doc])*
        pub fn $name<Fut>(mut self, handler: impl Fn($request, CallbackContext) -> Fut + Send + Sync + 'static) -> Self
        where
            Fut: Future<Output: IntoReply<$answer>> + Send + 'static,
        {
            self.handlers.$field = Some(erase(handler));
            self
        }
    };
}

impl SessionBuilder {
    handler! {
        /// Decides on tool calls that no rule allows. Without a handler the CLI's permission mode decides, and denies where
        /// it would ask. A handler that fails denies.
        ///
        /// Rust rejects an `async move |…|` closure here that uses a captured value. Write a plain closure with clones, as
        /// for every other handler: `move |request, _cx| { let pool = pool.clone(); async move { … } }`.
        ///
        /// ```
        /// use greenroom::{PermissionDecision, Session};
        ///
        /// let builder = Session::builder().can_use_tool(|request, _cx| async move {
        ///     if request.tool_name == "Read" { PermissionDecision::allow() } else { PermissionDecision::deny("read only") }
        /// });
        /// # let _ = builder;
        /// ```
        can_use_tool, permission: PermissionRequest => PermissionDecision
    }

    handler! {
        /// Answers questions that the model asks the user with its tool `AskUserQuestion`. The handler of
        /// [`can_use_tool`](SessionBuilder::can_use_tool) does not get these questions; without that handler and without
        /// [`on_inquiry`](SessionBuilder::on_inquiry), every other request for permission is denied. A handler that fails
        /// denies the question, with the text of its error.
        ///
        /// ```
        /// use greenroom::{Session, permission::Answers};
        ///
        /// // Choose the first option of each question.
        /// let builder = Session::builder().on_question(async |questions, _cx| {
        ///     questions.into_iter().fold(Answers::new(), |answers, question| {
        ///         match question.options.first() {
        ///             Some(first) => answers.answer(question.question, first.label.as_str()),
        ///             None => answers,
        ///         }
        ///     })
        /// });
        /// # let _ = builder;
        /// ```
        on_question, question: Vec<Question> => Answers
    }

    handler! {
        /// Answers elicitations of MCP servers that the CLI connects to. Without a handler they are declined. A handler
        /// that fails cancels the elicitation.
        on_elicitation, elicitation: ElicitationRequest => ElicitationAnswer
    }

    handler! {
        /// Asks a person: gets everything that the other handlers leave open, in one type.
        ///
        /// | request | its own handler decides first | the inquiry handler gets it |
        /// |---|---|---|
        /// | a tool call that no rule decides | [`can_use_tool`](SessionBuilder::can_use_tool) | without that handler, or if it returns [`PermissionDecision::undecided`](crate::PermissionDecision::undecided) |
        /// | questions of the model | [`on_question`](SessionBuilder::on_question), or else `can_use_tool` | without both handlers, or if `can_use_tool` leaves them undecided |
        /// | an elicitation | [`on_elicitation`](SessionBuilder::on_elicitation) | without that handler, or if it returns [`ElicitationAnswer::Undecided`](crate::callback::ElicitationAnswer::Undecided) |
        /// | a dialog | [`on_dialog`](SessionBuilder::on_dialog) | if [`inquiry_dialogs`](SessionBuilder::inquiry_dialogs) names its kind, and `on_dialog` does not or returns [`DialogAnswer::Undecided`](crate::callback::DialogAnswer::Undecided) |
        ///
        /// So a handler that is added here overrides no decision of a session that somebody else has defined. With
        /// [`Options::permission_prompt_tool_name`](crate::Options::permission_prompt_tool_name) the CLI asks that tool about
        /// tool calls, and not this handler.
        ///
        /// A handler that fails, and an answer that does not fit the inquiry, deny: see
        /// [`IntoReply`](crate::callback::IntoReply). Many requests can wait at the same time.
        /// [`CallbackContext::cancelled`] resolves when nobody waits for the answer any more: the turn was interrupted, the
        /// CLI has ended, or [`Timeouts::permission`](crate::options::Timeouts::permission) has passed, which counts from
        /// the request on, also while its own handler decides. A second call replaces the handler.
        ///
        /// ```
        /// use greenroom::callback::{CallbackContext, Inquiry, InquiryAnswer};
        /// use greenroom::{PermissionDecision, Session};
        ///
        /// /// Shows the JSON on a page, and returns the answer of the person.
        /// async fn on_the_page(inquiry: String) -> String {
        ///     println!("{inquiry}");
        ///     r#"{"kind":"denied","message":"not today"}"#.to_owned()
        /// }
        ///
        /// let builder = Session::builder()
        ///     // The policy first: it knows the reading tools.
        ///     .can_use_tool(async |request, _cx| match request.tool_name.as_str() {
        ///         "Read" | "Grep" => PermissionDecision::allow(),
        ///         _ => PermissionDecision::undecided(),
        ///     })
        ///     .on_inquiry(async |inquiry: Inquiry, cx: CallbackContext| {
        ///         let page = on_the_page(serde_json::to_string(&inquiry)?);
        ///         tokio::select! {
        ///             answer = page => serde_json::from_str(&answer),
        ///             () = cx.cancelled() => Ok(InquiryAnswer::Dismissed),
        ///         }
        ///     });
        /// # let _ = builder;
        /// ```
        on_inquiry, inquiry: Inquiry => InquiryAnswer
    }

    /// Names the kinds of dialogs that the handler of [`on_inquiry`](SessionBuilder::on_inquiry) answers, besides those
    /// of [`on_dialog`](SessionBuilder::on_dialog). The CLI is told the kinds and asks for no other. Default: none. Has
    /// no effect without an inquiry handler.
    pub fn inquiry_dialogs<K: Into<String>>(mut self, kinds: impl IntoIterator<Item = K>) -> Self {
        self.handlers.inquiry_dialogs = kinds.into_iter().map(Into::into).collect();
        self
    }
}
