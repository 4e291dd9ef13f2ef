//! Methods of [`Session`] that send a control request to the CLI.
//!
//! - here: shared code, and [`Requests::control`] for requests without a method
//! - [`turn`]: interrupts, withdrawn prompts, background tasks, MCP servers
//! - [`settings`]: settings for the rest of the session, and settings files
//! - [`info`]: information about the CLI and the session, files

mod info;
mod settings;
mod turn;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Session;
use crate::actor::router::client;
use crate::error::{Error, ErrorKind, Result};
use crate::options::FOREVER;
use crate::requests::Reply;
use crate::wire::lenient::Lenient;

impl Session {
    /// Returns a handle to this session with another time limit for its requests to the CLI, in place of
    /// [`Timeouts::control_request`](crate::options::Timeouts::control_request) and the others. A request that exceeds
    /// the limit is withdrawn.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// async fn status(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     let status = session.with_request_timeout(Duration::from_secs(2)).mcp_status().await?;
    ///     println!("{} servers", status.servers.len());
    ///     Ok(())
    /// }
    /// # let _ = status;
    /// ```
    pub fn with_request_timeout(&self, limit: Duration) -> Self {
        Self { inner: self.inner.clone(), limit: Some(limit.min(FOREVER)) }
    }

    /// The requests that few programs need.
    pub fn requests(&self) -> Requests<'_> {
        Requests { session: self }
    }

    /// Sends a request and reads the answer.
    async fn request<T: Lenient>(&self, body: RequestBody) -> Result<Reply<T>> {
        let limit = self.shared().options().timeouts.control_request;
        self.request_within(body, limit).await
    }

    /// Sends a request that waits for the API.
    async fn long_request<T: Lenient>(&self, body: RequestBody) -> Result<Reply<T>> {
        let limit = self.shared().options().timeouts.long_request;
        self.request_within(body, limit).await
    }

    /// Sends a request whose answer is only an acknowledgement.
    async fn acknowledged(&self, body: RequestBody) -> Result<()> {
        let limit = self.shared().options().timeouts.control_request;
        self.ask_cli(body.into_json()?, limit).await.map(drop)
    }

    /// `limit` applies unless this handle has a limit of its own.
    async fn request_within<T: Lenient>(&self, body: RequestBody, limit: Duration) -> Result<Reply<T>> {
        let subtype = body.subtype;
        Reply::read(subtype, self.ask_cli(body.into_json()?, limit).await?)
    }

    async fn ask_cli(&self, body: Value, limit: Duration) -> Result<Box<RawValue>> {
        client::ask(self.shared(), body, self.limit.unwrap_or(limit)).await
    }

    /// Fails if the CLI is known to lack a capability.
    fn require(&self, capability: &str, what: &str) -> Result<()> {
        if self.has_capability(capability) != Some(false) {
            return Ok(());
        }
        let text = format!("the CLI lacks the capability `{capability}`, which {what} needs");
        Err(Error::new(ErrorKind::Unsupported, text).with_help("use a newer CLI"))
    }
}

/// The control requests that few programs need: settings files, thinking, plugins, background tasks, files.
///
/// [`Session::requests`] gives this handle. What most programs need (interrupt, model, permission mode, MCP status,
/// context usage) is on [`Session`] itself. [`requests`](crate::requests) lists all of them.
///
/// ```
/// async fn title(session: &greenroom::Session) -> greenroom::Result<()> {
///     println!("{} skills", session.requests().reload_skills().await?.skills.len());
///     let title = serde_json::json!({ "subtype": "rename_session", "title": "Sums", "source": "host" });
///     session.requests().control(title).await?;
///     Ok(())
/// }
/// # let _ = title;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    session: &'a Session,
}

impl Requests<'_> {
    /// Sends any control request to the CLI and returns its answer, for requests without a method. `body` needs a
    /// `subtype`. Settings (the model, the permission mode and others, see [`requests`](crate::requests)) are set again
    /// after a restart of the CLI. The request is withdrawn when
    /// [`Timeouts::control_request`](crate::options::Timeouts::control_request) passes or the future is dropped; a request
    /// that waits for a tool or for the model, such as `mcp_call` or `side_question`, may need a
    /// [longer limit](Session::with_request_timeout).
    ///
    /// ```
    /// async fn plan(session: &greenroom::Session) -> greenroom::Result<bool> {
    ///     let plan = session.requests().control(serde_json::json!({ "subtype": "get_plan" })).await?;
    ///     Ok(plan["exists"] == true)
    /// }
    /// # let _ = plan;
    /// ```
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) without a `subtype`, and for `initialize` and `mcp_set_servers`,
    /// which only the session may send; [`NotReady`](ErrorKind::NotReady) while there is no CLI;
    /// [`Timeout`](ErrorKind::Timeout); [`Refused`](ErrorKind::Refused) by the CLI, with the CLI's [code](Error::code)
    /// if there is one; [`Unsupported`](ErrorKind::Unsupported) if the CLI does not know the request;
    /// [`CliExited`](ErrorKind::CliExited) if the CLI exits before it answers; [`AtCapacity`](ErrorKind::AtCapacity)
    /// while too much waits for the CLI's stdin ([`Limits::outbound_bytes`](crate::options::Limits::outbound_bytes)).
    pub async fn control(self, body: Value) -> Result<Value> {
        match body.get("subtype").and_then(Value::as_str) {
            None => {
                return Err(Error::invalid_option("a control request needs a `subtype` that is a string"));
            }
            Some("initialize") => {
                return Err(Error::invalid_option("`initialize` is sent by the session itself"));
            }
            Some("mcp_set_servers") => {
                let error = Error::invalid_option("`mcp_set_servers` is sent by the session itself");
                return Err(
                    error.with_help("call `add_mcp_server`, `remove_mcp_server` or `set_mcp_servers`")
                );
            }
            Some(_) => {}
        }
        let limit = self.session.shared().options().timeouts.control_request;
        let raw = self.session.ask_cli(body, limit).await?;
        serde_json::from_str(raw.get()).map_err(|error| {
            Error::new(ErrorKind::Malformed, "the CLI's answer cannot be read").with_source(error)
        })
    }
}

/// The body of a control request.
struct RequestBody {
    subtype: &'static str,
    fields: Map<String, Value>,
    /// The first invalid field.
    wrong: Option<Error>,
}

impl RequestBody {
    fn new(subtype: &'static str) -> Self {
        let fields = Map::from_iter([("subtype".to_owned(), Value::from(subtype))]);
        Self { subtype, fields, wrong: None }
    }

    /// Adds a field.
    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a field if it has a value.
    fn maybe(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a field `true` if it is set.
    fn flag(self, name: &str, set: bool) -> Self {
        self.maybe(name, set.then_some(true))
    }

    /// Adds a path.
    fn path(self, name: &str, path: &Path) -> Self {
        match path.to_str() {
            Some(path) => self.with(name, path),
            None => self
                .refuse(format!("the path {} is not Unicode, and cannot be told to the CLI", path.display())),
        }
    }

    /// Adds an object.
    fn object(self, name: &str, value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value @ Value::Object(_)) => self.with(name, value),
            Ok(_) => {
                let subtype = self.subtype;
                self.refuse(format!("`{name}` of a {subtype} request is no object"))
            }
            Err(error) => {
                let subtype = self.subtype;
                self.refuse(format!("`{name}` of a {subtype} request does not serialise: {error}"))
            }
        }
    }

    fn refuse(mut self, text: String) -> Self {
        self.wrong.get_or_insert(Error::invalid_option(text));
        self
    }

    fn into_json(self) -> Result<Value> {
        match self.wrong {
            Some(error) => Err(error),
            None => Ok(Value::Object(self.fields)),
        }
    }
}
