//! Hooks that run: those of the session's start and of setup always, all others if hook events were asked for
//! (`--include-hook-events`).

use crate::wire::message::view::{view, words};

view! {
    /// A hook began (`system` / `hook_started`).
    message HookStarted: r#"{"hook_id": "h1", "hook_name": "PreToolUse:Bash", "hook_event": "PreToolUse"}"#
        => r#"view.hook_event == "PreToolUse""#
    {
        /// This run of the hook.
        hook_id: String,
        /// The hook, with what it matches: `PreToolUse:Bash`.
        hook_name: String,
        /// What it reacts to, such as `PreToolUse`.
        hook_event: String,
    }

    /// A hook has written something (`system` / `hook_progress`).
    message HookProgress: r#"{"hook_id": "h1", "stdout": "half", "output": "half"}"# => r#"view.stdout == "half""# {
        /// This run of the hook.
        hook_id: String,
        /// The hook, with what it matches.
        hook_name: String,
        /// What it reacts to.
        hook_event: String,
        /// What it wrote to its stdout so far.
        stdout: String,
        /// What it wrote to its stderr so far.
        stderr: String,
        /// Both.
        output: String,
    }

    /// A hook ended (`system` / `hook_response`).
    message HookResponse: r#"{"hook_id": "h1", "exit_code": 0, "outcome": "success", "output": "{}"}"#
        => r#"view.exit_code == Some(0) && view.outcome.as_str() == "success""#
    {
        /// This run of the hook.
        hook_id: String,
        /// The hook, with what it matches.
        hook_name: String,
        /// What it reacts to.
        hook_event: String,
        /// What it wrote to its stdout.
        stdout: String,
        /// What it wrote to its stderr.
        stderr: String,
        /// What it answered.
        output: String,
        /// The exit code of its command.
        exit_code: Option<i64>,
        /// What became of it.
        outcome: HookOutcome,
    }
}

words! {
    /// What became of a hook, in a [`HookResponse`].
    HookOutcome {
        /// It ran.
        Success = "success",
        /// It failed.
        Error = "error",
        /// It was cancelled.
        Cancelled = "cancelled",
    }
}
