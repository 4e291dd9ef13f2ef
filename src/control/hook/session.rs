//! Events of a session's life: start and end, turns, compaction, model switches.

use super::define::event;
use super::tools::HookPermission;
use crate::control::fields::requests;
use crate::wire::words::words;

words! {
    /// The kind of a session's start.
    pub enum SessionStartSource {
        /// A new conversation.
        Startup = "startup",
        Resume = "resume",
        /// After `/clear`.
        Clear = "clear",
        /// After a compaction.
        Compact = "compact",
        Fork = "fork",
    }
}

event! {
    /// When a session starts. CLI 2.1.328 was not seen to run an application's hooks for its own start, new or resumed:
    /// that start is over when the CLI learns of the hooks. After a compaction it ran them.
    SessionStart: SessionStartInput, SessionStartOutput, SessionStartFields;
    input { source: SessionStartSource, }
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
    }
}

words! {
    /// The reason for a session's end.
    pub enum SessionEndReason {
        /// `/clear`.
        Clear = "clear",
        /// Another conversation takes its place.
        Resume = "resume",
        Logout = "logout",
        /// The CLI's input was closed.
        PromptInputExit = "prompt_input_exit",
        /// The CLI's word `other`.
        SomethingElse = "other",
    }
}

event! {
    /// When a session ends. CLI 2.1.328 was not seen to run an application's hooks when its input is closed, which is
    /// how [`Session::stop`](crate::Session::stop) ends it.
    SessionEnd: SessionEndInput, SessionEndOutput;
    input { reason: SessionEndReason, }
    may {}
}

words! {
    /// The kind of setup.
    pub enum SetupTrigger { Init = "init", Maintenance = "maintenance", }
}

event! {
    /// When a project is set up (`--init`, `--maintenance`).
    Setup: SetupInput, SetupOutput, SetupFields;
    input { trigger: SetupTrigger, }
    may {}
    output {
        /// Text that the model reads.
        additional_context: String,
    }
}

event! {
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
}

requests! {
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
    may { error_details: String, last_assistant_message: String, }
}

words! {
    /// The reason for a compaction.
    pub enum CompactTrigger {
        Manual = "manual",
        /// The conversation became too long.
        Auto = "auto",
    }
}

event! {
    /// Before the conversation is compacted.
    PreCompact: PreCompactInput, PreCompactOutput;
    input { trigger: CompactTrigger, }
    may {
        /// Instructions for the summary.
        custom_instructions: String,
    }
}

event! {
    /// After the conversation was compacted.
    PostCompact: PostCompactInput, PostCompactOutput;
    input { trigger: CompactTrigger, compact_summary: String, }
    may {}
}

words! {
    /// Who switches the model.
    pub enum ModelSwitchSource {
        /// A command of the user.
        Command = "command",
        /// The user, from a list.
        Picker = "picker",
        /// An application.
        Sdk = "sdk",
        /// The CLI itself.
        Auto = "auto",
        /// The resumed conversation.
        Resume = "resume",
    }
}

event! {
    /// Before the model is switched. CLI 2.1.328 was seen to run the hook several times for one switch, once for each
    /// model it considered.
    PreModelSwitch: PreModelSwitchInput, PreModelSwitchOutput, PreModelSwitchFields;
    input { from_model: String, to_model: String, source: ModelSwitchSource, }
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
    }
}

event! {
    /// After the model was switched. The optional fields are those of [`PreModelSwitchInput`].
    PostModelSwitch: PostModelSwitchInput, PostModelSwitchOutput, PostModelSwitchFields;
    input { from_model: String, to_model: String, source: ModelSwitchSource, }
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
