//! A prompt, its calls, and the report about them.

use std::time::Instant;

use serde_json::{Value, json};

use crate::behaviour::Behaviour;

pub(crate) struct Prompt {
    pub(crate) uuid: Value,
    pub(crate) text: String,
}

/// A turn in progress. It is over when nothing is unsent and no request of it is open.
pub(crate) struct Turn {
    pub(crate) prompt: Prompt,
    pub(crate) started: Instant,
    /// Whether to die at the next answered ping.
    pub(crate) crash: bool,
    /// The JSON-RPC id of the call to cancel at the next answered ping.
    pub(crate) to_cancel: Option<u64>,
    /// Whether to ping after the last call: what else the calls caused has arrived once that is answered.
    pub(crate) ping_last: bool,
    /// Calls still to be sent.
    pub(crate) unsent: u64,
    /// The control response that came for the cancelled call.
    pub(crate) answer: Option<Value>,
    /// Requests of an unknown subtype that got an error.
    pub(crate) refused: u64,
    answered: u64,
    errors: u64,
    first_error: Option<String>,
    micros: u64,
}

impl Prompt {
    pub(crate) fn reply(&self) -> String {
        format!("You said: {}", self.text)
    }
}

impl Turn {
    pub(crate) fn new(prompt: Prompt, behaviour: &Behaviour, crash: bool) -> Self {
        Self {
            prompt,
            started: Instant::now(),
            crash,
            to_cancel: None,
            ping_last: behaviour.calls > 0,
            unsent: behaviour.calls,
            answer: None,
            refused: 0,
            answered: 0,
            errors: 0,
            first_error: None,
            micros: 0,
        }
    }

    /// Counts the answer to a call.
    pub(crate) fn call_answered(&mut self, verdict: Result<(), String>) {
        self.answered += 1;
        self.micros = self.started.elapsed().as_micros() as u64;
        if let Err(error) = verdict {
            self.errors += 1;
            self.first_error.get_or_insert(error);
        }
    }

    /// The text of the `result` frame, and whether anything was wrong.
    pub(crate) fn result(&self, behaviour: &Behaviour, duplicates: u64, unknown: u64) -> (String, bool) {
        let wrong = self.errors + duplicates + unknown > 0 || self.refused < behaviour.unknown_frames;
        if behaviour.calls + behaviour.unknown_frames == 0 && !behaviour.cancel {
            return (self.prompt.reply(), wrong);
        }
        let mut report = json!({"calls": behaviour.calls, "answered": self.answered, "duplicates": duplicates,
            "unknown": unknown, "errors": self.errors, "micros": self.micros});
        if let Some(error) = &self.first_error {
            report["first_error"] = json!(error);
        }
        if let Some(answer) = &self.answer {
            report["answer"] = answer.clone();
        }
        if behaviour.unknown_frames > 0 {
            report["refused"] = json!(self.refused);
        }
        (report.to_string(), wrong)
    }
}

/// The argument of a call: its number, filled up to `least` bytes.
pub(crate) fn text_of_call(number: u64, least: usize) -> String {
    let mut text = format!("call {number} ");
    text.extend(std::iter::repeat_n('.', least.saturating_sub(text.len())));
    text
}

/// Whether `response` is the echo of `text` to the call with this JSON-RPC id, and if not, why.
pub(crate) fn is_echo(response: &Value, rpc: u64, text: &str) -> Result<(), String> {
    if response["subtype"] != "success" {
        return Err(format!("control error: {}", response["error"]));
    }
    let reply = &response["response"]["mcp_response"];
    let result = &reply["result"];
    let echoed = result["content"][0]["text"].as_str();
    if reply["id"] != rpc {
        Err(format!("JSON-RPC id {} instead of {rpc}", reply["id"]))
    } else if !reply["error"].is_null() {
        Err(format!("JSON-RPC error: {}", reply["error"]))
    } else if result["isError"] == true {
        Err(format!("tool error: {}", echoed.unwrap_or_default()))
    } else if echoed != Some(text) {
        Err(format!("not the echo of call {rpc}: {result}"))
    } else {
        Ok(())
    }
}
