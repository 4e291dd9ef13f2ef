//! What the model does, as plain data: a list of answers, played in order.
//!
//! The same [`Script`] is played to the real CLI by [`ScriptedModel`](crate::ScriptedModel), which
//! is a Messages API on loopback, and without any CLI by the scripted CLI on an in-memory transport.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model_turn::{Item, ModelTurn};

/// What the model does, request by request.
///
/// Every request of the main conversation takes the next turn. When the turns are used up, every further
/// request is answered with [`otherwise`](Script::otherwise). Requests of subagents have turns of their own,
/// see [`agent_turn`](Script::agent_turn), so that a subagent in the background does not race with the main
/// conversation for the same turns.
///
/// ```
/// use greenroom_testkit::{ModelTurn, Script};
/// use serde_json::json;
///
/// let script = Script::new()
///     .turn(ModelTurn::new().text("Let me add.").call("mcp__calc__add", json!({"a": 5, "b": 3})))
///     .turn(ModelTurn::new().text("5 + 3 is 8."));
///
/// assert_eq!(script.turns.len(), 2);
/// assert_eq!(script.turns[0].stop_reason(), "tool_use");
/// assert_eq!(script.turns[1].stop_reason(), "end_turn");
/// ```
///
/// It is plain data, and can as well be read from a file:
///
/// ```
/// use greenroom_testkit::Script;
///
/// let script: Script = serde_json::from_str(r#"{"turns": [
///     {"items": [{"text": "Let me add."}, {"call": {"name": "mcp__calc__add", "input": {"a": 5, "b": 3}}}]},
///     {"error": {"status": 529, "kind": "overloaded_error", "message": "busy"}},
///     {"items": [{"text": "5 + 3 is 8."}]}
/// ]}"#)?;
///
/// assert_eq!(script.turns[1].error.as_ref().map(|error| error.status), Some(529));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The turns of the main conversation.
    pub turns: Vec<ModelTurn>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agent_turns: Vec<ModelTurn>,
    otherwise: ModelTurn,
    pub(crate) side_answer: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    local_commands: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) writes_transcripts: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// A script without turns: every request is answered with [`otherwise`](Script::otherwise).
    pub fn new() -> Self {
        Self {
            turns: Vec::new(),
            agent_turns: Vec::new(),
            otherwise: ModelTurn::new().text("The script is over: it has no turn for this request."),
            side_answer: "A scripted side answer".to_owned(),
            local_commands: BTreeMap::new(),
            writes_transcripts: false,
        }
    }

    /// Adds one answer to the main conversation.
    ///
    /// Calls without an id get one when the turn is played: `toolu_script_2_0` is the first such call of the turn that
    /// answers request number 2, counted from 0.
    pub fn turn(mut self, turn: ModelTurn) -> Self {
        self.turns.push(turn);
        self
    }

    /// Adds the same answer `times` times, each with call ids of its own.
    ///
    /// With an [`error`](ModelTurn::error) this outlasts the attempts that the CLI makes.
    pub fn repeat(mut self, times: usize, turn: ModelTurn) -> Self {
        self.turns.extend(std::iter::repeat_n(turn, times));
        self
    }

    /// Adds one answer for subagents.
    ///
    /// The requests of all subagents together take these turns, in the order in which the requests arrive.
    pub fn agent_turn(mut self, turn: ModelTurn) -> Self {
        self.agent_turns.push(turn);
        self
    }

    /// The answer to each request for which no turn is left. At first: a text that says that the script is
    /// over.
    pub fn otherwise(mut self, turn: ModelTurn) -> Self {
        self.otherwise = turn;
        self
    }

    /// The text of the answer to side calls, such as the one that asks for a title. They take no turn.
    ///
    /// A side call that asks for JSON gets an object with this text in each of its string properties.
    pub fn side_answer(mut self, text: impl Into<String>) -> Self {
        self.side_answer = text.into();
        self
    }

    /// Adds a slash command that the CLI answers itself, such as `cost` (written without the slash). A prompt that
    /// begins with the command takes no turn: the text comes as one whole message of the model `<synthetic>`, without
    /// partial messages, as from CLI 2.1.330. Played by the stand-ins for the CLI; the real CLI has its own commands.
    ///
    /// ```
    /// use greenroom::Session;
    /// use greenroom_testkit::{Script, ScriptedCli};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let cli = ScriptedCli::play(Script::new().local_command("cost", "Estimated cost: $0.0000"));
    /// let session = Session::builder().transport(cli.transport()).start().await?;
    /// let mut turn = session.prompt("/cost").await?;
    /// assert_eq!(turn.outcome().await?.text(), Some("Estimated cost: $0.0000"));
    /// assert_eq!(cli.turns_played(), 0);
    /// session.stop().await?;
    /// # greenroom::Result::<()>::Ok(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn local_command(mut self, command: impl Into<String>, text: impl Into<String>) -> Self {
        self.local_commands.insert(command.into(), text.into());
        self
    }

    /// Mirrors the transcript of a session with a store, as the real CLI does, so that the session can
    /// [defer](greenroom::Session::defer) a call and another one can resume it. Played by
    /// [`ScriptedCli`](crate::ScriptedCli); the real CLI always writes its transcript.
    pub fn transcripts(mut self) -> Self {
        self.writes_transcripts = true;
        self
    }

    /// The command at the start of a prompt, and its text, if the CLI answers the prompt itself.
    pub(crate) fn local_command_of<'a>(&'a self, prompt: &str) -> Option<(&'a str, &'a str)> {
        let command = prompt.strip_prefix('/')?.split_whitespace().next()?;
        let (command, text) = self.local_commands.get_key_value(command)?;
        Some((command, text))
    }

    /// What request number `index` of the main conversation is answered with, counted from 0: the turn with
    /// that index, or else what [`otherwise`](Script::otherwise) says, with an id for every call, which no other index has.
    pub fn turn_at(&self, index: usize) -> ModelTurn {
        self.at(&self.turns, "toolu_script", index)
    }

    /// The same as [`turn_at`](Script::turn_at), for the requests of subagents.
    pub fn agent_turn_at(&self, index: usize) -> ModelTurn {
        self.at(&self.agent_turns, "toolu_script_agent", index)
    }

    fn at(&self, turns: &[ModelTurn], prefix: &str, index: usize) -> ModelTurn {
        let mut turn = turns.get(index).unwrap_or(&self.otherwise).clone();
        let ids = turn.items.iter_mut().filter_map(|item| match item {
            Item::Call { id: id @ None, .. } => Some(id),
            _ => None,
        });
        for (number, id) in ids.enumerate() {
            *id = Some(format!("{prefix}_{index}_{number}"));
        }
        turn
    }
}
