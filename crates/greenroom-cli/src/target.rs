//! The fleet that the command looks after, and the one to which a tenant moves.

use std::path::PathBuf;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions, SocketBackend};
use greenroom_fleet::{BackendError, BackendErrorKind};

use crate::arguments::{Move, Target};
use crate::failure::Failure;

/// A fleet that the arguments or the environment name.
pub(crate) enum Fleet {
    Database { url: String, schema: Option<String> },
    Socket(PathBuf),
}

/// A connection to a fleet.
pub(crate) struct Connection {
    pub(crate) admin: Admin,
    database: Option<PostgresBackend>,
}

impl Connection {
    pub(crate) async fn close(self) {
        if let Some(database) = self.database {
            database.close().await;
        }
    }
}

impl Fleet {
    /// The fleet that the command looks after.
    pub(crate) fn of(target: Target) -> Result<Self, Failure> {
        let Target { database, schema, socket } = target;
        Self::named("--", "GREENROOM_DATABASE", database, schema, socket)
    }

    /// The fleet to which a tenant moves.
    pub(crate) fn of_move(to: &Move) -> Result<Self, Failure> {
        let Move { to_database, to_schema, to_socket, .. } = to;
        Self::named(
            "--to-",
            "GREENROOM_TO_DATABASE",
            to_database.clone(),
            to_schema.clone(),
            to_socket.clone(),
        )
    }

    /// The fleet of some arguments, or of a variable: all users of the host see an address in the arguments.
    fn named(
        flag: &str,
        variable: &str,
        database: Option<String>,
        schema: Option<String>,
        socket: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        match (database, schema, socket) {
            (Some(_), _, Some(_)) => {
                usage(format!("`{flag}database` and `{flag}socket` are two fleets: give one of them"))
            }
            (None, Some(_), Some(_)) => usage(format!("`{flag}schema` belongs to a database: leave it out")),
            (None, None, Some(path)) => Ok(Self::Socket(path)),
            (database, schema, None) => match database.or_else(|| std::env::var(variable).ok()) {
                Some(url) => Ok(Self::Database { url, schema }),
                None => usage(format!(
                    "no fleet is named: give `{flag}database URL` or `{flag}socket PATH`, or set {variable} to the address of a database"
                )),
            },
        }
    }

    pub(crate) async fn connect(self) -> Result<Connection, Failure> {
        match self {
            Self::Socket(path) => {
                let backend = SocketBackend::connect(path).await.map_err(not_reached)?;
                Ok(Connection { admin: Admin::new(backend), database: None })
            }
            Self::Database { url, schema } => {
                let mut options = PostgresOptions::new(url);
                options.connections = 2;
                if let Some(schema) = schema {
                    options.schema = schema;
                }
                let backend = PostgresBackend::connect(options).await.map_err(not_reached)?;
                Ok(Connection { admin: Admin::new(backend.clone()), database: Some(backend) })
            }
        }
    }
}

/// A refused login also exits with 3.
fn not_reached(error: BackendError) -> Failure {
    match error.kind() {
        BackendErrorKind::Invalid => Failure::Usage(error.to_string()),
        _ => Failure::NotReached(error.to_string()),
    }
}
