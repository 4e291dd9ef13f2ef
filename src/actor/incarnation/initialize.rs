//! The first request to every incarnation, `initialize`, and its answer.

use serde_json::{Map, Value, json};

use crate::Options;
use crate::actor::context::SessionSpec;
use crate::actor::servers::roster::Roster;
use crate::control::{Hook, OnFailure};
use crate::error::Result;
use crate::options::Delivery;
use crate::requests::ServerInfo;
use crate::transport::{Channel, LaunchSpec, Resume, StderrSink, fields, has_private};

/// The channel of the first incarnation for options that may be secret.
pub(crate) fn first_channel(options: &Options) -> Channel {
    match options.delivery {
        Delivery::Arguments => Channel::Arguments,
        _ => Channel::Initialize,
    }
}

/// The launch of an incarnation.
pub(crate) fn launch_spec(
    spec: &SessionSpec,
    private: Channel,
    epoch: u64,
    resume: Resume,
    stderr: StderrSink,
) -> LaunchSpec {
    LaunchSpec {
        epoch,
        resume,
        private,
        permission_prompt: spec.handlers.are_asked(spec.options.permission_prompt_tool_name.as_deref()),
        session_mirror: spec.mirror.is_some(),
        stderr,
    }
}

/// The body of `initialize`.
///
/// # Errors
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for an option that cannot be written as JSON.
pub(crate) fn body(spec: &SessionSpec, roster: &Roster, private: Channel, resume: &Resume) -> Result<Value> {
    let timeouts = &spec.options.timeouts;
    let mut body = fields(&spec.options, private)?;
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
    if !roster.inside().is_empty() {
        let mut names = Vec::new();
        let mut configs = Map::new();
        let mut manifests = Map::new();
        for server in roster.inside().iter().map(|server| &server.spec) {
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

/// A field of `initialize` that a CLI takes only when it is told to wait for it.
struct PrivateField {
    name: &'static str,
    /// The field of the answer about it.
    applied: fn(&ServerInfo) -> Option<bool>,
    /// The answer `false` is enough: it shows that the CLI has seen the field.
    may_fail: bool,
}

/// Settings have to be applied, because they may restrict the session. Servers and plugins have to be seen: a server or
/// plugin that does not work is reported otherwise.
const PRIVATE: [PrivateField; 4] = [
    PrivateField { name: "mcpServers", applied: |info| info.mcp_servers_applied, may_fail: true },
    PrivateField { name: "plugins", applied: |info| info.plugins_applied, may_fail: true },
    PrivateField { name: "settings", applied: |info| info.settings_applied, may_fail: false },
    PrivateField { name: "managedSettings", applied: |info| info.managed_settings_applied, may_fail: false },
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

/// The private fields of the sent `initialize`, with the CLI's answer about each.
fn private_fields(
    info: &ServerInfo,
    sent: &Value,
) -> impl Iterator<Item = (&'static PrivateField, Option<bool>)> {
    PRIVATE.iter().filter(|field| sent.get(field.name).is_some()).map(|field| (field, (field.applied)(info)))
}

/// A private field of the sent `initialize` that the CLI ignored.
pub(crate) fn overlooked(info: &ServerInfo, sent: &Value) -> Option<&'static str> {
    private_fields(info, sent)
        .find(|(field, applied)| !applied.is_some_and(|applied| applied || field.may_fail))
        .map(|(field, _)| field.name)
}

/// The private fields of the sent `initialize` that the CLI has seen and not applied.
pub(crate) fn not_applied(info: &ServerInfo, sent: &Value) -> impl Iterator<Item = &'static str> {
    private_fields(info, sent).filter(|(_, applied)| *applied == Some(false)).map(|(field, _)| field.name)
}

/// The reason to end the CLI: a hook that must block when it fails would not block.
pub(crate) fn unfit(info: &ServerInfo, spec: &SessionSpec) -> Option<&'static str> {
    let blocks = spec.handlers.hooks.iter().any(|hook| hook.on_failure == OnFailure::Block);
    if blocks && info.hook_on_failure_supported != Some(true) {
        return Some(
            "it does not know `onFailure` of hooks, and a hook of this session must block when it fails",
        );
    }
    (blocks && info.hooks_applied == Some(false))
        .then_some("it did not take the hooks, and one of them must block when it fails")
}
