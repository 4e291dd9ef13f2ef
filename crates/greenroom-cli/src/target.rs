//! The fleet that the command looks after.

use std::path::PathBuf;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions, SocketBackend};
use greenroom_fleet::{BackendError, BackendErrorKind};

use crate::arguments::Target;
use crate::failure::Failure;

/// The variable with the address of the database. An address in the arguments is seen by all users of the host.
const DATABASE: &str = "GREENROOM_DATABASE";

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

/// Connects to the fleet of the arguments, or to the one of the environment.
pub(crate) async fn connect(target: Target) -> Result<Connection, Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    match target {
        Target { database: Some(_), socket: Some(_), .. } => {
            usage("`--database` and `--socket` are two fleets: give one of them")
        }
        Target { socket: Some(_), schema: Some(_), .. } => {
            usage("`--schema` belongs to a database: leave it out")
        }
        Target { socket: Some(path), .. } => connect_to_socket(path).await,
        Target { database, schema, .. } => match database.or_else(|| std::env::var(DATABASE).ok()) {
            Some(url) => connect_to_database(url, schema).await,
            None => usage(&format!(
                "no fleet is named: give `--database URL` or `--socket PATH`, or set {DATABASE} to the address of a database"
            )),
        },
    }
}

pub(crate) async fn connect_to_socket(path: PathBuf) -> Result<Connection, Failure> {
    let backend = SocketBackend::connect(path).await.map_err(not_reached)?;
    Ok(Connection { admin: Admin::new(backend), database: None })
}

pub(crate) async fn connect_to_database(url: String, schema: Option<String>) -> Result<Connection, Failure> {
    let mut options = PostgresOptions::new(url);
    options.connections = 2;
    if let Some(schema) = schema {
        options.schema = schema;
    }
    let backend = PostgresBackend::connect(options).await.map_err(not_reached)?;
    Ok(Connection { admin: Admin::new(backend.clone()), database: Some(backend) })
}

/// A refused login also exits with 3.
fn not_reached(error: BackendError) -> Failure {
    match error.kind() {
        BackendErrorKind::Invalid => Failure::Usage(error.to_string()),
        _ => Failure::NotReached(error.to_string()),
    }
}
