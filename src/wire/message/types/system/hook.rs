//! Progress of hooks: of `SessionStart` and `Setup` always, of all others with `--include-hook-events`.

use crate::wire::objects::objects;

objects! {
    /// A hook was started (`system` / `hook_started`).
    message HookStarted {
        /// This run of the hook.
        hook_id: String,
        /// The event and the matcher, such as `PreToolUse:Bash`.
        hook_name: String,
        hook_event: String,
    }

    /// Output of a running hook (`system` / `hook_progress`). Each field holds all output so far; `output` is stdout
    /// and stderr together.
    message HookProgress {
        /// This run of the hook.
        hook_id: String,
        hook_name: String,
        hook_event: String,
        stdout: String,
        stderr: String,
        output: String,
    }

    /// A hook ended (`system` / `hook_response`).
    message HookResponse {
        /// This run of the hook.
        hook_id: String,
        hook_name: String,
        hook_event: String,
        stdout: String,
        stderr: String,
        /// The hook's answer.
        output: String,
        exit_code: Option<i64>,
        /// `success`, `error` or `cancelled`.
        outcome: String,
    }
}
