//! A server for the tests: the one at `GREENROOM_POSTGRES`, or one of our own that ends with the tests.

#[path = "../../../../tests/support/postgres.rs"]
mod missing;

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Mutex, Once};

use greenroom_fleet::testkit::ScratchPostgres;
use sqlx::{Connection, Executor, Row};

use self::missing::ADDRESS;
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use self::missing::{PROGRAMS, REQUIRED, not_run};
use crate::wait::in_time;

/// A program of PostgreSQL.
pub(crate) fn program(name: &str) -> PathBuf {
    ScratchPostgres::programs().map_or_else(|| name.into(), |folder| folder.join(name))
}

/// `None`: there is no server, which the first test says in one line.
pub(crate) fn address() -> Option<String> {
    if let Ok(address) = std::env::var(ADDRESS) {
        return Some(address);
    }
    if ScratchPostgres::programs().is_none() {
        missing::none_is_run();
        return None;
    }
    static SHARED: Mutex<Option<String>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap();
    if shared.is_none() {
        // Leaked: the guardian of the server ends it when this process has ended.
        let server = Box::leak(Box::new(at_once(ScratchPostgres::start_own()).unwrap()));
        *shared = Some(server.url().to_owned());
    }
    shared.clone()
}

/// A server of our own.
pub(crate) struct Server(ScratchPostgres);

impl Server {
    /// Starts a server that a test may kill. `None`: PostgreSQL is not installed, which the first test says in one line.
    pub(crate) fn of_its_own() -> Option<Self> {
        if ScratchPostgres::programs().is_some() {
            return Some(Self(at_once(ScratchPostgres::start_own()).unwrap()));
        }
        // Without an address no test runs, and this says so for all of them.
        address()?;
        static SAID: Once = Once::new();
        let which = format!("the tests that kill their server, not the one at {ADDRESS},");
        not_run(&SAID, &which, "PostgreSQL", "install PostgreSQL");
        None
    }

    #[allow(dead_code, reason = "tests with proxies use it")]
    pub(crate) fn port(&self) -> u16 {
        socket(self.0.url()).port()
    }

    pub(crate) fn address(&self) -> String {
        self.0.url().to_owned()
    }

    /// Kills the server, and starts it again.
    pub(crate) fn kill_and_start(&self) {
        at_once(self.0.restart()).unwrap();
    }
}

/// Holds up this thread, also one of a runtime.
fn at_once<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join().unwrap())
}

/// Where the server at an address listens.
pub(crate) fn socket(address: &str) -> std::net::SocketAddr {
    let place = address.rsplit('@').next().and_then(|rest| rest.split('/').next()).unwrap();
    place.to_socket_addrs().unwrap().next().unwrap()
}

/// The address of something on this host that passes connections on to the server at an address.
pub(crate) fn through(address: &str, port: u16) -> String {
    let place = address.rsplit('@').next().and_then(|rest| rest.split('/').next()).unwrap();
    address.replacen(place, &format!("127.0.0.1:{port}"), 1)
}

/// A connection of the test's own.
pub(crate) async fn raw(address: &str) -> sqlx::PgConnection {
    sqlx::PgConnection::connect(address).await.unwrap()
}

pub(crate) async fn run(connection: &mut sqlx::PgConnection, statements: &str) {
    connection.execute(statements).await.unwrap();
}

/// A statement that locks the record of a name, of one ASCII character.
pub(crate) fn lock_of_name(schema: &str, name: &str) -> String {
    format!("SELECT FROM {schema}.rows WHERE key = '{}' FOR UPDATE", key_of_name(name))
}

/// The key of the record of a name of the tenant `acme`, of one ASCII character.
pub(crate) fn key_of_name(name: &str) -> String {
    // 61636d65: acme.
    format!("\\x0261636d650000{:02x}0000", name.as_bytes()[0])
}

/// Waits until a commit of a backend waits for a lock.
pub(crate) async fn until_a_request_waits_for_a_lock(address: &str) {
    let mut connection = raw(address).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%fleet_commit(%' AND pid <> pg_backend_pid()";
    in_time("a request that waits for a lock", async {
        while sqlx::query(waiting).fetch_one(&mut connection).await.unwrap().get::<i64, _>(0) == 0 {}
    })
    .await;
}
