//! Ask a single prompt.

use super::SessionBuilder;
use crate::actor::turn::Turn;
use crate::error::Result;
use crate::prompt::Prompt;

/// Asks a single prompt: starts a session, sends the prompt, and stops the session when the run is over. For more
/// prompts, use a [`Session`](crate::Session).
///
/// Call [`outcome`](Turn::outcome) on the turn: it waits for the end of the run, because background tasks may call
/// tools after the first result. Dropping the turn ends the CLI, unlike dropping a turn of a session: see [`Turn`].
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
/// The errors of [`SessionBuilder::start`] and [`Session::prompt`](crate::Session::prompt).
pub async fn query(prompt: impl Into<Prompt>, options: impl Into<SessionBuilder>) -> Result<Turn> {
    let session = options.into().start().await?;
    let turn = session.prompt(prompt).await?;
    Ok(turn.owned_by(move || {
        let session = session.clone();
        Box::pin(async move {
            session.wait_idle().await;
            if let Err(error) = session.stop().await {
                // The session failed after the turn, whose outcome stands.
                tracing::warn!(%error, "a one-shot session did not stop in order");
            }
        })
    }))
}
