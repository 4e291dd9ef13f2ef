//! The prefix that two requests share, as the prompt cache of the API sees it.

use std::fmt;

use serde_json::Value;

use super::ModelRequest;

/// The beginning of the block that is for the bill.
const BILLING: &str = "x-anthropic-billing-header:";

/// Characters shown on both sides of a difference.
const SHOWN: usize = 60;

/// The first difference between a request and the prefix that it should begin with. The API's prompt cache is lost from there on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixChange {
    /// Where it is, such as `system[1].text` or `tools[3] (Bash).description`.
    pub at: String,
    /// What the earlier request has there, from some characters before the difference on.
    pub before: String,
    /// What the later request has there.
    pub after: String,
}

impl fmt::Display for PrefixChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {:?} and is {:?}", self.at, self.before, self.after)
    }
}

impl ModelRequest {
    /// The first difference that keeps this request from reading the prompt cache that `earlier` has left. `None`: it begins with all of
    /// `earlier`.
    ///
    /// Compared are, in this order, the model, `tool_choice`, `thinking`, the tools, the system prompt and the messages of `earlier`. Cache
    /// marks do not count, nor do `metadata.user_id` and the block `x-anthropic-billing-header`, which names the version of the CLI. A content that is a string equals a content of one text block: the CLI changes the one
    /// into the other after the first request of a conversation.
    ///
    /// ```no_run
    /// # async fn example(model: &greenroom_testkit::ScriptedModel) {
    /// let requests = model.requests();
    /// let [.., before, after] = &requests[..] else { return };
    /// if let Some(change) = after.prefix_change(before) {
    ///     panic!("the prompt cache is lost: {change}");
    /// }
    /// # }
    /// ```
    pub fn prefix_change(&self, earlier: &ModelRequest) -> Option<PrefixChange> {
        let (before, after) = (earlier.body(), self.body());
        let settings = ["model", "tool_choice", "thinking"];
        let setting = settings.into_iter().find_map(|name| change(name, &before[name], &after[name]));
        let list = |name: &str, all: bool| {
            let (before, after) = (items(&before[name]), items(&after[name]));
            let named = |at: usize| match before.get(at).and_then(|item| item["name"].as_str()) {
                Some(tool) => format!("{name}[{at}] ({tool})"),
                None => format!("{name}[{at}]"),
            };
            let of_both = before.iter().zip(&after).enumerate();
            let changed =
                of_both.into_iter().find_map(|(at, (before, after))| change(&named(at), before, after));
            changed.or_else(|| match before.len().cmp(&after.len()) {
                std::cmp::Ordering::Greater => {
                    change(&named(after.len()), &before[after.len()], &Value::Null)
                }
                std::cmp::Ordering::Less if all => {
                    change(&format!("{name}[{}]", before.len()), &Value::Null, &after[before.len()])
                }
                _ => None,
            })
        };
        setting
            .or_else(|| list("tools", true))
            .or_else(|| list("system", true))
            .or_else(|| list("messages", false))
    }
}

/// Tools, blocks or messages, without their cache marks and in one form.
fn items(value: &Value) -> Vec<Value> {
    let mut items = blocks(value);
    items.retain(|item| !item["text"].as_str().is_some_and(|text| text.starts_with(BILLING)));
    for item in &mut items {
        if item.get("role").is_some() {
            item["content"] = Value::Array(blocks(&item["content"]));
        }
    }
    items
}

/// Blocks without their cache marks, a text as a block.
fn blocks(value: &Value) -> Vec<Value> {
    let mut blocks = match value {
        Value::Array(blocks) => blocks.clone(),
        Value::String(text) => vec![serde_json::json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    };
    for block in &mut blocks {
        if let Value::Object(fields) = block {
            fields.remove("cache_control");
        }
        if block["type"] == "tool_result" && block["content"].is_array() {
            block["content"] = Value::Array(self::blocks(&block["content"]));
        }
    }
    blocks
}

/// The first difference between two values.
fn change(at: &str, before: &Value, after: &Value) -> Option<PrefixChange> {
    if before == after {
        return None;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
            let null = Value::Null;
            let (old, new) = (|key| old.get(key).unwrap_or(&null), |key| new.get(key).unwrap_or(&null));
            keys.into_iter().find_map(|key| change(&format!("{at}.{key}"), old(key), new(key)))
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let both = old.iter().zip(new).enumerate();
            both.into_iter().find_map(|(index, (old, new))| change(&format!("{at}[{index}]"), old, new))
        }
        _ => {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let (old, new) = (text(before), text(after));
            let same = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
            let shown = |text: &str| text.chars().skip(same.saturating_sub(SHOWN / 2)).take(SHOWN).collect();
            Some(PrefixChange { at: at.to_owned(), before: shown(&old), after: shown(&new) })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in tests")]

    use hyper::HeaderMap;
    use serde_json::json;

    use super::*;

    fn request(body: Value) -> ModelRequest {
        ModelRequest::new(&HeaderMap::new(), body)
    }

    fn first() -> Value {
        json!({
            "model": "m", "metadata": { "user_id": "1" },
            "tools": [{ "name": "Bash", "description": "Runs." }, { "name": "Read", "description": "Reads." }],
            "system": [{ "type": "text", "text": "x-anthropic-billing-header: cc_version=1" }, {
                "type": "text", "text": "You are kind.", "cache_control": { "type": "ephemeral" } }],
            "messages": [{
                "role": "user",
                "content": [{ "type": "text", "text": "Hello.", "cache_control": { "type": "ephemeral" } }],
            }],
        })
    }

    fn later() -> Value {
        let mut later = first();
        later["metadata"]["user_id"] = json!("2");
        later["system"][0]["text"] = json!("x-anthropic-billing-header: cc_version=2");
        later["system"][1]["cache_control"] = json!({ "type": "ephemeral", "ttl": "1h" });
        later["messages"] = json!([
            { "role": "user", "content": "Hello." },
            { "role": "assistant", "content": [{ "type": "text", "text": "Hi." }] },
        ]);
        later
    }

    fn changed(change: impl FnOnce(&mut Value)) -> PrefixChange {
        let mut body = later();
        change(&mut body);
        request(body).prefix_change(&request(first())).unwrap()
    }

    #[test]
    fn cache_marks_the_user_and_the_form_of_a_text_do_not_count() {
        assert_eq!(request(later()).prefix_change(&request(first())), None);
    }

    #[test]
    fn the_first_difference_is_found_and_shown() {
        let clock = changed(|body| body["system"][1]["text"] = json!("You are kind. It is noon."));
        assert_eq!(
            (clock.at.as_str(), clock.after.as_str()),
            ("system[0].text", "You are kind. It is noon.")
        );
        let tools = changed(|body| body["tools"].as_array_mut().unwrap().reverse());
        assert_eq!(tools.at, "tools[0] (Bash).description");
        assert_eq!((tools.before.as_str(), tools.after.as_str()), ("Runs.", "Reads."));
        let added = changed(|body| body["tools"].as_array_mut().unwrap().push(json!({ "name": "Edit" })));
        assert_eq!(added.at, "tools[2]");
        let forgotten = changed(|body| body["messages"] = json!([]));
        assert_eq!(forgotten.at, "messages[0]");
        let said = changed(|body| body["messages"][0]["content"] = json!("Bye."));
        assert_eq!(said.at, "messages[0].content[0].text");
        let model = changed(|body| body["model"] = json!("n"));
        assert_eq!(model.to_string(), "model was \"m\" and is \"n\"");
    }
}
