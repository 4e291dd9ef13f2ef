//! `Debug` of errors as a report, for a `main` that returns them.

/// Implements `Debug` of errors by [`ErrorReport`](greenroom::report::ErrorReport).
macro_rules! debug_as_report {
    ($($error:path),* $(,)?) => {
        $(impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", greenroom::report::ErrorReport(self))
            }
        })*
    };
}
pub(crate) use debug_as_report;

#[cfg(test)]
mod tests {
    use std::io;

    use crate::error::{BackendError, BackendErrorKind, FleetError, PromptError};
    use crate::id::PromptId;

    fn refused() -> BackendError {
        let cause = io::Error::new(
            io::ErrorKind::InvalidData,
            BackendError::damaged(io::Error::other("a page is torn")),
        );
        BackendError::new(BackendErrorKind::Unavailable, "the file cannot be read: free the disk")
            .caused_by(cause)
    }

    #[test]
    fn debug_of_an_error_is_a_report_with_each_cause_once() {
        let told = "the file cannot be read: free the disk";
        let cause = "a record cannot be read: a page is torn; restore the file from a backup, or export what can be read";
        let report = format!("{told}\nCaused by: {cause}");
        assert_eq!(format!("{:?}", refused()), report);
        // The fleet's error has the text and the causes of the backend's.
        assert_eq!(format!("{:?}", FleetError::from(refused())), report);
        let (prompt, key) = (PromptId::new(), None);
        let unknown = PromptError::Unknown { prompt, key, cause: refused() };
        let report = format!(
            "it is not known whether the prompt {prompt} was accepted: send it again with its key. {told}\nCaused by: {cause}"
        );
        assert_eq!(format!("{unknown:?}"), report);
        let plain = BackendError::new(BackendErrorKind::Closed, "the backend was closed: open it again");
        assert_eq!(format!("{plain:?}"), plain.to_string());
    }

    #[test]
    fn main_that_returns_an_error_of_a_fleet_prints_its_text() {
        let failed: Result<(), Box<dyn std::error::Error>> = Err(FleetError::Ended.into());
        let printed = failed.map_err(|error| format!("Error: {error:?}")).unwrap_err();
        assert_eq!(printed, "Error: the fleet has ended, or is draining: open it again");
    }
}
