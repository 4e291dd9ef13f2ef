//! Decide in your program which tool calls run, change the permission rules, and answer questions of the model.
//!
//! Give [`SessionBuilder::can_use_tool`](crate::SessionBuilder::can_use_tool) a handler. The handler gets a
//! [`PermissionRequest`] for each call that no rule, no permission mode and no hook decided, and returns a
//! [`PermissionDecision`]:
//!
//! | the handler | the CLI gets |
//! |---|---|
//! | decides | the decision |
//! | returns [`PermissionDecision::undecided`] | the answer of [`SessionBuilder::on_inquiry`](crate::SessionBuilder::on_inquiry); a denial without it |
//! | returns an error, panics | a denial with the text |
//! | exceeds [`Timeouts::permission`](crate::options::Timeouts::permission) | a denial |
//! | is missing | the answer of `on_inquiry`; an error without it, which the CLI treats as a denial |

pub(crate) mod decision;
mod question;
pub(crate) mod request;
mod update;

pub use crate::plain::plain_text;

pub use decision::DecisionClassification;
pub(crate) use decision::{PermissionDecision, Understands, Wired};
pub use question::{Answers, Question, QuestionOption, Unanswered};
pub(crate) use request::PermissionRequest;
pub use request::{MatchedAskRule, McpServerProvenance};
pub use update::{PermissionBehavior, PermissionDestination, PermissionRule, PermissionUpdate};
