//! A tool call that a transcript leaves open, and the entries with which a CLI asks for it again.
//!
//! A CLI that was killed while it asked for a permission has written the call down, and no result of it. CLI 2.1.330
//! resumes such a conversation and notes the call as interrupted. If the transcript ends with an attachment
//! `hook_deferred_tool` for the call, which the CLI writes itself when a `PreToolUse` hook defers a call, it asks for
//! the permission again instead, under the same id, without a prompt and without a request to the model. It drops other
//! calls of the same message that have no result; so each of them gets one here, which tells the model that the call has no result.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::TranscriptEntry;

/// Fields of an entry that all entries of a transcript share.
const SHARED: [&str; 9] = [
    "isSidechain",
    "timestamp",
    "userType",
    "entrypoint",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "slug",
];

/// Marks the attachments that greenroom has written.
const MARKED_BY: (&str, &str) = ("markedBy", "greenroom");

/// The result of a deferred call with which the conversation does not go on. In the words of CLI 2.1.330 for a call whose CLI was
/// killed, which this one may be as well.
const ABANDONED: &str = "[Tool call interrupted: the session ended before this call's result was recorded, so its \
                         outcome is unknown. Check whether it took effect before relying on it or running it again.]";

/// The text for a call beside the deferred one that has no result.
const NO_RESULT: &str = "[No result: the session slept while it waited for a person's decision about another call of \
                         the same message. This call may have run. Check before you run it again.]";

/// A search for one call, entry by entry.
pub(crate) struct CallSearch {
    tool_use_id: String,
    /// The transcript has the call.
    is_known: bool,
    /// The newest answer of the model, until a prompt follows.
    answer: Option<Answer>,
    /// The id of the newest entry of the conversation.
    last: Option<String>,
}

/// An answer of the model, which has an entry for each of its blocks.
struct Answer {
    message: Value,
    /// The fields that all entries of the transcript share.
    shared: Map<String, Value>,
    calls: Vec<Call>,
    /// The calls that have a result.
    results: BTreeSet<String>,
    /// The transcript says that the call was deferred.
    is_deferred: bool,
}

struct Call {
    id: String,
    name: String,
    input: Value,
    /// The id of its entry.
    entry: String,
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenCall {
    pub(crate) name: String,
    pub(crate) input: Value,
    /// The entries that are still to be appended.
    pub(crate) entries: Vec<TranscriptEntry>,
}

/// The call with which a conversation would go on by itself, because greenroom has marked it as deferred: the last entry of the
/// conversation says so. `None` for any other entry.
pub(crate) fn marked_call(last: &TranscriptEntry) -> Option<String> {
    if last.kind() != Some("attachment") {
        return None;
    }
    let value = last.value();
    let attachment = &value["attachment"];
    let is_own = attachment["type"] == "hook_deferred_tool" && attachment[MARKED_BY.0] == MARKED_BY.1;
    is_own.then(|| attachment["toolUseID"].as_str().map(str::to_owned)).flatten()
}

impl CallSearch {
    pub(crate) fn new(tool_use_id: &str) -> Self {
        Self { tool_use_id: tool_use_id.to_owned(), is_known: false, answer: None, last: None }
    }

    /// Reads the next entry.
    pub(crate) fn read(&mut self, entry: &TranscriptEntry) {
        if !matches!(entry.kind(), Some("user" | "assistant" | "attachment" | "system")) {
            return;
        }
        let value = entry.value();
        let (Some(uuid), false) = (entry.uuid(), value["isSidechain"] == Value::Bool(true)) else { return };
        self.last = Some(uuid.to_owned());
        let blocks = value["message"]["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        match entry.kind() {
            Some("assistant") => self.answer(&value, uuid, blocks),
            Some("user") => self.user(blocks),
            _ => {
                let attachment = &value["attachment"];
                let is_deferred = attachment["type"] == "hook_deferred_tool"
                    && attachment["toolUseID"] == self.tool_use_id.as_str();
                self.answer.iter_mut().for_each(|answer| answer.is_deferred |= is_deferred);
            }
        }
    }

    fn answer(&mut self, value: &Value, uuid: &str, blocks: &[Value]) {
        let message = &value["message"]["id"];
        if self.answer.as_ref().is_none_or(|answer| answer.message != *message) {
            let shared =
                SHARED.iter().filter_map(|name| Some(((*name).to_owned(), value.get(*name)?.clone())));
            self.answer = Some(Answer {
                message: message.clone(),
                shared: shared.collect(),
                calls: Vec::new(),
                results: BTreeSet::new(),
                is_deferred: false,
            });
        }
        let Some(answer) = &mut self.answer else { return };
        for block in blocks.iter().filter(|block| block["type"] == "tool_use") {
            let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
            let call = Call {
                id: text("id"),
                name: text("name"),
                input: block["input"].clone(),
                entry: uuid.to_owned(),
            };
            self.is_known |= call.id == self.tool_use_id;
            answer.calls.push(call);
        }
    }

    fn user(&mut self, blocks: &[Value]) {
        let results = blocks.iter().filter(|block| block["type"] == "tool_result");
        let results: Vec<_> = results.filter_map(|result| result["tool_use_id"].as_str()).collect();
        if results.is_empty() {
            self.answer = None;
        } else if let Some(answer) = &mut self.answer {
            answer.results.extend(results.into_iter().map(str::to_owned));
        }
    }

    /// The call, or the reason why it is not open.
    pub(crate) fn end(self) -> Result<OpenCall, &'static str> {
        if !self.is_known {
            return Err("the transcript does not have the call");
        }
        let id = &self.tool_use_id;
        let Some(answer) = self.answer.filter(|answer| answer.calls.iter().any(|call| call.id == *id)) else {
            return Err("the conversation has gone on after the call");
        };
        if answer.results.contains(id) {
            return Err("the call has a result");
        }
        let (own, others): (Vec<_>, Vec<_>) = answer.calls.into_iter().partition(|call| call.id == *id);
        let Some(Call { name, input, .. }) = own.into_iter().next() else {
            return Err("the transcript does not have the call");
        };
        let entries = Vec::new();
        if answer.is_deferred {
            return Ok(OpenCall { name, input, entries });
        }
        let mut chain = Chain { shared: answer.shared, last: self.last, entries };
        for other in others.iter().filter(|other| !answer.results.contains(&other.id)) {
            chain.result(other, NO_RESULT);
        }
        let deferred = json!({
            "type": "hook_deferred_tool", "toolUseID": id, "toolName": name, "toolInput": input,
            "hookName": format!("PreToolUse:{name}"), "hookEvent": "PreToolUse", "permissionMode": "default",
            MARKED_BY.0: MARKED_BY.1,
        });
        chain.add("attachment", json!({ "attachment": deferred }));
        Ok(OpenCall { name, input, entries: chain.entries })
    }

    /// The entries after which the conversation does not go on with the call, if it would.
    pub(crate) fn abandon(self) -> Vec<TranscriptEntry> {
        let Some(answer) = self.answer.filter(|answer| answer.is_deferred) else { return Vec::new() };
        let mut chain = Chain { shared: answer.shared, last: self.last, entries: Vec::new() };
        for call in answer.calls.iter().filter(|call| !answer.results.contains(&call.id)) {
            chain.result(call, ABANDONED);
        }
        chain.entries
    }
}

/// Entries that follow each other.
struct Chain {
    shared: Map<String, Value>,
    last: Option<String>,
    entries: Vec<TranscriptEntry>,
}

impl Chain {
    fn add(&mut self, kind: &str, fields: Value) {
        let uuid = uuid::Uuid::new_v4().to_string();
        let mut entry = self.shared.clone();
        entry.insert("type".into(), kind.into());
        entry.insert("uuid".into(), uuid.clone().into());
        entry.insert("parentUuid".into(), self.last.replace(uuid).into());
        entry.extend(fields.as_object().cloned().unwrap_or_default());
        self.entries.extend(TranscriptEntry::try_from(Value::Object(entry)));
    }

    fn result(&mut self, call: &Call, text: &str) {
        let result =
            json!({ "type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": true });
        let message = json!({ "role": "user", "content": [result] });
        let fields =
            json!({ "message": message, "toolUseResult": text, "sourceToolAssistantUUID": call.entry });
        self.add("user", fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(lines: &[Value]) -> Result<OpenCall, &'static str> {
        let mut search = CallSearch::new("call");
        for (number, line) in lines.iter().enumerate() {
            let mut line = line.clone();
            line["uuid"] = format!("entry-{number}").into();
            search.read(&TranscriptEntry::try_from(line).unwrap());
        }
        search.end()
    }

    fn prompt() -> Value {
        json!({ "type": "user", "message": { "role": "user", "content": "go" } })
    }

    fn call(message: &str, id: &str) -> Value {
        let block = json!({ "type": "tool_use", "id": id, "name": "Bash", "input": { "command": id } });
        json!({ "type": "assistant", "cwd": "/w", "message": { "id": message, "content": [block] } })
    }

    fn result(id: &str) -> Value {
        let block = json!({ "type": "tool_result", "tool_use_id": id, "content": "done" });
        json!({ "type": "user", "message": { "role": "user", "content": [block] } })
    }

    #[test]
    fn an_open_call_gets_a_mark_behind_the_last_entry() {
        let open = search(&[prompt(), call("m", "call")]).unwrap();
        assert_eq!((open.name.as_str(), &open.input), ("Bash", &json!({ "command": "call" })));
        let [mark] = open.entries.as_slice() else { panic!("{:?}", open.entries) };
        let mark = mark.value();
        assert_eq!(
            (&mark["type"], &mark["parentUuid"], &mark["cwd"]),
            (&json!("attachment"), &json!("entry-1"), &json!("/w"))
        );
        assert_eq!(mark["attachment"]["toolUseID"], "call");
        assert_eq!(mark["attachment"]["toolInput"], json!({ "command": "call" }));
    }

    #[test]
    fn other_calls_of_the_message_get_a_result_unless_they_have_one() {
        let lines = [prompt(), call("m", "before"), call("m", "call"), result("before"), call("m", "after")];
        let open = search(&lines).unwrap();
        let [after, mark] = open.entries.as_slice() else { panic!("{:?}", open.entries) };
        let (after, mark) = (after.value(), mark.value());
        assert_eq!(after["message"]["content"][0]["tool_use_id"], "after");
        assert_eq!(
            (&after["parentUuid"], &after["sourceToolAssistantUUID"]),
            (&json!("entry-4"), &json!("entry-4"))
        );
        assert_eq!(mark["parentUuid"], after["uuid"]);
    }

    #[test]
    fn a_call_that_is_marked_is_not_marked_again() {
        let mark = search(&[prompt(), call("m", "call")]).unwrap().entries[0].value();
        assert_eq!(search(&[prompt(), call("m", "call"), mark]).unwrap().entries, []);
    }

    #[test]
    fn a_call_that_is_abandoned_gets_a_result() {
        let lines = [prompt(), call("m", "call")];
        let mark = search(&lines).unwrap().entries.remove(0);
        assert_eq!(marked_call(&mark).as_deref(), Some("call"));
        let mut abandoned = CallSearch::new("call");
        for mut line in lines.into_iter().chain([mark.value()]) {
            line["uuid"] = uuid::Uuid::new_v4().to_string().into();
            abandoned.read(&TranscriptEntry::try_from(line).unwrap());
        }
        let entries = abandoned.abandon();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].value()["message"]["content"][0]["tool_use_id"], "call");
        assert_eq!(marked_call(&entries[0]), None);
        // A hook of the application has deferred this one, which the CLI knows how to go on with.
        let mut of_hook = mark.value();
        of_hook["attachment"].as_object_mut().unwrap().remove("markedBy");
        assert_eq!(marked_call(&TranscriptEntry::try_from(of_hook).unwrap()), None);
    }

    #[test]
    fn a_call_that_is_not_open_is_refused_with_the_reason() {
        let side = {
            let mut side = call("m", "call");
            side["isSidechain"] = true.into();
            side
        };
        for (lines, why) in [
            (vec![prompt()], "does not have the call"),
            (vec![prompt(), side], "does not have the call"),
            (vec![prompt(), call("m", "call"), result("call")], "has a result"),
            (vec![prompt(), call("m", "call"), result("call"), call("n", "other")], "has gone on"),
            (vec![prompt(), call("m", "call"), prompt()], "has gone on"),
        ] {
            let refused = search(&lines).unwrap_err();
            assert!(refused.contains(why), "{refused}: {lines:?}");
        }
    }
}
