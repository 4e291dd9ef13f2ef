//! What went wrong, in a sentence that says what the person can do.

use greenroom::report::InterruptedBy;
use greenroom::{Error, ErrorKind, Outcome};

/// Says why something failed, and what to do about it.
pub(crate) fn sentence(error: &Error) -> String {
    let advice = match error.kind() {
        ErrorKind::Unauthenticated => {
            "The CLI is not logged in: run `claude /login`, or set ANTHROPIC_API_KEY.".into()
        }
        ErrorKind::NoCredit => "The account has no credit left.".into(),
        ErrorKind::ContextFull => "The context is full: /compact makes room.".into(),
        ErrorKind::RateLimited | ErrorKind::Overloaded => match error.retry_after() {
            Some(time) => format!("Send it again in {} (arrow up).", words(time.as_secs())),
            None => "Send it again later (arrow up).".into(),
        },
        _ if error.is_retryable() => "Try again in a moment (arrow up).".into(),
        // The text of every other error says what to do.
        _ => return error.to_string(),
    };
    // The advice takes the place of the help in the text of the error, which is for programs.
    let text = error.to_string();
    let cause =
        error.help().map_or(text.as_str(), |help| text.split(&format!("; {help}")).next().unwrap_or(&text));
    format!("{advice} ({cause})")
}

/// Says how a turn ended, unless it was completed.
pub(crate) fn ending(outcome: &Outcome) -> Option<String> {
    Some(match outcome {
        Outcome::Completed { .. } | Outcome::Appended => return None,
        Outcome::Interrupted { by: InterruptedBy::User, .. } => "(interrupted)".into(),
        Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, .. } => {
            format!("The CLI ended: {cause}. It is started again; send the line again (arrow up).")
        }
        Outcome::Interrupted { by, .. } => format!("The turn was ended by {by}."),
        Outcome::Failed { error, .. } => sentence(error),
        Outcome::NotStarted { .. } => "The session ended before the line was sent.".into(),
        other => format!("{other:?}"),
    })
}

fn words(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds.div_ceil(60)),
        _ => format!("{} hours", seconds.div_ceil(3600)),
    }
}
