//! The address of a server, and its place on the network.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// The question for TLS, with which a connection may begin: `SSLRequest` in "Message Formats" of PostgreSQL's manual.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The address of a server. Its text is the place, without the user and the password.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) options: PgConnectOptions,
}

impl Address {
    /// Reads an address. Errors repeat nothing of it but its scheme, because it may hold a password.
    pub(super) fn read(url: &str) -> Result<Self> {
        let invalid = |text: String| BackendError::new(BackendErrorKind::Invalid, text);
        let is_scheme =
            |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        match url.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme) {
            Some(scheme)
                if ["postgres", "postgresql"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) => {}
            Some(scheme) => {
                return Err(invalid(format!(
                    "an address that begins with `{scheme}://` is none of PostgreSQL: use one such as \
                     `postgres://user:password@host/database`"
                )));
            }
            None => {
                return Err(invalid(
                    "the address of PostgreSQL does not begin with `postgres://`: use one such as \
                     `postgres://user:password@host/database`, or `LocalBackend::open` for a file"
                        .to_owned(),
                ));
            }
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| {
                let error = match error {
                    sqlx::Error::Configuration(error) => error.to_string(),
                    other => other.to_string(),
                };
                invalid(format!("the address of PostgreSQL cannot be read: {error}; compare it with `postgres://user:password@host/database`"))
            })?
            .application_name("greenroom-fleet")
            // A setting that PgBouncer refuses at the start of a connection. No statement here has a float.
            .extra_float_digits(None)
            .disable_statement_logging();
        Ok(Self { options })
    }

    /// Looks within a time whether a PostgreSQL listens at the place. The error says what is missing. A server that takes the connection and
    /// says nothing may be busy, and is no error.
    pub(super) async fn reach(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
        let connected = match self.socket() {
            Some(socket) => {
                let connected = timeout_at(deadline, UnixStream::connect(socket)).await;
                connected.unwrap_or_else(|_| Err(late())).map(|stream| Box::new(stream) as Box<dyn Stream>)
            }
            None => {
                let found = timeout_at(deadline, lookup_host((self.host(), self.options.get_port()))).await;
                let found = found.unwrap_or_else(|_| Err(late())).map(|found| found.collect::<Vec<_>>());
                let found = found.map_err(|error| {
                    let host = self.host();
                    let text = format!(
                        "the host `{host}` of PostgreSQL's address does not resolve: {error}; check the host of the address, and the DNS"
                    );
                    BackendError::new(BackendErrorKind::Unavailable, text).caused_by(error)
                })?;
                let connected = timeout_at(deadline, TcpStream::connect(&found[..])).await;
                connected.unwrap_or_else(|_| Err(late())).map(|stream| Box::new(stream) as Box<dyn Stream>)
            }
        };
        let stream = connected.map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => format!(
                    "no PostgreSQL server listens at {self}: check the port of the address, and that the server runs"
                ),
                _ => format!(
                    "no connection to PostgreSQL at {self}: {error}; check the host and the port of the address, and firewalls on the way"
                ),
            };
            BackendError::new(BackendErrorKind::Unavailable, text).caused_by(error)
        })?;
        if timeout_at(deadline, is_another(stream)).await.unwrap_or(false) {
            let text = format!(
                "the server at {self} does not speak the protocol of PostgreSQL: check the port of the address"
            );
            return Err(BackendError::new(BackendErrorKind::Invalid, text));
        }
        Ok(())
    }

    fn host(&self) -> &str {
        self.options.get_host().trim_matches(['[', ']'])
    }

    /// The path of a Unix socket, if the address has one.
    fn socket(&self) -> Option<PathBuf> {
        let folder = self.options.get_socket().cloned();
        let folder = folder.or_else(|| self.host().starts_with('/').then(|| PathBuf::from(self.host())))?;
        Some(folder.join(format!(".s.PGSQL.{}", self.options.get_port())))
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// True for a server that answers otherwise than PostgreSQL does to the question for TLS: by `S` or `N` alone, or by an error.
async fn is_another(mut stream: Box<dyn Stream>) -> bool {
    let mut answer = [0; 64];
    let asked = stream.write_all(&TLS_REQUEST).await;
    let length = if asked.is_ok() { stream.read(&mut answer).await.unwrap_or(0) } else { 0 };
    !matches!(&answer[..length], [] | [b'S' | b'N'] | [b'E', ..])
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(socket) => write!(f, "{}", socket.display()),
            None => write!(f, "{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }
}
