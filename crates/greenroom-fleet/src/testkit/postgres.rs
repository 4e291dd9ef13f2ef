//! A scratch server of PostgreSQL, for tests of services.
//!
//! ```text
//!  start ──► initdb in a temporary folder ──► the guardian, a shell ──► postgres, on a free port of the loopback ──► `ready` in its file
//!  drop, or the end of this process ──► the guardian's pipe is closed: it ends the server and removes the folder
//! ```

#![allow(clippy::disallowed_methods, reason = "the programs are no CLIs: a guardian of their own ends them")]

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::backend::{PostgresBackend, PostgresOptions};
use crate::error::{BackendError, debug_as_report};

/// The address of a server that runs already.
const ADDRESS: &str = "GREENROOM_POSTGRES";
/// The folder with the programs of PostgreSQL.
const PROGRAMS: &str = "GREENROOM_POSTGRES_PROGRAMS";

/// The time for a server to start.
const START: Duration = Duration::from_secs(120);
/// Times that a server which ends at once is started again: after a crash, processes of the one before may still run.
const STARTS: u32 = 100;
/// The pause between two looks at a server that starts, which tells no event.
const LOOK: Duration = Duration::from_millis(20);

/// A server of PostgreSQL for a test: in a temporary folder, on a free port of the loopback, and without forced writes to the disk. It ends
/// when this value is dropped, also if the process of the test is killed.
///
/// It needs the programs of PostgreSQL 15 or later and `sh`: [`programs`](Self::programs) says where it looks. Started by root, the server
/// runs as the user `postgres`, by `setpriv`.
///
/// If the environment variable `GREENROOM_POSTGRES` has the address of a server, [`start`](Self::start) uses that one. Let it be a server
/// for tests: the databases stay there.
///
/// ```no_run
/// use greenroom::Session;
/// use greenroom_fleet::Fleet;
/// use greenroom_fleet::testkit::ScratchPostgres;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let postgres = ScratchPostgres::start().await?;
/// let folder = tempfile::tempdir()?;
/// let fleet = Fleet::builder()
///     .backend(postgres.backend().await?)
///     // Sessions of a test on scripted CLIs have no processes.
///     .without_watchdog()
///     .host("test")
///     .folder(folder.path())
///     .profile("support", |_| Session::builder())
///     .start()
///     .await?;
/// # drop(fleet);
/// # Ok(())
/// # }
/// ```
///
/// Real servers need real time: do not pause tokio's clock. A server starts in a second or two. With one process for each test, as
/// `cargo nextest` has it, `GREENROOM_POSTGRES` saves that time.
pub struct ScratchPostgres {
    url: String,
    /// None: the server is somebody else's.
    server: Option<Arc<Server>>,
}

/// The reason why there is no [`ScratchPostgres`].
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchPostgresError {
    /// The programs of PostgreSQL are not installed, or not found.
    #[error(
        "PostgreSQL is not installed: install its server, such as Debian's package `postgresql`, set {PROGRAMS} to the folder of \
         `initdb`, or set {ADDRESS} to the address of a server for tests"
    )]
    NotInstalled,
    /// The server could not be set up or started.
    #[error("the scratch server of PostgreSQL could not be started: {0}")]
    NotStarted(String),
    /// The server at `GREENROOM_POSTGRES` is none of this process.
    #[error(
        "the server at {ADDRESS} cannot be restarted: start one of your own with `ScratchPostgres::start_own`"
    )]
    NotOwn,
}

debug_as_report!(ScratchPostgresError);

type Result<T, E = ScratchPostgresError> = std::result::Result<T, E>;

impl ScratchPostgres {
    /// Starts a server, or uses the one at `GREENROOM_POSTGRES`.
    ///
    /// # Errors
    /// [`NotInstalled`](ScratchPostgresError::NotInstalled) and [`NotStarted`](ScratchPostgresError::NotStarted). The address is used
    /// later: see [`database`](Self::database).
    pub async fn start() -> Result<Self> {
        match std::env::var(ADDRESS) {
            Ok(url) => Ok(Self { url, server: None }),
            Err(_) => Self::start_own().await,
        }
    }

    /// Starts a server, which a test may [restart](Self::restart).
    ///
    /// # Errors
    /// [`NotInstalled`](ScratchPostgresError::NotInstalled) and [`NotStarted`](ScratchPostgresError::NotStarted).
    pub async fn start_own() -> Result<Self> {
        let server = blocking(Server::start).await?;
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
        Ok(Self { url, server: Some(Arc::new(server)) })
    }

    /// The address of the server, with the database `postgres` or the one of `GREENROOM_POSTGRES`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes a new database, and returns its address: for a service that a test starts as a process.
    ///
    /// # Errors
    /// Those of [`PostgresBackend::connect`]; the user at `GREENROOM_POSTGRES` has to be one that may create databases.
    pub async fn database(&self) -> Result<String, BackendError> {
        PostgresBackend::make_database(&self.url).await
    }

    /// Makes a new database, and returns the options to connect to it: for several nodes of a fleet, each with a backend.
    ///
    /// # Errors
    /// As [`database`](Self::database).
    pub async fn options(&self) -> Result<PostgresOptions, BackendError> {
        self.database().await.map(PostgresOptions::new)
    }

    /// A backend in a new database.
    ///
    /// # Errors
    /// As [`database`](Self::database) and [`PostgresBackend::connect`].
    pub async fn backend(&self) -> Result<PostgresBackend, BackendError> {
        PostgresBackend::connect(self.options().await?).await
    }

    /// Kills the server as a crash would, and starts it again at the same address. Returns when it takes connections. What it has
    /// acknowledged is still there.
    ///
    /// # Errors
    /// [`NotStarted`](ScratchPostgresError::NotStarted), and [`NotOwn`](ScratchPostgresError::NotOwn) for the server at `GREENROOM_POSTGRES`.
    pub async fn restart(&self) -> Result<()> {
        let server = self.server.clone().ok_or(ScratchPostgresError::NotOwn)?;
        blocking(move || server.restart()).await
    }

    /// The folder with the programs of PostgreSQL: that of the environment variable `GREENROOM_POSTGRES_PROGRAMS`, or else the one of the
    /// latest version below `/usr/lib/postgresql`. `None`: they are not installed, so a test may say so and pass.
    pub fn programs() -> Option<PathBuf> {
        let has_programs = |folder: &PathBuf| folder.join("initdb").exists();
        if let Some(folder) = std::env::var_os(PROGRAMS) {
            return Some(PathBuf::from(folder)).filter(has_programs);
        }
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        let number =
            |folder: &fs::DirEntry| folder.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let folders = versions.map(|version| (number(&version), version.path().join("bin")));
        folders.filter(|(_, folder)| has_programs(folder)).max().map(|(_, folder)| folder)
    }
}

impl fmt::Debug for ScratchPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchPostgres").finish_non_exhaustive()
    }
}

/// Waits for programs on a thread that may be held up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|failed| Err(not_started("start")(failed)))
}

/// The error of a step.
fn not_started<E: fmt::Display>(step: &str) -> impl Fn(E) -> ScratchPostgresError {
    move |error| ScratchPostgresError::NotStarted(format!("{step}: {error}"))
}

struct Server {
    programs: PathBuf,
    port: u16,
    process: Mutex<Child>,
    /// Ends the server and removes its folder when this end of its pipe is closed, however this process ends.
    guardian: Child,
    folder: TempDir,
}

impl Server {
    fn start() -> Result<Self> {
        let programs = ScratchPostgres::programs().ok_or(ScratchPostgresError::NotInstalled)?;
        let folder = tempfile::Builder::new().prefix("greenroom-postgres-").tempdir();
        let folder = folder.map_err(not_started("the temporary folder"))?;
        let data = folder.path().join("data");
        if rustix::process::geteuid().is_root() {
            carry_out(Command::new("chown").arg("postgres:postgres").arg(folder.path()))?;
        }
        let initdb = ["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"];
        carry_out(as_user(&programs.join("initdb")).args(initdb).arg(&data))?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(not_started("a free port"))?.port();
        // Not as arguments of the server, so that a test may change them with ALTER SYSTEM.
        let settings = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nmax_connections = 300\nfsync = off\nunix_socket_directories = '{}'\n",
            folder.path().display()
        );
        let file = OpenOptions::new().append(true).open(data.join("postgresql.conf"));
        file.and_then(|mut file| file.write_all(settings.as_bytes())).map_err(not_started("its settings"))?;
        // `read` returns when the pipe is closed. The server's own file names its process, also after a restart.
        let script = "read -r end; pid=$(head -n 1 \"$1/data/postmaster.pid\" 2>/dev/null); \
                      [ -z \"$pid\" ] || kill -QUIT \"$pid\" 2>/dev/null; \
                      while [ -e \"$1/data/postmaster.pid\" ] && kill -0 \"$pid\" 2>/dev/null; do sleep 0.05; done; rm -rf \"$1\"";
        let guardian = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(not_started("sh"))?;
        let process = Mutex::new(run(&programs, folder.path())?);
        let server = Self { programs, port, process, guardian, folder };
        server.until_ready()?;
        Ok(server)
    }

    /// Waits until the server takes connections.
    fn until_ready(&self) -> Result<()> {
        let mut process = locked(&self.process);
        let (begun, mut starts) = (Instant::now(), 1);
        while begun.elapsed() < START {
            // The server writes its process and, once it takes connections, `ready` into its file.
            let file = self.folder.path().join("data/postmaster.pid");
            let file = fs::read_to_string(file).unwrap_or_default();
            if file.lines().next() == Some(&process.id().to_string()) && file.contains("ready") {
                return Ok(());
            }
            if process.try_wait().map_err(not_started("postgres"))?.is_some() {
                if starts == STARTS {
                    break;
                }
                starts += 1;
                *process = run(&self.programs, self.folder.path())?;
            }
            std::thread::park_timeout(LOOK);
        }
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        Err(ScratchPostgresError::NotStarted(format!(
            "it was started {starts} times within {START:?}, and its log ends with\n{last}"
        )))
    }

    /// Kills the first process of the server. The others end when the first one has.
    fn restart(&self) -> Result<()> {
        let mut process = locked(&self.process);
        process.kill().and_then(|()| process.wait()).map_err(not_started("the kill of postgres"))?;
        *process = run(&self.programs, self.folder.path())?;
        drop(process);
        self.until_ready()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        // Errors: they are gone already. The server is reaped first, because the guardian waits for its end.
        locked(&self.process).wait().ok();
        self.guardian.wait().ok();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the server in its folder.
fn run(programs: &Path, folder: &Path) -> Result<Child> {
    let log =
        || -> io::Result<File> { OpenOptions::new().create(true).append(true).open(folder.join("log")) };
    let (out, error) = (log().map_err(not_started("its log"))?, log().map_err(not_started("its log"))?);
    as_user(&programs.join("postgres"))
        .arg("-D")
        .arg(folder.join("data"))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(error)
        .process_group(0)
        .spawn()
        .map_err(not_started("postgres"))
}

/// The server refuses to run for root.
fn as_user(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

/// Carries a program out. The error has what the program said.
fn carry_out(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(not_started(&name))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(not_started(&name)(said.trim()))
        }
    }
}
