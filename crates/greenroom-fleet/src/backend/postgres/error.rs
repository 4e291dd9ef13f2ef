//! Errors of PostgreSQL, as those of a backend.

use std::io;
use std::time::Duration;

use sqlx::postgres::PgDatabaseError;

use super::address::Address;
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
            let text = format!("PostgreSQL has not answered: {}; the request is repeated", text(&error));
            return caused(BackendError::new(BackendErrorKind::Unavailable, text), error);
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
    caused(BackendError::new(kind, text), error)
}

/// Another attempt to make a first connection after a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// The server refuses for good.
    Never,
    /// The failure may pass, and nothing says so.
    Soon,
    /// The server says that it starts, ends, or is full.
    Patiently,
}

/// Another attempt after the error of one.
pub(super) fn again(error: &sqlx::Error) -> Again {
    let code = code(error);
    match error {
        sqlx::Error::Io(_) => Again::Soon,
        _ if code.starts_with("57P") || code.starts_with("53") => Again::Patiently,
        _ if code.is_empty() || is_refusal(&code) || kind(&code).is_some() => Again::Never,
        _ => Again::Soon,
    }
}

/// The user, the password, the database; a word of the start that a pooler does not know.
fn is_refusal(code: &str) -> bool {
    code.starts_with("28") || code == "3D000" || code == "08P01"
}

/// The error of a first connection, with the cause and what to do about it. A node that runs already goes on trying after each of them,
/// because a password may be changed at the server first.
pub(super) fn of_connection(error: sqlx::Error, address: &Address) -> BackendError {
    use BackendErrorKind::{Damaged, Invalid, Unavailable};
    const HAS_TLS: bool = cfg!(feature = "postgres-tls");
    let (code, said) = (code(&error), text(&error));
    let refuses = |advice| format!("PostgreSQL at {address} refuses the connection: {said}; {advice}");
    let (kind, text) = match (&error, code.as_str()) {
        (sqlx::Error::Tls(_), _) => {
            let advice = match HAS_TLS {
                true => {
                    "check the `sslmode` and the certificates of the address, and that the server offers TLS"
                }
                false => {
                    "turn on the feature `postgres-tls` of greenroom-fleet, or take `sslmode` out of the address"
                }
            };
            (Invalid, format!("no connection with TLS to PostgreSQL at {address}: {said}; {advice}"))
        }
        (sqlx::Error::Protocol(_), _) => {
            let text = format!(
                "the server at {address} does not speak the protocol of PostgreSQL: {said}; check the port of the address"
            );
            (Invalid, text)
        }
        (sqlx::Error::Configuration(_), _) => {
            (Invalid, format!("the address of PostgreSQL cannot be used: {said}; check its parameters"))
        }
        (sqlx::Error::Io(_), _) => {
            let text = format!("{said}; check the port of the address, and the log of the server");
            (Unavailable, text)
        }
        (_, "3D000") => (Damaged, refuses("create the database, or check the address")),
        (_, "28P01") => (Damaged, refuses("check the user and the password of the address")),
        (_, code) if code.starts_with("28") && said.contains("no encryption") => {
            let advice = match HAS_TLS {
                true => {
                    "if the server asks for TLS, write `sslmode=require` into the address, or else check the address and `pg_hba.conf`"
                }
                false => {
                    "if the server asks for TLS, turn on the feature `postgres-tls` of greenroom-fleet, or else check the address and `pg_hba.conf`"
                }
            };
            (Damaged, refuses(advice))
        }
        (_, code) if is_refusal(code) => (Damaged, refuses("check the address, the user and the database")),
        (_, code) if code.starts_with("57P") => (Unavailable, refuses("try again when the server runs")),
        (_, code) if code.starts_with("53") => (
            Unavailable,
            refuses("raise `max_connections` of the server, or lower `connections` of the nodes"),
        ),
        _ => return of_request(error),
    };
    caused(BackendError::new(kind, text), error)
}

/// The words of an error itself, without the introduction of sqlx.
pub(super) fn text(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Tls(error) | sqlx::Error::Configuration(error) => error.to_string(),
        sqlx::Error::Protocol(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Adds the place of the server to the error of an attempt to connect.
pub(super) fn at(error: sqlx::Error, address: &Address) -> sqlx::Error {
    match error {
        sqlx::Error::Io(error) => {
            let text = format!("no connection to PostgreSQL at {address}: {error}");
            sqlx::Error::Io(io::Error::new(error.kind(), text))
        }
        other => other,
    }
}

/// The error of an answer that is late.
pub(super) fn late(text: String) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Adds the cause, unless the text has all of it.
fn caused(told: BackendError, cause: sqlx::Error) -> BackendError {
    match cause {
        sqlx::Error::Io(cause) => told.caused_by(cause),
        sqlx::Error::Database(cause) => match cause.try_downcast::<PgDatabaseError>() {
            Ok(cause) => told.caused_by(cause),
            Err(_) => told,
        },
        sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) | sqlx::Error::Protocol(_) => told,
        other => told.caused_by(other),
    }
}

/// The help for a pooler in transaction mode.
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
    tokio::time::timeout(limit, answer)
        .await
        .unwrap_or_else(|_| Err(late(format!("no answer came within {limit:?}"))))
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
