//! Where the database is, and how it is used.

use std::time::Duration;

/// Options of a [`PostgresBackend`](super::PostgresBackend).
///
/// | option | default | |
/// |---|---|---|
/// | `schema` | `greenroom_fleet` | the schema with all tables and functions of the fleet: a fleet each |
/// | `connections` | 16 | connections of this node for its requests; up to five more are for the lease, nodes and hints, four for transcripts, and four for readers of turns |
/// | `statement_timeout` | 2 s | the time after which the server gives a statement up, and a third more the time after which this node does |
/// | `connect_timeout` | 10 s | the time for a first connection and the schema |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The address: a URL with one host, such as `postgres://user:password@host/database?sslmode=verify-full`. It has the parameters
    /// that `sqlx` knows, and a list of hosts is none of them. Without `sslmode` the connection may be unencrypted.
    pub url: String,
    /// The schema: 1 to 40 lower-case letters, digits and underscores, no digit first. Default: `greenroom_fleet`.
    pub schema: String,
    /// Connections for requests, at least 1. Default: 16.
    pub connections: u32,
    /// The time for a statement and for the wait for a lock, at least a millisecond. Default: 2 s.
    pub statement_timeout: Duration,
    /// The time for [`connect`](super::PostgresBackend::connect). Default: 10 s.
    pub connect_timeout: Duration,
}

impl PostgresOptions {
    /// The defaults, with an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "greenroom_fleet".to_owned(),
            connections: 16,
            statement_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// True for a name that needs no quotes in SQL.
pub(super) fn is_schema(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte == b'_' || byte.is_ascii_lowercase());
    let rest = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    first && rest && name.len() <= 40 && !name.starts_with("pg_")
}
