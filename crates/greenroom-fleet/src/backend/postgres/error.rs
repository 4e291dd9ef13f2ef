//! Errors of PostgreSQL, as those of a backend.

use crate::error::{BackendError, BackendErrorKind};

/// The SQLSTATE by which a function of ours refuses a request.
const REFUSED: &str = "GR001";

/// The error of a request. Whatever is not known to be the request's fault may pass: the caller repeats the request.
pub(super) fn of_request(error: sqlx::Error) -> BackendError {
    let Some(database) = error.as_database_error() else { return unavailable(error) };
    let code = database.code().unwrap_or_default();
    let message = database.message().to_owned();
    match code.as_ref() {
        REFUSED => BackendError::new(BackendErrorKind::Invalid, message),
        // Data that the server cannot take: too large, not in its encoding.
        code if code.starts_with("22") || code.starts_with("54") => {
            BackendError::new(BackendErrorKind::Invalid, format!("PostgreSQL refuses the request: {message}"))
        }
        // A function or table is not there, or may not be used.
        "42883" | "42P01" | "3F000" | "42501" => {
            let text = format!(
                "PostgreSQL refuses the request: {message}; check the schema's name and the rights of the user, see the guide"
            );
            BackendError::new(BackendErrorKind::Damaged, text).caused_by(error)
        }
        _ => unavailable(error),
    }
}

fn unavailable(error: sqlx::Error) -> BackendError {
    let text = format!("PostgreSQL has not answered: {error}; the request is repeated");
    BackendError::new(BackendErrorKind::Unavailable, text).caused_by(error)
}

/// The error of a request that took too long.
pub(super) fn late(limit: std::time::Duration) -> BackendError {
    let text = format!("PostgreSQL has not answered within {limit:?}; the request is repeated");
    BackendError::new(BackendErrorKind::Unavailable, text)
}

/// True for errors of several nodes that make the schema at once.
pub(super) fn is_race(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| {
        matches!(code.as_ref(), "42P06" | "42P07" | "23505" | "55P03" | "40P01" | "40001" | "XX000")
    })
}
