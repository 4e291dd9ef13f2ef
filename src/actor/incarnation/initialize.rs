//! The first request to every incarnation, `initialize`, and its answer.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::Options;
use crate::actor::context::SessionSpec;
use crate::actor::servers::roster::{InsideServer, Roster};
use crate::control::{Hook, OnFailure};
use crate::error::Result;
use crate::options::{Delivery, McpRegistration};
use crate::transport::{Channel, LaunchSpec, Resume, StderrSink, fields, has_private};
use crate::wire::lenient::read_object;

/// The channels for options that may be arguments or fields of `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    /// The channel for in-process servers.
    pub(crate) servers: Channel,
    /// The channel for options that may be secret.
    pub(crate) private: Channel,
}

impl Channels {
    /// The channels of the first incarnation.
    pub(crate) fn first(options: &Options) -> Self {
        Self {
            servers: match options.mcp_registration {
                McpRegistration::McpConfig => Channel::Arguments,
                _ => Channel::Initialize,
            },
            private: match options.delivery {
                Delivery::Arguments => Channel::Arguments,
                _ => Channel::Initialize,
            },
        }
    }
}

/// The launch of an incarnation.
pub(crate) fn launch_spec(
    spec: &SessionSpec,
    roster: &Roster,
    channels: Channels,
    epoch: u64,
    resume: Resume,
    stderr: StderrSink,
) -> LaunchSpec {
    LaunchSpec {
        epoch,
        resume,
        sdk_servers_by_config: match channels.servers {
            Channel::Initialize => Vec::new(),
            Channel::Arguments => roster
                .inside()
                .iter()
                .map(|server| (server.spec.name.clone(), server.spec.settings()))
                .collect(),
        },
        private: channels.private,
        permission_prompt: spec.handlers.are_asked(spec.options.permission_prompt_tool_name.as_deref()),
        session_mirror: spec.mirror.is_some(),
        stderr,
    }
}

/// The body of `initialize`.
///
/// # Errors
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for an option that cannot be written as JSON.
pub(crate) fn body(
    spec: &SessionSpec,
    roster: &Roster,
    channels: Channels,
    resume: &Resume,
) -> Result<Value> {
    let timeouts = &spec.options.timeouts;
    let mut body = fields(&spec.options, channels.private)?;
    if resume.session_id().is_some() {
        // The title of a new conversation. The resumed conversation has a title, which may have changed since.
        body.remove("title");
    }
    body.insert("subtype".into(), json!("initialize"));
    body.insert(
        "hooks".into(),
        if spec.handlers.hooks.is_empty() {
            Value::Null
        } else {
            Hook::to_wire(&spec.handlers.hooks, timeouts.hook, timeouts.cancel_grace)
        },
    );
    let dialog_kinds = spec.handlers.dialog_kinds();
    if !dialog_kinds.is_empty() {
        body.insert("supportedDialogKinds".into(), json!(dialog_kinds));
    }
    if channels.servers == Channel::Initialize && !roster.inside().is_empty() {
        let mut names = Vec::new();
        let mut configs = Map::new();
        let mut manifests = Map::new();
        for InsideServer { spec: server, .. } in roster.inside() {
            names.push(server.name.clone());
            let settings = server.settings();
            if !settings.is_empty() {
                configs.insert(server.name.clone(), Value::Object(settings));
            }
            manifests.extend(server.manifest().map(|manifest| (server.name.clone(), manifest)));
        }
        body.insert("sdkMcpServers".into(), json!(names));
        body.insert("sdkMcpServerManifests".into(), Value::Object(manifests));
        if !configs.is_empty() {
            body.insert("sdkMcpServerConfigs".into(), Value::Object(configs));
        }
    }
    Ok(Value::Object(body))
}

/// The fields of the CLI's answer that the handshake depends on.
#[derive(Debug, Default)]
pub(crate) struct InitializeAnswer {
    pub(crate) claude_code_version: Option<String>,
    pid: Option<u64>,
    pub(crate) capabilities: Vec<String>,
    sdk_mcp_manifests_parked: Option<Map<String, Value>>,
    hook_on_failure_supported: Option<bool>,
    hooks_applied: Option<bool>,
    /// The `*_applied` fields: whether the CLI applied a field that it takes only when it is told to wait for
    /// `initialize`.
    applied: BTreeMap<String, bool>,
}

/// The fields of `initialize` that a CLI takes only when it is told to wait for them: the field, the field of the
/// answer about it, and whether an answer of false is enough because it shows that the CLI has seen the field.
const PRIVATE: [(&str, &str, bool); 4] = [
    ("mcpServers", "mcp_servers_applied", true),
    ("plugins", "plugins_applied", true),
    ("settings", "settings_applied", false),
    ("managedSettings", "managed_settings_applied", false),
];

/// The flags that tell a CLI to wait for `initialize`. A CLI that does not know a flag says so on stderr, and exits.
const WAIT_FLAGS: [&str; 3] =
    ["--await-initialize", "--initialize-fields", "--managed-settings-in-initialize"];

/// Whether a CLI exited at once because it cannot take private options from `initialize`.
pub(crate) fn knows_no_private(options: &Options, stderr: &str) -> bool {
    let unknown =
        |line: &str| line.contains("unknown option") && WAIT_FLAGS.iter().any(|flag| line.contains(flag));
    has_private(options) && stderr.lines().any(unknown)
}

impl InitializeAnswer {
    /// Reads the answer. A field of an unexpected shape counts as missing.
    pub(crate) fn parse(raw: &RawValue) -> Self {
        let mut answer = Self::default();
        let Ok(fields) = serde_json::from_str::<Map<String, Value>>(raw.get()) else { return answer };
        for (name, value) in fields {
            match name.as_str() {
                "claude_code_version" => answer.claude_code_version = value.as_str().map(str::to_owned),
                "pid" => answer.pid = value.as_u64(),
                "capabilities" => answer.capabilities = serde_json::from_value(value).unwrap_or_default(),
                "sdk_mcp_manifests_parked" => {
                    answer.sdk_mcp_manifests_parked = serde_json::from_value(value).unwrap_or_default();
                }
                "hook_on_failure_supported" => answer.hook_on_failure_supported = value.as_bool(),
                "hooks_applied" => answer.hooks_applied = value.as_bool(),
                name => {
                    if let (Some(applied), true) = (value.as_bool(), name.ends_with("_applied")) {
                        answer.applied.insert(name.to_owned(), applied);
                    }
                }
            }
        }
        answer
    }

    /// Whether the version is missing, and the CLI answers when it is asked for it. CLI 2.1.5 says no `pid`, and leaves
    /// requests that it does not know without an answer; CLI 2.1.72 says its `pid`, and refuses such requests.
    pub(crate) fn says_version_if_asked(&self) -> bool {
        self.claude_code_version.is_none() && self.pid.is_some()
    }

    /// Whether the answer shows that the CLI took in-process servers from `initialize`.
    pub(crate) fn shows_registration(&self) -> bool {
        self.sdk_mcp_manifests_parked.is_some()
            || self.capabilities.iter().any(|known| known == "sdk_mcp_manifests")
    }

    /// Whether the CLI says that it did not take the hooks.
    pub(crate) fn hooks_were_left_out(&self, spec: &SessionSpec) -> bool {
        !spec.handlers.hooks.is_empty() && self.hooks_applied == Some(false)
    }

    /// A private field of the sent `initialize` that the CLI ignored. Settings have to be applied, because they may
    /// restrict the session. Servers and plugins have to be seen: a server or plugin that does not work is reported
    /// otherwise.
    pub(crate) fn overlooked(&self, sent: &Value) -> Option<&'static str> {
        let overlooked = |(_, answer, seen): &&(&str, &str, bool)| match self.applied.get(*answer) {
            Some(applied) => !applied && !seen,
            None => true,
        };
        PRIVATE
            .iter()
            .filter(|(field, ..)| sent.get(*field).is_some())
            .find(overlooked)
            .map(|(field, ..)| *field)
    }

    /// The private fields of the sent `initialize` that the CLI has seen and not applied.
    pub(crate) fn not_applied(&self, sent: &Value) -> impl Iterator<Item = &'static str> {
        PRIVATE
            .iter()
            .filter(|(field, answer, _)| {
                sent.get(*field).is_some() && self.applied.get(*answer) == Some(&false)
            })
            .map(|(field, ..)| *field)
    }

    /// The reason to end the CLI: a hook that must block when it fails would not block.
    pub(crate) fn unfit(&self, spec: &SessionSpec) -> Option<String> {
        let blocks = spec.handlers.hooks.iter().any(|hook| hook.on_failure == OnFailure::Block);
        if blocks && self.hook_on_failure_supported != Some(true) {
            return Some(
                "it does not know `onFailure` of hooks, and a hook of this session must block when it fails"
                    .into(),
            );
        }
        if blocks && self.hooks_applied == Some(false) {
            return Some("it did not take the hooks, and one of them must block when it fails".into());
        }
        None
    }
}

/// Whether an answer to `mcp_status` lists all in-process servers.
pub(crate) fn lists_servers(status: &RawValue, roster: &Roster) -> bool {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default, rename = "mcpServers")]
        servers: Vec<Value>,
    }
    let Ok(status) = read_object::<Status>(status.get()) else { return false };
    roster
        .inside()
        .iter()
        .all(|server| status.servers.iter().any(|row| row["name"] == server.spec.name.as_str()))
}
