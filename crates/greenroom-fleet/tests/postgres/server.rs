//! A server for the tests: the one at `GREENROOM_POSTGRES`, or one of our own that ends with the tests.

#![allow(clippy::disallowed_methods, reason = "the server is no CLI, and its start may hold up a thread")]

use std::io::Write;
use std::net::ToSocketAddrs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};

use sqlx::{Connection, Executor, Row};

use crate::wait::{found_by_thread, in_time};

/// The address of a server that runs already.
const ADDRESS: &str = "GREENROOM_POSTGRES";
/// Set: a test fails if it has no server.
pub(crate) const REQUIRED: &str = "GREENROOM_REQUIRE_POSTGRES";
/// The folder with the programs of PostgreSQL, if they are not where Debian puts them.
pub(crate) const PROGRAMS: &str = "GREENROOM_POSTGRES_PROGRAMS";

/// Whether commits are forced to the disk, as the figures of a benchmark need it. A test that kills the server does not:
/// the system keeps what was written. Forced writes of a hundred schemas at once take minutes on a disk that is busy.
pub(crate) static FORCED: AtomicBool = AtomicBool::new(false);

/// The folder with `initdb` and `postgres`: `GREENROOM_POSTGRES_PROGRAMS`, or the newest one of Debian.
fn programs() -> Option<PathBuf> {
    if let Some(bin) = std::env::var_os(PROGRAMS) {
        return Some(PathBuf::from(bin)).filter(|bin| bin.join("initdb").exists());
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.retain(|bin| bin.join("initdb").exists());
    versions.sort();
    versions.pop()
}

/// A program of PostgreSQL.
pub(crate) fn program(name: &str) -> PathBuf {
    programs().map_or_else(|| name.into(), |folder| folder.join(name))
}

/// Says in one line which tests are not run and what they need. They count as passed.
///
/// # Panics
/// If `GREENROOM_REQUIRE_POSTGRES` is set.
pub(crate) fn not_run(said: &Once, which: &str, missing: &str, remedy: &str) {
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing} is not installed, and {REQUIRED} is set");
    said.call_once(|| {
        let binary = env!("CARGO_CRATE_NAME");
        let note = format!(
            "{binary}: {which} are not run and count as passed, because {missing} is not installed. To run them: {remedy}\n"
        );
        // Not with `eprintln!`, which is not shown for a test that passes.
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    });
}

/// `None`: there is no server, which the first test says in one line.
pub(crate) fn address() -> Option<String> {
    if let Ok(address) = std::env::var(ADDRESS) {
        return Some(address);
    }
    if programs().is_none() {
        static SAID: Once = Once::new();
        let remedy = format!("install PostgreSQL, or set {ADDRESS} to the address of a server");
        not_run(&SAID, "the tests on PostgreSQL", "PostgreSQL", &remedy);
        return None;
    }
    static SHARED: Mutex<Option<String>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap();
    if shared.is_none() {
        // Leaked: the guardian of the server ends it when this process has ended.
        let server: &'static Server = Box::leak(Box::new(Server::start()));
        *shared = Some(server.address());
    }
    shared.clone()
}

/// A server of our own, in a temporary folder.
pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    process: Mutex<Child>,
    /// Ends the server and removes its folder when this end of its pipe is closed, however this process ends.
    _guardian: Child,
}

impl Server {
    /// Starts a server that a test may kill. `None`: PostgreSQL is not installed, which the first test says in one line.
    pub(crate) fn of_its_own() -> Option<Self> {
        if programs().is_some() {
            return Some(Self::start());
        }
        // Without an address no test runs, and this says so for all of them.
        address()?;
        static SAID: Once = Once::new();
        let which = format!("the tests that kill their server, not the one at {ADDRESS},");
        not_run(&SAID, &which, "PostgreSQL", "install PostgreSQL");
        None
    }

    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("greenroom-postgres-").tempdir().unwrap().keep();
        give_away(&folder);
        let done = as_user(&programs().unwrap().join("initdb"))
            .args(["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"])
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "initdb has failed");
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Self::run(&folder, port);
        // `read` returns when the pipe is closed. The server's own file names its process, also after a restart.
        let script = "read -r end; kill -QUIT \"$(head -n 1 \"$1/data/postmaster.pid\")\" 2>/dev/null; \
                      while [ -e \"$1/data/postmaster.pid\" ]; do sleep 0.1; done; rm -rf \"$1\"";
        let guardian = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let server = Self { folder, port, process: Mutex::new(process), _guardian: guardian };
        server.wait();
        server
    }

    fn run(folder: &Path, port: u16) -> Child {
        as_user(&programs().unwrap().join("postgres"))
            .arg("-D")
            .arg(folder.join("data"))
            .args([
                "-c",
                &format!("port={port}"),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=300",
            ])
            .args(["-c", &format!("unix_socket_directories={}", folder.display())])
            .args(["-c", if FORCED.load(Ordering::Relaxed) { "fsync=on" } else { "fsync=off" }])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    /// Waits until the server takes connections. A server whose forerunner's processes still run ends at once, and is started again.
    fn wait(&self) {
        let mut process = self.process.lock().unwrap();
        found_by_thread("the start of the server", || {
            // The server writes its process and, once it takes connections, `ready` into its file.
            let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
            if file.lines().next() == Some(&process.id().to_string()) && file.contains("ready") {
                return Some(());
            }
            if process.try_wait().unwrap().is_some() {
                *process = Self::run(&self.folder, self.port);
            }
            None
        });
    }

    #[allow(dead_code, reason = "tests with proxies use it")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Kills the server, and starts it again. Its other processes end when the first one has.
    pub(crate) fn kill_and_start(&self) {
        let mut process = self.process.lock().unwrap();
        let group = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        process.wait().unwrap();
        *process = Self::run(&self.folder, self.port);
        drop(process);
        self.wait();
    }
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

/// The key of the record of a name, of one ASCII character.
pub(crate) fn key_of_name(name: &str) -> String {
    format!("\\x02{:02x}0000", name.as_bytes()[0])
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

/// The server refuses to run for root.
pub(crate) fn as_user(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

pub(crate) fn give_away(folder: &Path) {
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").args(["-R", "postgres:postgres"]).arg(folder).status().unwrap();
        assert!(given.success(), "there is no user `postgres`");
    }
}
