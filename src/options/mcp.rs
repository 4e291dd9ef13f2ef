//! MCP servers that the CLI dials itself, and how in-process ones are announced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An MCP server that the CLI dials itself.
///
/// ```
/// use greenroom::ExternalServer;
///
/// let files = ExternalServer::stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/srv"]);
/// let search = ExternalServer::http("https://mcp.example.com/mcp");
/// # let _ = (files, search);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExternalServer {
    /// A program that speaks MCP on its stdio.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// Variables to set for it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// Any other field that the CLI knows (`timeout`, `alwaysLoad`).
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
        /// Any other field that the CLI knows (`timeout`, `alwaysLoad`, `tools`).
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
        /// Any other field that the CLI knows (`timeout`, `alwaysLoad`, `tools`).
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
}

impl ExternalServer {
    /// A program that speaks MCP on its stdio.
    pub fn stdio<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        Self::Stdio {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            extra: Map::new(),
        }
    }

    /// A server behind HTTP with server-sent events.
    pub fn sse(url: impl Into<String>) -> Self {
        Self::Sse { url: url.into(), headers: BTreeMap::new(), extra: Map::new() }
    }

    /// A server behind streamable HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        Self::Http { url: url.into(), headers: BTreeMap::new(), extra: Map::new() }
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
