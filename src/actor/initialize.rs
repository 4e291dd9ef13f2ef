//! The first request of every incarnation, and what its answer says of the CLI.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::roster::Roster;
use super::shared::SessionSpec;
use crate::control::{Hook, OnFailure};
use crate::error::Result;
use crate::options::{Delivery, McpRegistration, Options};
use crate::transport::{LaunchSpec, Resume, StderrSink, Way, fields, has_private};

/// How an incarnation is told what may be said in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// In-process servers.
    pub(crate) servers: Way,
    /// What may be secret.
    pub(crate) private: Way,
}

impl Ways {
    /// Those of the first incarnation.
    pub(crate) fn first(options: &Options) -> Self {
        Self {
            servers: match options.mcp_registration {
                McpRegistration::McpConfig => Way::Arguments,
                _ => Way::Initialize,
            },
            private: match options.delivery {
                Delivery::Arguments => Way::Arguments,
                _ => Way::Initialize,
            },
        }
    }
}

/// What is said to an incarnation when it is launched.
pub(crate) fn launch_spec(
    spec: &SessionSpec,
    roster: &Roster,
    ways: Ways,
    epoch: u64,
    resume: Resume,
    stderr: StderrSink,
) -> LaunchSpec {
    LaunchSpec {
        epoch,
        resume,
        sdk_servers_by_config: match ways.servers {
            Way::Initialize => Vec::new(),
            Way::Arguments => {
                roster.inside().iter().map(|server| (server.name.clone(), server.settings())).collect()
            }
        },
        private: ways.private,
        permission_prompt: spec.handlers.decide(),
        replay_user_messages: false,
        session_mirror: spec.mirror.is_some(),
        stderr,
    }
}

/// The body of `initialize`.
///
/// # Errors
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for an option that cannot be written as JSON.
pub(crate) fn body(spec: &SessionSpec, roster: &Roster, ways: Ways, resume: &Resume) -> Result<Value> {
    let timeouts = &spec.options.timeouts;
    let mut body = fields(&spec.options, ways.private)?;
    if resume.session_id().is_some() {
        // That is of a new conversation. The captured one has its title, which may be another by now.
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
    if !spec.handlers.dialog_kinds.is_empty() {
        body.insert("supportedDialogKinds".into(), json!(spec.handlers.dialog_kinds));
    }
    if ways.servers == Way::Initialize && !roster.inside().is_empty() {
        let mut names = Vec::new();
        let mut configs = Map::new();
        let mut manifests = Map::new();
        for server in roster.inside() {
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

/// What the answer says that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answered {
    pub(crate) claude_code_version: Option<String>,
    pub(crate) capabilities: Vec<String>,
    sdk_mcp_manifests_parked: Option<Map<String, Value>>,
    hook_on_failure_supported: Option<bool>,
    hooks_applied: Option<bool>,
    /// Which of the fields that a CLI takes only when it is told to wait for them it says it has taken.
    applied: BTreeMap<String, bool>,
}

/// What a CLI says of fields of `initialize` that it takes only when it is told to wait for them: the field, what its
/// answer says of it, and whether it is told no more of than that the CLI has seen it.
const PRIVATE: [(&str, &str, bool); 4] = [
    ("mcpServers", "mcp_servers_applied", true),
    ("plugins", "plugins_applied", true),
    ("settings", "settings_applied", false),
    ("managedSettings", "managed_settings_applied", false),
];

/// The flags by which a CLI is told to wait for them. One that does not know a flag says so on stderr, and exits.
const WAITS: [&str; 3] = ["--await-initialize", "--initialize-fields", "--managed-settings-in-initialize"];

/// Whether a CLI that exited at once did so because it cannot take anything private from `initialize`.
pub(crate) fn knows_no_private(options: &Options, stderr: &str) -> bool {
    let unknown =
        |line: &str| line.contains("unknown option") && WAITS.iter().any(|flag| line.contains(flag));
    has_private(options) && stderr.lines().any(unknown)
}

impl Answered {
    /// Reads the answer; fields of another shape than expected count as not there.
    pub(crate) fn parse(raw: &RawValue) -> Self {
        let mut answered = Self::default();
        let Ok(fields) = serde_json::from_str::<Map<String, Value>>(raw.get()) else { return answered };
        for (name, value) in fields {
            match name.as_str() {
                "claude_code_version" => answered.claude_code_version = value.as_str().map(str::to_owned),
                "capabilities" => answered.capabilities = serde_json::from_value(value).unwrap_or_default(),
                "sdk_mcp_manifests_parked" => {
                    answered.sdk_mcp_manifests_parked = serde_json::from_value(value).unwrap_or_default();
                }
                "hook_on_failure_supported" => answered.hook_on_failure_supported = value.as_bool(),
                "hooks_applied" => answered.hooks_applied = value.as_bool(),
                name => {
                    if let (Some(applied), true) = (value.as_bool(), name.ends_with("_applied")) {
                        answered.applied.insert(name.to_owned(), applied);
                    }
                }
            }
        }
        answered
    }

    /// Whether the answer itself shows that the CLI took in-process servers from `initialize`.
    pub(crate) fn shows_registration(&self) -> bool {
        self.sdk_mcp_manifests_parked.is_some()
            || self.capabilities.iter().any(|known| known == "sdk_mcp_manifests")
    }

    /// Whether the CLI says that it did not take hooks that may go without.
    pub(crate) fn hooks_were_left_out(&self, spec: &SessionSpec) -> bool {
        !spec.handlers.hooks.is_empty() && self.hooks_applied == Some(false)
    }

    /// A private field of this `initialize` of which the CLI took no notice. What restricts the session has to be in
    /// force; servers and plugins are told of otherwise when one of them is not.
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

    /// The private fields of this `initialize` that the CLI has seen and not taken.
    pub(crate) fn not_applied(&self, sent: &Value) -> impl Iterator<Item = &'static str> {
        PRIVATE
            .iter()
            .filter(|(field, answer, _)| {
                sent.get(*field).is_some() && self.applied.get(*answer) == Some(&false)
            })
            .map(|(field, ..)| *field)
    }

    /// Why the session must not go on, if it must not: a hook that is there to block would not.
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

/// Whether `mcp_status` lists all of these servers.
pub(crate) fn lists_servers(status: &RawValue, roster: &Roster) -> bool {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default, rename = "mcpServers")]
        servers: Vec<Value>,
    }
    let Ok(status) = serde_json::from_str::<Status>(status.get()) else { return false };
    roster.inside().iter().all(|server| status.servers.iter().any(|row| row["name"] == server.name.as_str()))
}
