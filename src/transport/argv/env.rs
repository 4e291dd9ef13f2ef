//! The environment of the CLI.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::Options;
use crate::options::{EnvPolicy, NOT_INHERITED};

/// Makes the CLI report when it is idle, in frames that only its host reads.
pub(super) const READS_SESSION_STATE: &str = "CLAUDE_CODE_SDK_READS_SESSION_STATE";

/// The variables to set: `Options::env`, and those that other options stand for.
pub(super) fn env(options: &Options, inherited: &[OsString]) -> BTreeMap<String, String> {
    let mut env = options.env.clone();
    // An inherited value is ignored: a host that a CLI has started inherits that CLI's. CLI 2.1.328 takes only
    // `sdk-ts`, `sdk-py` and `sdk-cli` for programs. Under any other name it offers the model what is meant for people:
    // the agent `claude-code-guide`, previews in `AskUserQuestion`.
    env.entry("CLAUDE_CODE_ENTRYPOINT".into()).or_insert_with(|| "sdk-cli".into());
    env.entry("CLAUDE_AGENT_SDK_VERSION".into()).or_insert_with(|| env!("CARGO_PKG_VERSION").into());
    let is_set = options.env.keys().any(|name| name.eq_ignore_ascii_case(READS_SESSION_STATE))
        || inherited.iter().any(|name| name.eq_ignore_ascii_case(READS_SESSION_STATE));
    if !is_set {
        env.insert(READS_SESSION_STATE.into(), "1".into());
    }
    let more = [
        ("CLAUDE_AGENT_SDK_CLIENT_APP", options.client_app.as_deref()),
        ("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", options.enable_file_checkpointing.then_some("true")),
        (
            "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT",
            options.question_preview.as_ref().map(|format| format.as_str()),
        ),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            // These options override `env`, as in the official SDKs.
            env.insert(name.into(), value.into());
        }
    }
    if let Some(context) = &options.trace_context {
        env.insert("TRACEPARENT".into(), context.traceparent.clone());
        // A `TRACESTATE` in `env` belongs to another trace.
        env.remove("TRACESTATE");
        env.extend(context.tracestate.clone().map(|state| ("TRACESTATE".into(), state)));
    }
    if let Some(cwd) = options.cwd.as_deref().filter(|cwd| cwd.is_absolute()).and_then(Path::to_str) {
        env.entry("PWD".into()).or_insert_with(|| cwd.into());
    }
    env
}

/// The inherited variables to remove, without those that `env` sets.
pub(super) fn unset_env(options: &Options, env: &BTreeMap<String, String>) -> Vec<String> {
    if options.env_policy != EnvPolicy::Inherit {
        return Vec::new();
    }
    // The host's `PWD` would be wrong in another working directory.
    let stale = options.cwd.is_some().then_some("PWD");
    // The host's `TRACESTATE` belongs to another trace.
    let foreign = options.trace_context.is_some().then_some("TRACESTATE");
    NOT_INHERITED
        .into_iter()
        .chain(stale)
        .chain(foreign)
        .filter(|name| !env.contains_key(*name))
        .map(str::to_owned)
        .collect()
}
