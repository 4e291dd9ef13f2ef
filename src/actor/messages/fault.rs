//! Parts of a session that a test can break.

use serde::{Deserialize, Serialize};

/// A part of a session to break with [`Session::inject`](crate::Session::inject). Each variant says what follows.
///
/// ```
/// use greenroom::testing::Fault;
///
/// fn hurt(session: &greenroom::Session) {
///     session.inject(Fault::PanicRouter);
///     session.inject(Fault::KillServer("calc".into()));
/// }
/// # let _ = hurt;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// The control router's actor panics: the session's open requests to the CLI fail, and it restarts.
    PanicRouter,
    /// The callbacks' actor panics: its open requests are answered with an error, and it restarts.
    PanicCallbacks,
    /// The conversation's actor panics: the session fails.
    PanicConversation,
    /// The port's actor panics: the CLI is killed and the next incarnation resumes.
    PanicPort,
    /// The port's actor is killed: the CLI is killed and the next incarnation resumes.
    KillPort,
    /// The actor of this tool server panics: its calls are answered with an error, and it restarts.
    PanicServer(String),
    /// The actor of this tool server is killed: its calls are answered with an error, and it restarts.
    KillServer(String),
    /// The supervisor is killed: the session and its CLI end at once.
    KillSupervisor,
}
