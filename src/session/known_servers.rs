//! The names of the MCP servers that a session is given, to find names that clash and names that nothing has.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::builder::SessionBuilder;
use crate::Options;
use crate::actor::servers::roster::{ServerOrigin, refuse_clash};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};

impl SessionBuilder {
    /// Lets all tools of a server run without asking. Hooks still see their calls. The server is one of this builder:
    /// given to [`mcp_server`](SessionBuilder::mcp_server), [`external_mcp_server`](SessionBuilder::external_mcp_server)
    /// or [`Options::mcp_servers`], or named in one of [`Options::mcp_config_files`].
    /// [`start`](SessionBuilder::start) refuses any other name, and lists the known ones. If a config file cannot be
    /// read, or `extra_args` has an `mcp-config`, every name is taken.
    ///
    /// For a server that is added later, call
    /// [`Session::allow_server_tools`](crate::Session::allow_server_tools). For a server that only the CLI knows,
    /// from `.mcp.json`, settings or plugins, use [`allow_tool`](SessionBuilder::allow_tool) with the rule
    /// `mcp__NAME__*`.
    pub fn allow_server_tools(mut self, server: impl Into<String>) -> Self {
        self.allowed_servers.push(server.into());
        self
    }

    /// Refuses two servers with one name, and a name in `allow_server_tools` that no server has.
    pub(super) fn validate_server_names(&self, files: &ConfigFiles) -> Result<()> {
        let outside = self.options.mcp_servers.keys().map(|name| (name.as_str(), ServerOrigin::Outside));
        let inside = self.servers.iter().map(|server| (server.name.as_str(), ServerOrigin::Inside));
        let in_files = files.names.iter();
        let in_files = in_files.map(|(name, path)| (name.as_str(), ServerOrigin::File(path as &Path)));
        let known: Vec<_> = outside.chain(inside).chain(in_files).collect();
        for (index, server) in known.iter().enumerate() {
            // Of two files that name one server, the CLI takes the later one, which may be intended.
            let is_file = |(_, origin): &(&str, ServerOrigin<'_>)| matches!(origin, ServerOrigin::File(_));
            let earlier = known[..index].iter().filter(|earlier| !(is_file(server) && is_file(earlier)));
            refuse_clash(*server, earlier.copied())?;
        }
        let complete = files.complete && !self.options.extra_args.contains_key("mcp-config");
        let unknown = |name: &&String| complete && !known.iter().any(|(known, _)| known == name);
        match self.allowed_servers.iter().find(unknown) {
            None => Ok(()),
            Some(name) => Err(unknown_server(name, &known)),
        }
    }
}

/// The names of the servers in `mcp_config_files`.
pub(super) struct ConfigFiles {
    names: Vec<(String, PathBuf)>,
    /// Whether there are no more names than these: every file could be read.
    complete: bool,
}

impl ConfigFiles {
    /// The files are not read: any name may be in them.
    pub(super) fn unread(options: &Options) -> Self {
        Self { names: Vec::new(), complete: options.mcp_config_files.is_empty() }
    }

    /// Reads the files within `timeouts.start`. A relative path starts at the CLI's working directory, as it does for
    /// the CLI. A file that cannot be read is left to the CLI, which says so.
    pub(super) async fn read(options: &Options) -> Self {
        let mut files = Self { names: Vec::new(), complete: true };
        for path in &options.mcp_config_files {
            let file = options.cwd.clone().unwrap_or_default().join(path);
            let reading = blocking(move || {
                std::fs::read_to_string(file).map_err(|error| Error::new(ErrorKind::Io, error.to_string()))
            });
            let text = tokio::time::timeout(options.timeouts.start, reading).await;
            match text.ok().and_then(Result::ok).and_then(|text| names_in(&text)) {
                Some(names) => files.names.extend(names.into_iter().map(|name| (name, path.clone()))),
                None => files.complete = false,
            }
        }
        files
    }
}

/// The names of the servers in a file, if the file is in the CLI's format.
fn names_in(text: &str) -> Option<Vec<String>> {
    let content: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()?;
    Some(content.get("mcpServers")?.as_object()?.keys().cloned().collect())
}

fn unknown_server(name: &str, known: &[(&str, ServerOrigin<'_>)]) -> Error {
    let mut names: Vec<String> = known.iter().map(|(known, _)| format!("'{known}'")).collect();
    names.sort_unstable();
    let has = match names.as_slice() {
        [] => "this session has no MCP server".to_owned(),
        [one] => format!("the only MCP server of this session is {one}"),
        several => format!("the MCP servers of this session are {}", several.join(", ")),
    };
    let text = format!("`allow_server_tools` names '{name}', but {has}");
    Error::invalid_option(text).with_help(format!(
        "correct the name, or give the server to the session; call `Session::allow_server_tools` for a server that is \
         added later, and `allow_tool(\"mcp__{name}__*\")` for a server that only the CLI knows (`.mcp.json`, \
         settings, plugins)"
    ))
}
