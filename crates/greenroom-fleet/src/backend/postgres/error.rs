//! Errors of PostgreSQL, as those of a backend.

use std::io;
use std::time::Duration;

use crate::error::{BackendError, BackendErrorKind};

/// The SQLSTATE of an error of the server. Other errors have none.
fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

/// The error of a request. Whatever may pass is [`Unavailable`](BackendErrorKind::Unavailable): the caller repeats the request.
pub(super) fn of_request(error: sqlx::Error) -> BackendError {
    let code = code(&error);
    let (kind, advice) = match kind(&code) {
        // Connections are closed by `close` alone.
        None if matches!(error, sqlx::Error::PoolClosed) => {
            return BackendError::new(BackendErrorKind::Closed, "the backend was closed: connect again");
        }
        None => {
            let text = format!("PostgreSQL has not answered: {error}; the request is repeated");
            return BackendError::new(BackendErrorKind::Unavailable, text).caused_by(error);
        }
        Some(kind) if is_pooler(&code) => (kind, POOLER),
        Some(kind @ BackendErrorKind::Invalid) => (kind, "the server cannot take its data"),
        Some(kind) => (
            kind,
            "check the schema's name and the rights of the user, and that no other program changes the schema, see the guide",
        ),
    };
    let message = error.as_database_error().map_or("", |error| error.message());
    let text = format!("PostgreSQL refuses the request: {message} (SQLSTATE {code}); {advice}");
    BackendError::new(kind, text).caused_by(error)
}

/// The error of a first connection: a server that refuses the user or the database then says so at once. A node that runs already
/// goes on trying, because a password may be changed at the server first.
pub(super) fn of_connection(error: sqlx::Error) -> BackendError {
    let code = code(&error);
    // The user, the password, the database; a word of the start that a pooler does not know.
    if code.starts_with("28") || code == "3D000" || code == "08P01" {
        let text = format!(
            "PostgreSQL refuses the connection: {error}; check the address, the user and the database"
        );
        return BackendError::new(BackendErrorKind::Damaged, text).caused_by(error);
    }
    of_request(error)
}

/// What to do about a pooler in transaction mode.
pub(super) const POOLER: &str = "a pooler between this node and PostgreSQL shares connections between transactions: use its \
                                 session mode, or connect to PostgreSQL directly";

/// A prepared statement is missing, or there already: it is on another connection of a pooler.
fn is_pooler(code: &str) -> bool {
    matches!(code, "26000" | "42P05")
}

/// The kind of an error that stays when the request is repeated. `None`: the error may pass.
fn kind(code: &str) -> Option<BackendErrorKind> {
    match code {
        code if is_pooler(code) => Some(BackendErrorKind::Invalid),
        // The schema is not as this code has made it: pages are damaged, rows contradict a rule, a function fails, a function or
        // table is not there or may not be used.
        "XX001" | "XX002" | "3F000" => Some(BackendErrorKind::Damaged),
        code => match code.get(..2)? {
            // Data that the server cannot take: too large, not in its encoding.
            "22" | "54" => Some(BackendErrorKind::Invalid),
            "0A" | "21" | "23" | "2F" | "38" | "39" | "42" | "P0" => Some(BackendErrorKind::Damaged),
            _ => None,
        },
    }
}

/// The answer to a question, within a time.
pub(super) async fn in_time<T>(
    limit: Duration,
    answer: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        let late = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
        Err(sqlx::Error::Io(late))
    })
}

/// True for errors after which a connection is of no use: those that are not the server's, and those by which it ends a session.
pub(super) fn ends_connection(error: &sqlx::Error) -> bool {
    let code = code(error);
    code.is_empty() || code.starts_with("57P") || code == "25P03"
}

/// True for the error of a request that waited for another one while that one waited for it.
pub(super) fn is_deadlock(error: &sqlx::Error) -> bool {
    code(error) == "40P01"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_stay_are_told_and_those_that_pass_are_repeated() {
        use BackendErrorKind::{Damaged, Invalid};
        for code in ["23505", "23514", "42703", "42883", "42501", "42P01", "P0001", "P0003", "0A000", "XX001"]
        {
            assert_eq!(kind(code), Some(Damaged), "{code}");
        }
        for code in ["22021", "22P02", "54000", "26000", "42P05"] {
            assert_eq!(kind(code), Some(Invalid), "{code}");
        }
        // A lock or a statement that took too long, a deadlock, a full disk, a server that ends or is read-only, a connection.
        let passing = [
            "57014", "55P03", "40P01", "40001", "53100", "53300", "57P01", "57P03", "25006", "08006",
            "XX000", "",
        ];
        for code in passing {
            assert_eq!(kind(code), None, "{code}");
        }
    }
}
