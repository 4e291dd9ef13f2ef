//! Questions that sessions ask people, and the answers.
//!
//! A profile's own handlers decide first. What they leave open becomes a question:
//! [`Fleet::questions`](crate::Fleet::questions) lists it, and [`Fleet::answer`](crate::Fleet::answer) decides it.

mod answer;
mod question;

pub use answer::{AnswerError, DecidedBy, QuestionAnswer};
pub(crate) use answer::{StoredAnswer, misfit};
pub use question::{PendingQuestion, QuestionQuery};
