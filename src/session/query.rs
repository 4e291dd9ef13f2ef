//! One prompt and nothing else.

use super::{Prompt, SessionBuilder};
use crate::actor::turn::Turn;
use crate::error::Result;

/// Asks one thing: starts a session, sends the prompt, and stops the session when the run is over. The simplest
/// case; for a second prompt, use a [`Session`](crate::Session).
///
/// The CLI's stdin stays open until the run is over, not just until the first result: background tasks may still
/// call tools. Read the turn to its [`outcome`](Turn::outcome), which waits for that; dropping it ends the CLI.
///
/// ```no_run
/// # async fn example() -> greenroom::Result<()> {
/// let mut turn = greenroom::query("What is 5 + 3?", greenroom::Options::new()).await?;
/// println!("{:?}", turn.outcome().await?.text());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`SessionBuilder::start`] and of [`Session::prompt`](crate::Session::prompt).
pub async fn query(prompt: impl Into<Prompt>, options: impl Into<SessionBuilder>) -> Result<Turn> {
    let session = options.into().start().await?;
    let turn = session.prompt(prompt).await?;
    Ok(turn.owning(session))
}
