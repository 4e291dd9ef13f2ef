//! Causes for which sessions do not run, and whose fault they are.

use std::error::Error as StdError;
use std::io;

use greenroom::ErrorKind;
use greenroom::message::ResultMessage;
use serde::{Deserialize, Serialize};

/// A cause for which sessions cannot run, and that is no fault of a single session. Such a cause quarantines no name.
///
/// | cause | holds back |
/// |---|---|
/// | `DiskFull`, `NoMemory`, `GuardianLost` | the sessions of the node |
/// | `CliMissing`, `ProfileUnfit` | the sessions of the profile, which chooses the CLI and the options |
/// | `KeyRejected`, `NoCredit`, `RateLimited`, `Overloaded` | the sessions of the [credential](crate::Credential), on all nodes |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The disk of the sessions' folders, or of temporary files, is full or can only be read, or this process may not write there.
    #[error("the disk for the files of the sessions takes no more")]
    DiskFull,
    /// The system has no memory, process, thread or open file left to start a CLI.
    #[error("the system has no room for another process")]
    NoMemory,
    /// The guardian does not run or does not answer, and sessions start under its watchdog.
    #[error("the guardian is lost")]
    GuardianLost,
    /// The CLI that the profile names is missing, cannot be executed, is too old, or does not speak the protocol.
    #[error("the CLI is missing or does not run")]
    CliMissing,
    /// The profile returns a session that does not fit the settings of the fleet.
    #[error("the profile does not fit the fleet")]
    ProfileUnfit,
    /// The CLI is not logged in, or the API rejects its login or its key.
    #[error("the login or the key is rejected")]
    KeyRejected,
    /// The account has no credit left, or a payment failed.
    #[error("the account of the key has no credit")]
    NoCredit,
    /// The API rejects prompts for now: too many requests, or the quota is used up.
    #[error("the rate limit of the key is reached")]
    RateLimited,
    /// The API is overloaded or fails.
    #[error("the API is overloaded")]
    Overloaded,
}

impl Cause {
    /// The cause of a session's error. `None`: it may be the session's own.
    pub(crate) fn of_session(error: &greenroom::Error) -> Option<Self> {
        match error.kind() {
            ErrorKind::CliNotFound
            | ErrorKind::CliNotExecutable
            | ErrorKind::CliTooOld
            | ErrorKind::NotTheProtocol => Some(Self::CliMissing),
            ErrorKind::NoResources => Some(Self::NoMemory),
            ErrorKind::NoGuardian => Some(Self::GuardianLost),
            ErrorKind::Unauthenticated => Some(Self::KeyRejected),
            _ => Self::of_io(error),
        }
    }

    /// The cause for which the API has rejected a turn that ended with this error. `None`: the cause is the turn's own.
    /// A 403 rejects the prompt, unless it names the login: a firewall before the API may refuse a text, or the API a model.
    pub(crate) fn of_turn(error: &greenroom::Error, result: Option<&ResultMessage>) -> Option<Self> {
        let forbidden = result.filter(|result| result.api_error_status == Some(403));
        let names_login = |result: &ResultMessage| {
            let text = result.error_text().unwrap_or_default().to_lowercase();
            text.contains("authentication_error") || text.contains("oauth")
        };
        match error.kind() {
            ErrorKind::Unauthenticated if forbidden.is_some_and(|result| !names_login(result)) => None,
            ErrorKind::Unauthenticated => Some(Self::KeyRejected),
            ErrorKind::NoCredit => Some(Self::NoCredit),
            ErrorKind::RateLimited => Some(Self::RateLimited),
            ErrorKind::Overloaded => Some(Self::Overloaded),
            _ => None,
        }
    }

    /// True if live sessions outlast the cause: the API takes their prompts again, and they need no other login for it.
    pub(crate) fn is_limit(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded)
    }

    /// The cause of an error whose chain of sources has an error of the system.
    fn of_io(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            match error.downcast_ref().map(io::Error::kind) {
                Some(
                    io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::ReadOnlyFilesystem,
                ) => return Some(Self::DiskFull),
                Some(io::ErrorKind::OutOfMemory) => return Some(Self::NoMemory),
                _ => next = error.source(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use greenroom::Message;

    use super::*;

    #[test]
    fn a_403_is_the_fault_of_the_key_only_if_it_names_the_login() {
        let of = |status: Option<u16>, text: &str| {
            let result = serde_json::json!({ "type": "result", "subtype": "success", "is_error": true, "num_turns": 1,
                "api_error_status": status, "result": text });
            let Ok(Message::Result(result)) = Message::parse(&result.to_string()) else { panic!("a result") };
            Cause::of_turn(&greenroom::Error::new(ErrorKind::Unauthenticated, text), Some(&result))
        };
        assert_eq!(of(Some(403), "API Error: 403 <html>Forbidden</html>"), None);
        assert_eq!(of(Some(403), r#"API Error: 403 {"error":{"type":"permission_error"}}"#), None);
        assert_eq!(of(Some(403), "OAuth token has been revoked"), Some(Cause::KeyRejected));
        assert_eq!(of(Some(401), "API Error: 401"), Some(Cause::KeyRejected));
        assert_eq!(of(None, "Not logged in"), Some(Cause::KeyRejected));
    }

    #[test]
    fn errors_of_the_machine_are_told_from_those_of_a_session() {
        let of = |kind| Cause::of_session(&greenroom::Error::new(kind, "no"));
        assert_eq!(of(ErrorKind::CliNotFound), Some(Cause::CliMissing));
        assert_eq!(of(ErrorKind::CliNotExecutable), Some(Cause::CliMissing));
        assert_eq!(of(ErrorKind::NoResources), Some(Cause::NoMemory));
        assert_eq!(of(ErrorKind::NoGuardian), Some(Cause::GuardianLost));
        assert_eq!(of(ErrorKind::Unauthenticated), Some(Cause::KeyRejected));
        for own in [ErrorKind::Spawn, ErrorKind::CliExited, ErrorKind::InvalidOption, ErrorKind::SessionInUse]
        {
            assert_eq!(of(own), None, "{own:?}");
        }
        let error = |kind: io::ErrorKind| {
            let error = greenroom::Error::new(ErrorKind::Io, "no").with_source(io::Error::from(kind));
            Cause::of_session(&error)
        };
        assert_eq!(error(io::ErrorKind::StorageFull), Some(Cause::DiskFull));
        assert_eq!(error(io::ErrorKind::NotFound), None);
    }
}
