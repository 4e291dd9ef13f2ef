//! Breaking a part of a session on purpose.

use serde::{Deserialize, Serialize};

/// A part of a session to break, with [`Session::inject`](crate::Session::inject). What should come of it stands
/// beside it.
///
/// ```
/// use greenroom::testkit::Fault;
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
    /// The control router's actor panics: what it owes is answered with an error, and it restarts.
    PanicRouter,
    /// The callbacks' actor panics: what they owe is answered with an error, and they restart.
    PanicCallbacks,
    /// The conversation's actor panics: the session fails.
    PanicConversation,
    /// The port's actor panics: the CLI is killed and the next incarnation resumes.
    PanicPort,
    /// The port's actor is killed: the same.
    KillPort,
    /// The actor of this tool server panics: its calls are answered with an error, and it restarts.
    PanicServer(String),
    /// The actor of this tool server is killed: the same.
    KillServer(String),
    /// The supervisor is killed: everything goes, the CLI too.
    KillSupervisor,
}
