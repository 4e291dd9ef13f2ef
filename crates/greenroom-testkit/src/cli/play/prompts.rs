//! The prompts that the host has written: those that wait, those that the turn is about, and what is told of each.
//!
//! As with CLI 2.1.330: what waits when a turn begins is one turn, and what comes while tools run joins the turn behind
//! them, unless its priority is `later`. With the priority `now` it cuts the turn off, once the tools have run.

use serde_json::{Value, json};

use super::{Player, Stop, hooks};

/// The prompts of a player.
#[derive(Default)]
pub(super) struct Prompts {
    waiting: Vec<Value>,
    /// Prompts of the running turn; `joined` came later.
    owners: Vec<Value>,
    joined: Vec<Value>,
}

impl Prompts {
    /// The uuids that the result names.
    pub(super) fn uuids(&self) -> Value {
        self.owners.iter().chain(&self.joined).map(|prompt| prompt["uuid"].clone()).collect()
    }
}

fn is(prompt: &Value, priority: &str) -> bool {
    prompt["priority"] == priority
}

impl Player {
    pub(super) fn prompt_queued(&mut self, prompt: Value) {
        self.seen.prompted(said(&prompt));
        self.lifecycle(&prompt, "queued");
        self.prompts.waiting.push(prompt);
    }

    /// The prompts of the next turn, as one: the content of the first, and then that of the others.
    pub(super) fn next_prompt(&mut self) -> Option<Value> {
        let rank = |prompt: &Value| match prompt["priority"].as_str() {
            Some("now") => 0,
            Some("later") => 2,
            _ => 1,
        };
        let first = self.prompts.waiting.iter().map(rank).min()?;
        self.prompts.owners = self.prompts.waiting.extract_if(.., |prompt| rank(prompt) == first).collect();
        self.prompts.joined.clear();
        for prompt in self.prompts.owners.clone() {
            self.lifecycle(&prompt, "started");
        }
        let mut prompt = self.prompts.owners.first()?.clone();
        if let Value::Array(content) = &mut prompt["message"]["content"] {
            for other in self.prompts.owners.iter().skip(1) {
                content.extend(other["message"]["content"].as_array().into_iter().flatten().cloned());
            }
        }
        Some(prompt)
    }

    /// After tools have run: prompts that came meanwhile join the turn.
    pub(super) async fn take_in(&mut self) -> Result<(), Stop> {
        if self.prompts.waiting.iter().any(|prompt| is(prompt, "now")) {
            return Err(Stop::Overtaken);
        }
        for prompt in self.prompts.waiting.extract_if(.., |prompt| !is(prompt, "later")).collect::<Vec<_>>() {
            let text = text_of(&prompt);
            let said =
                self.hook("UserPromptSubmit", None, json!({ "prompt": text, "source": "sdk" })).await?;
            self.lifecycle(&prompt, "started");
            if hooks::blocked(&said).is_some() {
                self.lifecycle(&prompt, "completed");
            } else {
                self.seen.said(line_of(&prompt));
                self.prompts.joined.push(prompt);
            }
        }
        Ok(())
    }

    /// Writes the prompts of the turn into the conversation.
    pub(super) fn remember_prompts(&mut self) {
        for prompt in self.prompts.owners.clone() {
            self.seen.said(line_of(&prompt));
            self.write_down("user", &prompt["message"]);
        }
    }

    /// The result of the turn is about to be told.
    pub(super) fn joined_end(&mut self, state: &str) {
        for prompt in self.prompts.joined.clone() {
            self.lifecycle(&prompt, state);
        }
    }

    /// The result of the turn was told.
    pub(super) fn turn_ended(&mut self, state: &str) {
        for prompt in std::mem::take(&mut self.prompts.owners) {
            self.lifecycle(&prompt, state);
        }
    }

    pub(super) fn still_queued(&self) -> Value {
        self.prompts.waiting.iter().map(|prompt| prompt["uuid"].clone()).collect()
    }

    /// Drops the prompts that wait: all of them, or the one with this uuid. Answers their uuids.
    pub(super) fn drop_queued(&mut self, uuid: Option<&Value>) -> Vec<Value> {
        let fits = |prompt: &mut Value| uuid.is_none_or(|uuid| prompt["uuid"] == *uuid);
        let dropped: Vec<_> = self.prompts.waiting.extract_if(.., fits).collect();
        dropped.iter().for_each(|prompt| self.lifecycle(prompt, "cancelled"));
        dropped.into_iter().map(|prompt| prompt["uuid"].clone()).collect()
    }

    /// Tells what becomes of a prompt. Of one without a uuid nothing can be told.
    fn lifecycle(&mut self, prompt: &Value, state: &str) {
        if prompt["uuid"].is_string() {
            let told = json!({ "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state });
            self.end.message(told);
        }
    }
}

/// The text of a prompt, for hooks and commands.
pub(super) fn text_of(prompt: &Value) -> String {
    let content = &prompt["message"]["content"];
    content.as_str().or(content[0]["text"].as_str()).unwrap_or_default().to_owned()
}

/// The line of a prompt in the conversation.
fn line_of(prompt: &Value) -> String {
    format!("user: {}", said(prompt))
}

/// The whole prompt for a test: its texts, one below the other, with `[image]` and the like for other blocks.
fn said(prompt: &Value) -> String {
    let content = &prompt["message"]["content"];
    let block = |block: &Value| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("[{}]", block["type"].as_str().unwrap_or("unknown")),
    };
    match content {
        Value::Array(blocks) => blocks.iter().map(block).collect::<Vec<_>>().join("\n"),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
