//! Events of a session's life: its begin and end, turns, subagents, compaction, models.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::define::event;
use super::tools::HookPermission;
use crate::control::fields::{Fields, open_enum};

open_enum! {
    /// How a session begins.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::SessionStartSource::Resume.as_str(), "resume");
    /// ```
    SessionStartSource {
        /// Anew.
        Startup = "startup",
        /// From a conversation that was written down.
        Resume = "resume",
        /// After `/clear`.
        Clear = "clear",
        /// After the conversation was compacted.
        Compact = "compact",
        /// From a copy of a conversation.
        Fork = "fork",
    }
}

event! {
    /// When a session begins. CLI 2.1.328 was not seen to run such hooks of an application for the begin of its own session,
    /// new or resumed, which is over when it learns of them; after the conversation was compacted it ran them.
    SessionStart: SessionStartInput, SessionStartOutput, SessionStartFields;
    sample r#"{"source": "resume", "model": "haiku", "session_title": "T", "seconds_since_last_response": 4.5, "context_tokens": 100, "prompt_cache_likely_expired": false, "estimated_cache_write_usd": 0.25}"#;
    input {
        /// How it begins.
        source: SessionStartSource,
    }
    may {
        /// The model.
        model: String,
        /// The title of the session.
        session_title: String,
        /// How long ago the model last answered in the conversation that is continued.
        seconds_since_last_response: f64,
        /// How many tokens that conversation has.
        context_tokens: u64,
        /// Whether they have to be read anew, because the prompt cache has most likely forgotten them.
        prompt_cache_likely_expired: bool,
        /// What that would cost, in US dollars.
        estimated_cache_write_usd: f64,
    }
    output {
        /// Something for the model to read.
        additional_context: String,
        /// The first prompt.
        initial_user_message: String,
        /// A title for the session.
        session_title: String,
        /// Files of which changes are told at [`FileChanged`](super::FileChanged), by their absolute paths.
        watch_paths: Vec<String>,
        /// Whether skills and commands are looked for once more, after the hooks.
        reload_skills: bool,
    }
}

open_enum! {
    /// Why a session ends.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::SessionEndReason::PromptInputExit.as_str(), "prompt_input_exit");
    /// ```
    SessionEndReason {
        /// `/clear`.
        Clear = "clear",
        /// Another conversation takes its place.
        Resume = "resume",
        /// The person logged out.
        Logout = "logout",
        /// The input ended.
        PromptInputExit = "prompt_input_exit",
        /// Something else, by the CLI's own word.
        SomethingElse = "other",
    }
}

event! {
    /// When a session ends. CLI 2.1.328 was not seen to run such hooks of an application when its input ends, which is how
    /// [`Session::stop`](crate::Session::stop) ends it.
    SessionEnd: SessionEndInput, SessionEndOutput;
    sample r#"{"reason": "prompt_input_exit"}"#;
    input {
        /// Why.
        reason: SessionEndReason,
    }
    may {}
}

open_enum! {
    /// What a project is set up for.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::SetupTrigger::Init.as_str(), "init");
    /// ```
    SetupTrigger {
        /// The first time.
        Init = "init",
        /// Maintenance.
        Maintenance = "maintenance",
    }
}

event! {
    /// When a project is set up (`--init`, `--maintenance`).
    Setup: SetupInput, SetupOutput, SetupFields;
    sample r#"{"trigger": "init"}"#;
    input {
        /// What for.
        trigger: SetupTrigger,
    }
    may {}
    output {
        /// Something for the model to read.
        additional_context: String,
    }
}

event! {
    /// Before the model's turn ends. [`block`](super::Output::block) makes the model go on; beware of going on for ever
    /// ([`stop_hook_active`](StopInput::stop_hook_active)). The CLI ignores
    /// [`OnFailure::Block`](super::OnFailure::Block) here.
    Stop: StopInput, StopOutput, StopFields;
    sample r#"{"stop_hook_active": false, "last_assistant_message": "Done.", "background_tasks": [{"id": "b1", "type": "shell", "status": "running", "description": "d", "command": "sleep 9"}], "session_crons": [{"id": "c1", "schedule": "0 9 * * *", "recurring": true, "prompt": "p"}]}"#;
    input {
        /// Whether the model goes on already because a hook blocked its end.
        stop_hook_active: bool,
    }
    may {
        /// What the model said last.
        last_assistant_message: String,
        /// What goes on in the background, and will wake the session.
        background_tasks: Vec<BackgroundTask>,
        /// What is scheduled, and will wake the session.
        session_crons: Vec<SessionCron>,
    }
    output {
        /// Something for the model to read; it goes on with it.
        additional_context: String,
    }
}

/// Something that goes on in the background. Its texts are cut at 1000 characters.
///
/// ```
/// let task: greenroom::hook::BackgroundTask = serde_json::from_value(serde_json::json!({
///     "id": "b1", "type": "shell", "status": "running", "description": "wait", "command": "sleep 9"
/// }))?;
/// assert_eq!((task.task_type.as_str(), task.command.as_deref()), ("shell", Some("sleep 9")));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackgroundTask {
    /// Its id.
    pub id: String,
    /// What it is: `shell`, `subagent`, `monitor`, `workflow`, and others. An open set.
    #[serde(rename = "type")]
    pub task_type: String,
    /// Where it stands.
    pub status: String,
    /// What it is about.
    pub description: String,
    /// The command of a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The kind of a subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// The MCP server of a monitor, or of a task of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The tool of that server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The name of a workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl<'de> Deserialize<'de> for BackgroundTask {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        Ok(Self {
            id: fields.need("id")?,
            task_type: fields.need("type")?,
            status: fields.need("status")?,
            description: fields.need("description")?,
            command: fields.may("command"),
            agent_type: fields.may("agent_type"),
            server: fields.may("server"),
            tool: fields.may("tool"),
            name: fields.may("name"),
            extra: fields.rest(),
        })
    }
}

/// A prompt on a schedule.
///
/// ```
/// let cron: greenroom::hook::SessionCron = serde_json::from_value(serde_json::json!({
///     "id": "c1", "schedule": "0 9 * * 1-5", "recurring": true, "prompt": "Good morning"
/// }))?;
/// assert!(cron.recurring);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionCron {
    /// Its id.
    pub id: String,
    /// When, as a cron expression.
    pub schedule: String,
    /// Whether it comes again.
    pub recurring: bool,
    /// The prompt, cut at 1000 characters.
    pub prompt: String,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

event! {
    /// After a turn ended with an error of the model's API.
    StopFailure: StopFailureInput, StopFailureOutput;
    sample r#"{"error": "rate_limit", "error_details": "429", "last_assistant_message": "Let me see."}"#;
    input {
        /// What went wrong: `rate_limit`, `overloaded`, `server_error` and so on. An open set.
        error: String,
    }
    may {
        /// More about it.
        error_details: String,
        /// What the model said last.
        last_assistant_message: String,
    }
}

event! {
    /// When a subagent begins.
    SubagentStart: SubagentStartInput, SubagentStartOutput, SubagentStartFields;
    sample r#"{"agent_id": "a1", "agent_type": "Explore"}"#;
    input {
        /// The subagent.
        agent_id: String,
        /// Its kind.
        agent_type: String,
    }
    may {}
    output {
        /// Something for the subagent to read.
        additional_context: String,
    }
}

event! {
    /// Before a subagent ends. [`block`](super::Output::block) makes it go on. The CLI ignores
    /// [`OnFailure::Block`](super::OnFailure::Block) here.
    SubagentStop: SubagentStopInput, SubagentStopOutput, SubagentStopFields;
    sample r#"{"stop_hook_active": false, "agent_id": "a1", "agent_transcript_path": "/t/a1.jsonl", "agent_type": "Explore", "last_assistant_message": "Done.", "background_tasks": [], "session_crons": []}"#;
    input {
        /// Whether it goes on already because a hook blocked its end.
        stop_hook_active: bool,
        /// The subagent.
        agent_id: String,
        /// Where the CLI writes its conversation down.
        agent_transcript_path: String,
        /// Its kind.
        agent_type: String,
    }
    may {
        /// What it said last.
        last_assistant_message: String,
        /// What goes on in the background.
        background_tasks: Vec<BackgroundTask>,
        /// What is scheduled.
        session_crons: Vec<SessionCron>,
    }
    output {
        /// Something for the subagent to read; it goes on with it.
        additional_context: String,
    }
}

open_enum! {
    /// Why the conversation is compacted.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::CompactTrigger::Auto.as_str(), "auto");
    /// ```
    CompactTrigger {
        /// Somebody asked for it.
        Manual = "manual",
        /// It has become too long.
        Auto = "auto",
    }
}

event! {
    /// Before the conversation is compacted.
    PreCompact: PreCompactInput, PreCompactOutput;
    sample r#"{"trigger": "manual", "custom_instructions": "keep the names"}"#;
    input {
        /// Why.
        trigger: CompactTrigger,
    }
    may {
        /// What the summary is to heed.
        custom_instructions: String,
    }
}

event! {
    /// After the conversation was compacted.
    PostCompact: PostCompactInput, PostCompactOutput;
    sample r#"{"trigger": "auto", "compact_summary": "They spoke of numbers."}"#;
    input {
        /// Why.
        trigger: CompactTrigger,
        /// What has taken the conversation's place.
        compact_summary: String,
    }
    may {}
}

open_enum! {
    /// Who switches the model.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::ModelSwitchSource::Sdk.as_str(), "sdk");
    /// ```
    ModelSwitchSource {
        /// A command of the person.
        Command = "command",
        /// The person, from a list.
        Picker = "picker",
        /// An application.
        Sdk = "sdk",
        /// The CLI, by itself.
        Auto = "auto",
        /// The conversation that is continued.
        Resume = "resume",
    }
}

event! {
    /// Before the model is switched. CLI 2.1.328 was seen to ask more than once for one switch, for each model that came
    /// into question.
    PreModelSwitch: PreModelSwitchInput, PreModelSwitchOutput, PreModelSwitchFields;
    sample r#"{"from_model": "a", "to_model": "b", "requested_model": "opus", "source": "sdk", "context_tokens": 10, "prompt_cache_warm": true, "cache_ttl": "5m", "estimated_cache_write_usd": 0.5, "pricing": "catalog"}"#;
    input {
        /// The model of now.
        from_model: String,
        /// The model of then.
        to_model: String,
        /// Who switches it.
        source: ModelSwitchSource,
    }
    may {
        /// What was asked for: an alias, a name, or none for the default.
        requested_model: String,
        /// How many tokens the next request sends once more.
        context_tokens: u64,
        /// Whether the prompt cache still has them, for the model of now.
        prompt_cache_warm: bool,
        /// How long it keeps them: `5m` or `1h`.
        cache_ttl: String,
        /// What it would cost to have them cached for the other model, in US dollars.
        estimated_cache_write_usd: f64,
        /// Where the price comes from: `configured`, `catalog` or `default`.
        pricing: String,
    }
    output {
        /// Whether it may be switched. Without a person who could be asked, `Ask` refuses.
        permission_decision: HookPermission,
        /// Why.
        permission_decision_reason: String,
    }
}

event! {
    /// After the model was switched.
    PostModelSwitch: PostModelSwitchInput, PostModelSwitchOutput, PostModelSwitchFields;
    sample r#"{"from_model": "a", "to_model": "b", "requested_model": "opus", "source": "auto", "context_tokens": 10, "prompt_cache_warm": false, "cache_ttl": "1h", "estimated_cache_write_usd": 0.5, "pricing": "default"}"#;
    input {
        /// The model of before.
        from_model: String,
        /// The model of now.
        to_model: String,
        /// Who switched it.
        source: ModelSwitchSource,
    }
    may {
        /// What was asked for: an alias, a name, or none for the default.
        requested_model: String,
        /// How many tokens the next request sends once more.
        context_tokens: u64,
        /// Whether the prompt cache still had them, for the model of before.
        prompt_cache_warm: bool,
        /// How long it keeps them: `5m` or `1h`.
        cache_ttl: String,
        /// What it costs to have them cached for the new model, in US dollars.
        estimated_cache_write_usd: f64,
        /// Where the price comes from: `configured`, `catalog` or `default`.
        pricing: String,
    }
    output {
        /// Something for the new model to read with its first request.
        additional_context: String,
    }
}
