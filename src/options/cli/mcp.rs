//! MCP servers that the CLI connects to itself, and how in-process servers are announced.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::options::check::{check_name, check_server_name};
use crate::options::runtime::timeouts::optional_millis;
use crate::wire::words::words;

/// The CLI ignores a shorter timeout of a server.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// An MCP server that the CLI connects to itself, as the CLI's JSON (camelCase; the default `type` is `stdio`).
///
/// In-process servers are not given here but to [`SessionBuilder::mcp_server`](crate::SessionBuilder::mcp_server).
/// `Debug` shows the names of variables and headers without values, no arguments, and only scheme and host of a URL.
///
/// ```
/// use std::time::Duration;
/// use greenroom::options::ExternalServer;
///
/// let files = ExternalServer::stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/srv"])
///     .with_env("LOG", "1");
/// let search = ExternalServer::http("https://mcp.example.com/mcp")
///     .with_header("Authorization", "Bearer secret")
///     .with_timeout(Duration::from_secs(30))
///     .with_always_load(true);
/// # let _ = (files, search);
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ExternalServer {
    /// A program that speaks MCP on its stdio.
    Stdio {
        /// The program's name or path.
        command: String,
        /// Always written, because CLI 2.1.328 was seen not to connect to a server without `args` that is added at run
        /// time.
        #[serde(default)]
        args: Vec<String>,
        /// Variables to set for the program.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// Limit for a call of a tool, in milliseconds in JSON, at least a second. Progress does not extend it.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
        timeout: Option<Duration>,
        /// Whether the model's request lists the server's tools from the start, for which the start of the CLI waits up
        /// to 5 s (true), or the model searches for them (false). Default: the CLI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always_load: Option<bool>,
        /// Other fields that the CLI knows.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A server that speaks HTTP with server-sent events. Fields as for `Http`.
    #[allow(missing_docs, reason = "the fields are those of `Http`")]
    Sse {
        url: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ExternalToolPolicy>,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
        timeout: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always_load: Option<bool>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A server that speaks streamable HTTP.
    Http {
        /// The server's address.
        url: String,
        /// Headers of each request.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// Permissions of single tools.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ExternalToolPolicy>,
        /// As for `Stdio`.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
        timeout: Option<Duration>,
        /// As for `Stdio`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always_load: Option<bool>,
        /// Other fields that the CLI knows.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// The JSON of a server whose `type` this library does not know.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

impl Serialize for ExternalServer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ExternalServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut fields = <Map<String, Value> as Deserialize>::deserialize(deserializer)?;
        match fields.entry("type").or_insert_with(|| "stdio".into()).as_str() {
            // The derived code would read a known `type` with a wrong field as `Other`; that is an error.
            Some(kind @ ("stdio" | "sse" | "http")) => {
                let kind = kind.to_owned();
                match Self::deserialize(Value::Object(fields)).map_err(D::Error::custom)? {
                    Self::Other(fields) => Err(D::Error::custom(misfit(&kind, &fields))),
                    server => Ok(server),
                }
            }
            _ => Ok(Self::Other(fields)),
        }
    }
}

/// Error text for fields that do not make a server of this kind.
fn misfit(kind: &str, fields: &Map<String, Value>) -> String {
    let needed = if kind == "stdio" { "command" } else { "url" };
    if fields.get(needed).is_some_and(Value::is_string) {
        format!("a field of the MCP server of type `{kind}` has the wrong type")
    } else {
        format!("the MCP server of type `{kind}` has no string `{needed}`")
    }
}

impl ExternalServer {
    /// A program that speaks MCP on its stdin and stdout.
    pub fn stdio<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        Self::Stdio {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            timeout: None,
            always_load: None,
            extra: Map::new(),
        }
    }

    /// A server behind HTTP with server-sent events.
    pub fn sse(url: impl Into<String>) -> Self {
        Self::Sse {
            url: url.into(),
            headers: BTreeMap::new(),
            tools: Vec::new(),
            timeout: None,
            always_load: None,
            extra: Map::new(),
        }
    }

    /// A server behind streamable HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        Self::Http {
            url: url.into(),
            headers: BTreeMap::new(),
            tools: Vec::new(),
            timeout: None,
            always_load: None,
            extra: Map::new(),
        }
    }

    /// Sets an environment variable. Ignored for servers behind HTTP.
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Stdio { env, .. } = &mut self {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// Adds a header. Ignored for programs.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Sse { headers, .. } | Self::Http { headers, .. } = &mut self {
            headers.insert(name.into(), value.into());
        }
        self
    }

    /// Adds a permission for one tool. Ignored for programs.
    pub fn with_tool_policy(mut self, policy: ExternalToolPolicy) -> Self {
        if let Self::Sse { tools, .. } | Self::Http { tools, .. } = &mut self {
            tools.push(policy);
        }
        self
    }

    /// Limits calls of the server's tools; at least a second.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        if let Self::Stdio { timeout, .. } | Self::Sse { timeout, .. } | Self::Http { timeout, .. } =
            &mut self
        {
            *timeout = Some(limit);
        }
        self
    }

    /// Whether the model's request lists the server's tools from the start.
    pub fn with_always_load(mut self, always: bool) -> Self {
        if let Self::Stdio { always_load, .. }
        | Self::Sse { always_load, .. }
        | Self::Http { always_load, .. } = &mut self
        {
            *always_load = Some(always);
        }
        self
    }

    fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Stdio { timeout, .. } | Self::Sse { timeout, .. } | Self::Http { timeout, .. } => *timeout,
            Self::Other(_) => None,
        }
    }
}

/// The permission of one tool of an MCP server behind HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExternalToolPolicy {
    /// The tool's name on its server.
    pub name: String,
    /// The decision on calls of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<ToolPermission>,
    /// The most that an administrator allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_max_permission: Option<OrgPermission>,
    /// Other fields that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ExternalToolPolicy {
    /// A policy for the tool of this name.
    pub fn new(name: impl Into<String>, permission: ToolPermission) -> Self {
        Self {
            name: name.into(),
            permission_policy: Some(permission),
            org_max_permission: None,
            extra: Map::new(),
        }
    }
}

words! {
    /// The decision on all calls of a tool.
    pub enum ToolPermission {
        /// Every call runs.
        AlwaysAllow = "always_allow",
        /// Every call asks, even if a rule or the permission mode would allow it.
        AlwaysAsk = "always_ask",
        /// No call runs.
        AlwaysDeny = "always_deny",
    }
}

words! {
    /// The most that an administrator allows for a tool.
    pub enum OrgPermission {
        /// Every decision.
        Allow = "allow",
        /// Calls after asking, also in the mode `auto`.
        Ask = "ask",
        /// No calls.
        Blocked = "blocked",
    }
}

/// Validates the servers of the option.
pub(crate) fn validate(servers: &BTreeMap<String, ExternalServer>, option: &str) -> Result<()> {
    for (name, server) in servers {
        check_name(option, name)?;
        check_server_name(name)?;
        if server.timeout().is_some_and(|timeout| timeout < SHORTEST_TIMEOUT) {
            let text = format!(
                "option `{option}`: the timeout of '{name}' is under a second, which the CLI ignores"
            );
            return Err(Error::invalid_option(text).with_help("give it at least a second, or none"));
        }
        let empty = match server {
            ExternalServer::Stdio { command, .. } => command.trim().is_empty().then_some("command"),
            ExternalServer::Sse { url, .. } | ExternalServer::Http { url, .. } => {
                url.trim().is_empty().then_some("url")
            }
            ExternalServer::Other(fields) if fields.get("type").is_some_and(|kind| kind == "sdk") => {
                let text = format!("option `{option}`: the server '{name}' has the type `sdk`");
                return Err(Error::invalid_option(text)
                    .with_help("give in-process servers to `SessionBuilder::mcp_server`"));
            }
            ExternalServer::Other(_) => None,
        };
        if let Some(field) = empty {
            return Err(Error::invalid_option(format!(
                "option `{option}`: the server '{name}' has no {field}"
            ))
            .with_help("give the `command` of a program, or the `url` of a server behind HTTP"));
        }
    }
    Ok(())
}
