//! Events of a session's life: start and end, turns, compaction, model switches.

use super::define::event;
use super::tools::HookPermission;
use crate::control::fields::requests;

event! {
    /// When a session starts. CLI 2.1.328 was not seen to run an application's hooks for its own start, new or resumed:
    /// that start is over when the CLI learns of the hooks. After a compaction it ran them.
    SessionStart: SessionStartInput, SessionStartOutput, SessionStartFields;
    input {
        /// `startup` (a new conversation), `resume`, `clear`, `compact`, `fork`, or another word.
        source: String,
    }
    may {
        model: String,
        session_title: String,
        /// Seconds since the model's last answer in the resumed conversation.
        seconds_since_last_response: f64,
        /// Size of the resumed conversation in tokens.
        context_tokens: u64,
        /// Whether the prompt cache has probably expired, so that all tokens are read again.
        prompt_cache_likely_expired: bool,
        /// Estimated cost of reading them again, in US dollars.
        estimated_cache_write_usd: f64,
    }
    output {
        /// Text that the model reads.
        additional_context: String,
        /// The first prompt.
        initial_user_message: String,
        session_title: String,
        /// Absolute paths of files to watch: their changes run [`FileChanged`](super::FileChanged) hooks.
        watch_paths: Vec<String>,
        /// Searches for skills and commands again after the hooks.
        reload_skills: bool,
    };

    /// When a session ends. CLI 2.1.328 was not seen to run an application's hooks when its input is closed, which is
    /// how [`Session::stop`](crate::Session::stop) ends it.
    SessionEnd: SessionEndInput, SessionEndOutput;
    input {
        /// `clear`, `resume` (another conversation takes its place), `logout`, `prompt_input_exit` (the CLI's input was
        /// closed), `other`, or another word.
        reason: String,
    };

    /// When a project is set up (`--init`, `--maintenance`).
    Setup: SetupInput, SetupOutput, SetupFields;
    input {
        /// `init`, `maintenance` or another word.
        trigger: String,
    }
    output {
        /// Text that the model reads.
        additional_context: String,
    };

    /// Before the model's turn ends. [`block`](super::Output::block) makes the model continue; check
    /// [`stop_hook_active`](StopInput::stop_hook_active) to avoid an endless loop. The CLI ignores
    /// [`OnFailure::Block`](super::OnFailure::Block) here.
    Stop: StopInput, StopOutput, StopFields;
    input {
        /// Whether the model already continues because a `Stop` hook blocked.
        stop_hook_active: bool,
    }
    may {
        last_assistant_message: String,
        /// Tasks that still run and will wake the session.
        background_tasks: Vec<BackgroundTask>,
        /// Scheduled prompts that will wake the session.
        session_crons: Vec<SessionCron>,
    }
    output {
        /// Text that the model reads and continues with.
        additional_context: String,
    }
}

requests! {
    /// A task that runs in the background. The CLI cuts its texts at 1000 characters.
    part BackgroundTask {
        need id: String,
        /// `shell`, `subagent`, `monitor`, `workflow` or another type: the set is open.
        need task_type: String = "type",
        need status: String,
        need description: String,
        /// For a shell.
        may command: String,
        /// For a subagent.
        may agent_type: String,
        /// MCP server of a monitor or of a task of the server's own.
        may server: String,
        /// Tool of that server.
        may tool: String,
        /// For a workflow.
        may name: String,
    }

    /// A prompt on a schedule. `schedule` is a cron expression; the CLI cuts `prompt` at 1000 characters.
    part SessionCron {
        need id: String,
        need schedule: String,
        need recurring: bool,
        need prompt: String,
    }
}

event! {
    /// After the model's API failed a turn.
    StopFailure: StopFailureInput, StopFailureOutput;
    input {
        /// `rate_limit`, `overloaded`, `server_error` or another word: the set is open.
        error: String,
    }
    may { error_details: String, last_assistant_message: String, };

    /// Before the conversation is compacted.
    PreCompact: PreCompactInput, PreCompactOutput;
    input {
        /// `manual`, `auto` (the conversation became too long), or another word.
        trigger: String,
    }
    may {
        /// Instructions for the summary.
        custom_instructions: String,
    };

    /// After the conversation was compacted.
    PostCompact: PostCompactInput, PostCompactOutput;
    input {
        /// As at [`PreCompact`].
        trigger: String,
        compact_summary: String,
    };

    /// Before the model is switched. CLI 2.1.328 was seen to run the hook several times for one switch, once for each
    /// model it considered.
    PreModelSwitch: PreModelSwitchInput, PreModelSwitchOutput, PreModelSwitchFields;
    input {
        from_model: String,
        to_model: String,
        /// Who switches: `command` (of the user), `picker` (the user, from a list), `sdk` (an application), `auto` (the
        /// CLI), `resume` (the resumed conversation), or another word.
        source: String,
    }
    may {
        /// An alias or a name; `None` asks for the default.
        requested_model: String,
        /// Tokens that the next request sends again.
        context_tokens: u64,
        /// Whether they are still in the prompt cache of the old model.
        prompt_cache_warm: bool,
        /// `5m` or `1h`.
        cache_ttl: String,
        /// Estimated cost of caching them for the new model, in US dollars.
        estimated_cache_write_usd: f64,
        /// Source of the price: `configured`, `catalog` or `default`.
        pricing: String,
    }
    output {
        /// Allows or refuses the switch. `Ask` refuses when no user can be asked.
        permission_decision: HookPermission,
        permission_decision_reason: String,
    };

    /// After the model was switched. The optional fields are those of [`PreModelSwitchInput`].
    PostModelSwitch: PostModelSwitchInput, PostModelSwitchOutput, PostModelSwitchFields;
    input { from_model: String, to_model: String, source: String, }
    may {
        requested_model: String,
        context_tokens: u64,
        prompt_cache_warm: bool,
        cache_ttl: String,
        estimated_cache_write_usd: f64,
        pricing: String,
    }
    output {
        /// Text that the new model reads with its first request.
        additional_context: String,
    }
}
