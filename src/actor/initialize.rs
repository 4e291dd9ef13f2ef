//! The first request of every incarnation, and what its answer says of the CLI.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::roster::Roster;
use super::shared::SessionSpec;
use crate::control::{Hook, OnFailure};
use crate::options::SystemPrompt;

/// How in-process servers are announced to this incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// By `initialize`.
    Initialize,
    /// By `--mcp-config`.
    McpConfig,
}

/// The body of `initialize`.
pub(crate) fn body(spec: &SessionSpec, roster: &Roster, route: Route) -> Value {
    let mut body = Map::new();
    body.insert("subtype".into(), json!("initialize"));
    body.insert(
        "hooks".into(),
        if spec.handlers.hooks.is_empty() {
            Value::Null
        } else {
            Hook::to_wire(&spec.handlers.hooks, spec.options.timeouts.hook)
        },
    );
    match &spec.options.system_prompt {
        SystemPrompt::Empty => drop(body.insert("systemPrompt".into(), json!([""]))),
        SystemPrompt::Text(text) => drop(body.insert("systemPrompt".into(), json!([text]))),
        SystemPrompt::ClaudeCode => {}
        SystemPrompt::Append(text) => drop(body.insert("appendSystemPrompt".into(), json!(text))),
    }
    if !spec.handlers.dialog_kinds.is_empty() {
        body.insert("supportedDialogKinds".into(), json!(spec.handlers.dialog_kinds));
    }
    if route == Route::Initialize && !roster.inside().is_empty() {
        let mut names = Vec::new();
        let mut configs = Map::new();
        let mut manifests = Map::new();
        for server in roster.inside() {
            names.push(server.name.clone());
            let settings = server.settings();
            if !settings.is_empty() {
                configs.insert(server.name.clone(), Value::Object(settings));
            }
            manifests.insert(server.name.clone(), server.manifest());
        }
        body.insert("sdkMcpServers".into(), json!(names));
        body.insert("sdkMcpServerManifests".into(), Value::Object(manifests));
        if !configs.is_empty() {
            body.insert("sdkMcpServerConfigs".into(), Value::Object(configs));
        }
    }
    Value::Object(body)
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
                _ => {}
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
