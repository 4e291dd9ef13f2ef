//! MCP servers that the CLI dials itself, and how in-process ones are announced.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::check_name;
use super::timeouts::optional_millis;
use super::word::words;
use crate::error::{Error, Result};

/// The CLI takes no notice of a shorter limit for calls.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// An MCP server that the CLI dials itself, in the CLI's own form (camelCase in JSON; without a `type` it is `stdio`).
/// Its `Debug` form has the names of variables and headers only, and neither arguments nor what follows `?` in an address.
///
/// ```
/// use std::time::Duration;
/// use greenroom::ExternalServer;
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
        /// The program.
        command: String,
        /// Its arguments. Always written: CLI 2.1.328 was seen not to connect to one that is added at run time
        /// without any.
        #[serde(default)]
        args: Vec<String>,
        /// Variables to set for it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// How long a call of its tools may take, in milliseconds; progress does not extend it. At least a second.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
        timeout: Option<Duration>,
        /// Whether its tools are in the model's request from the start (true, for which the CLI's start waits up to 5 s),
        /// or are searched for (false). Default: the CLI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always_load: Option<bool>,
        /// Any other field that the CLI knows.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A server behind HTTP with server-sent events.
    Sse {
        /// Its address.
        url: String,
        /// Headers to send.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// How the calls of single tools are decided on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ExternalToolPolicy>,
        /// As for `Stdio`.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
        timeout: Option<Duration>,
        /// As for `Stdio`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always_load: Option<bool>,
        /// Any other field that the CLI knows.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A server behind streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// Headers to send.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// How the calls of single tools are decided on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ExternalToolPolicy>,
        /// As for `Stdio`.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
        timeout: Option<Duration>,
        /// As for `Stdio`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always_load: Option<bool>,
        /// Any other field that the CLI knows.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A server of a `type` that this library does not know, as it is.
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
            // What the derived code would take as `Other` because of a field that does not fit is an error.
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

/// Why the fields do not make a server of this kind.
fn misfit(kind: &str, fields: &Map<String, Value>) -> String {
    let needed = if kind == "stdio" { "command" } else { "url" };
    if fields.get(needed).is_some_and(Value::is_string) {
        format!("a field of an MCP server of the type `{kind}` has another shape than expected")
    } else {
        format!("an MCP server of the type `{kind}` needs a `{needed}` that is a string")
    }
}

impl ExternalServer {
    /// A program that speaks MCP on its stdio.
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

    /// With a variable, for a program. Others have none.
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Stdio { env, .. } = &mut self {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// With a header, for a server behind HTTP. A program has none.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Sse { headers, .. } | Self::Http { headers, .. } = &mut self {
            headers.insert(name.into(), value.into());
        }
        self
    }

    /// With a policy for one of its tools, for a server behind HTTP. A program has none.
    pub fn with_tool_policy(mut self, policy: ExternalToolPolicy) -> Self {
        if let Self::Sse { tools, .. } | Self::Http { tools, .. } = &mut self {
            tools.push(policy);
        }
        self
    }

    /// With a limit for calls of its tools. At least a second.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        if let Self::Stdio { timeout, .. } | Self::Sse { timeout, .. } | Self::Http { timeout, .. } =
            &mut self
        {
            *timeout = Some(limit);
        }
        self
    }

    /// With its tools in the model's request from the start, or not.
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

/// How the calls of one tool of an MCP server are decided on.
///
/// ```
/// use greenroom::options::{ToolPermission, ExternalToolPolicy};
///
/// let policy = ExternalToolPolicy::new("wipe", ToolPermission::AlwaysAsk);
/// assert_eq!(serde_json::to_value(&policy)?["permission_policy"], "always_ask");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExternalToolPolicy {
    /// The tool, by the name that its server gives it.
    pub name: String,
    /// The decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<ToolPermission>,
    /// The most that an administrator allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_max_permission: Option<OrgPermission>,
    /// Any other field that the CLI knows.
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
    /// A decision on all calls of a tool.
    ///
    /// ```
    /// assert_eq!(greenroom::options::ToolPermission::AlwaysDeny.as_str(), "always_deny");
    /// ```
    pub enum ToolPermission {
        /// They run.
        AlwaysAllow = "always_allow",
        /// They are asked for, also where a rule or the mode would allow them.
        AlwaysAsk = "always_ask",
        /// They do not run.
        AlwaysDeny = "always_deny",
    }
}

words! {
    /// The most that an administrator allows for a tool.
    ///
    /// ```
    /// assert_eq!(greenroom::options::OrgPermission::Blocked.as_str(), "blocked");
    /// ```
    pub enum OrgPermission {
        /// Everything.
        Allow = "allow",
        /// Calls after asking, in the mode `auto` too.
        Ask = "ask",
        /// No call.
        Blocked = "blocked",
    }
}

/// How in-process servers are announced to the CLI.
///
/// ```
/// assert_eq!(greenroom::McpRegistration::default(), greenroom::McpRegistration::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum McpRegistration {
    /// By `initialize`. A CLI whose answer shows that it took no notice is started once more with
    /// `--mcp-config`, and that stays so for the session.
    #[default]
    Auto,
    /// By `initialize`, with the handshake's results beside the names: no round trip before the first turn.
    Initialize,
    /// By `--mcp-config`, for CLIs that know nothing else.
    McpConfig,
}

/// What is wrong with servers, in an option of this name.
pub(super) fn validate(servers: &BTreeMap<String, ExternalServer>, option: &str) -> Result<()> {
    for (name, server) in servers {
        check_name(option, name)?;
        if server.timeout().is_some_and(|timeout| timeout < SHORTEST_TIMEOUT) {
            let text =
                format!("option `{option}` has a timeout under a second for '{name}', which the CLI ignores");
            return Err(Error::invalid_option(text).with_help("give it at least a second, or none"));
        }
        let empty = match server {
            ExternalServer::Stdio { command, .. } => command.trim().is_empty().then_some("command"),
            ExternalServer::Sse { url, .. } | ExternalServer::Http { url, .. } => {
                url.trim().is_empty().then_some("url")
            }
            ExternalServer::Other(fields) if fields.get("type").is_some_and(|kind| kind == "sdk") => {
                let text = format!("option `{option}` has a server '{name}' of the type `sdk`");
                return Err(Error::invalid_option(text)
                    .with_help("give servers of this process to `SessionBuilder::mcp_server`"));
            }
            ExternalServer::Other(_) => None,
        };
        if let Some(field) = empty {
            return Err(Error::invalid_option(format!(
                "option `{option}` has a server '{name}' without a {field}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_is_read_in_the_form_of_the_cli_and_written_in_the_same() {
        let table = [
            json!({ "type": "stdio", "command": "npx", "args": ["-y"], "env": { "A": "b" }, "timeout": 2000, "alwaysLoad": true, "new": 1 }),
            json!({ "type": "sse", "url": "https://x", "headers": { "H": "v" }, "alwaysLoad": false, "tools": [
                { "name": "wipe", "permission_policy": "always_ask", "org_max_permission": "blocked" },
            ]}),
            json!({ "type": "http", "url": "https://x", "timeout": 1500 }),
            json!({ "type": "ws", "url": "wss://x", "more": [1] }),
        ];
        for wire in table {
            let server: ExternalServer = serde_json::from_value(wire.clone()).unwrap();
            assert_eq!(matches!(server, ExternalServer::Other(_)), wire["type"] == "ws", "{server:?}");
            assert_eq!(serde_json::to_value(&server).unwrap(), wire);
        }
        let short: ExternalServer = serde_json::from_value(json!({ "command": "npx" })).unwrap();
        assert_eq!(short, ExternalServer::stdio("npx", [""; 0]));
    }

    #[test]
    fn a_server_that_lacks_what_it_needs_is_an_error_and_no_unknown_type() {
        for (wire, names) in [
            (json!({ "type": "http" }), "`url`"),
            (json!({ "args": [] }), "`command`"),
            (json!({ "command": "x", "timeout": "soon" }), "`stdio`"),
        ] {
            let error = serde_json::from_value::<ExternalServer>(wire).unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
    }
}
