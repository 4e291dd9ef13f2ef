//! MCP servers that the CLI connects to itself, and how in-process servers are announced.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::Result;
use crate::options::check::{check_name, check_server_name, refuse};
use crate::options::runtime::setting;

/// The CLI ignores a shorter timeout of a server.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// An MCP server that the CLI connects to itself, as the CLI's JSON (camelCase; the default `type` is `stdio`).
///
/// In-process servers are not given here but to [`SessionBuilder::mcp_server`](crate::SessionBuilder::mcp_server).
/// `Debug` shows the names of variables and headers without values, no arguments, and only scheme and host of a URL.
///
/// ```
/// use greenroom::options::ExternalServer;
///
/// let files = ExternalServer::stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/srv"])
///     .with_env("LOG", "1");
/// let search = ExternalServer::http("https://mcp.example.com/mcp")
///     .with_header("Authorization", "Bearer secret")
///     .with_always_load(true);
/// # let _ = (files, search);
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ExternalServer {
    /// `stdio` for a program, `http` or `sse` (server-sent events) for an address, or another word that the CLI knows.
    #[serde(rename = "type", default = "stdio")]
    pub kind: String,
    /// The program's name or path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program's arguments. Always given to a program: CLI 2.1.328 was seen not to connect to a program without
    /// `args` that is added at run time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Variables to set for the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request to the address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Permissions of single tools behind an address, such as `{"name": "wipe", "permission_policy": "always_ask"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Limit for a call of a tool, in milliseconds in JSON, at least a second. Progress does not extend it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "setting")]
    pub timeout: Option<Duration>,
    /// Whether the model's request lists the server's tools from the start, for which the start of the CLI waits up
    /// to 5 s (true), or the model searches for them (false). Default: the CLI's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_load: Option<bool>,
    /// Other fields that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn stdio() -> String {
    "stdio".into()
}

impl Serialize for ExternalServer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.kind == "stdio" && self.args.is_none() {
            return Self::serialize(&Self { args: Some(Vec::new()), ..self.clone() }, serializer);
        }
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ExternalServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut server = Self::deserialize(deserializer)?;
        if server.kind == "stdio" {
            server.args.get_or_insert_default();
        }
        Ok(server)
    }
}

impl ExternalServer {
    fn new(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            command: None,
            args: None,
            env: BTreeMap::new(),
            url: None,
            headers: BTreeMap::new(),
            tools: Vec::new(),
            timeout: None,
            always_load: None,
            extra: Map::new(),
        }
    }

    /// A program that speaks MCP on its stdin and stdout.
    pub fn stdio<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { command: Some(command.into()), args: Some(args), ..Self::new("stdio") }
    }

    /// A server behind streamable HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::new("http") }
    }

    /// Sets an environment variable of the program. A server behind an address has none.
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if self.kind == "stdio" {
            self.env.insert(name.into(), value.into());
        }
        self
    }

    /// Adds a header. A program gets none.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if self.kind != "stdio" {
            self.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Whether the model's request lists the server's tools from the start.
    pub fn with_always_load(mut self, always: bool) -> Self {
        self.always_load = Some(always);
        self
    }
}

/// Validates the servers of the option.
pub(crate) fn validate(servers: &BTreeMap<String, ExternalServer>, option: &str) -> Result<()> {
    for (name, server) in servers {
        check_name(option, name)?;
        check_server_name(name)?;
        if server.timeout.is_some_and(|timeout| timeout < SHORTEST_TIMEOUT) {
            let text = format!(
                "option `{option}`: the timeout of '{name}' is under a second, which the CLI ignores"
            );
            return refuse(text, "give it at least a second, or none");
        }
        let (field, needed) = match server.kind.as_str() {
            "stdio" => ("command", &server.command),
            "http" | "sse" => ("url", &server.url),
            "sdk" => {
                let text = format!("option `{option}`: the server '{name}' has the type `sdk`");
                return refuse(text, "give in-process servers to `SessionBuilder::mcp_server`");
            }
            _ => continue,
        };
        if needed.as_ref().is_none_or(|text| text.trim().is_empty()) {
            let text = format!("option `{option}`: the server '{name}' has no {field}");
            return refuse(text, "give the `command` of a program, or the `url` of a server behind HTTP");
        }
    }
    Ok(())
}
