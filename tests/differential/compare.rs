//! Removes ids, times and folders, which differ in every run, and lists the differences that remain.

use std::fmt::Write;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

/// Patterns of text that differs in every run, and their replacements.
static CHANGING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
        (r"\d{4}-\d{2}-\d{2}(T[\d:.]+Z)?", "<date>"),
        ("[0-9a-f]{64}", "<hash>"),
        (r"127\.0\.0\.1:\d+", "<model>"),
        ("cch=[0-9a-f]+", "cch=<hash>"),
        (r"\ba[0-9a-f]{16}\b", "<agent>"),
        (r"duration_ms: \d+", "duration_ms: <ms>"),
        (r"mcp-desk-(\w+)-\d+-[0-9a-z]+", "mcp-desk-$1-<id>"),
        (r"(plans/[a-z-]+-)[a-z]+-[a-z]+\.md", "$1<name>.md"),
    ]
    .into_iter()
    .map(|(pattern, place)| (Regex::new(pattern).unwrap(), place))
    .collect()
});

/// A copy of the value without ids, times, `null` and the path of the scenario's folder.
pub(crate) fn normal(value: &Value, root: &str) -> Value {
    match value {
        Value::String(text) => {
            let key = root.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let text = text.replace(root, "<root>").replace(&key, "<root>");
            let places = CHANGING.iter();
            places.fold(text, |text, (pattern, place)| pattern.replace_all(&text, *place).into_owned()).into()
        }
        Value::Array(items) => items.iter().map(|item| normal(item, root)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, value)| !value.is_null() && !name.ends_with("_ms"));
            let mut fields: Map<_, _> =
                fields.map(|(name, value)| (name.clone(), normal(value, root))).collect();
            // A text, and a list with one block of text, are the same to the API. The Python SDK sends the one,
            // greenroom and the TypeScript SDK the other.
            if fields.contains_key("role")
                && let Some(Value::String(text)) = fields.get("content")
            {
                let blocks = json!([{ "type": "text", "text": text }]);
                fields.insert("content".into(), blocks);
            }
            fields.into()
        }
        // 0 and 0.0 are the same number.
        Value::Number(number) => number.as_f64().map_or(value.clone(), |number| json!(number)),
        other => other.clone(),
    }
}

/// Each place where the two differ, one to a paragraph; empty if there is none.
pub(crate) fn differences(theirs: &Value, ours: &Value) -> String {
    let mut found = String::new();
    walk("", Some(theirs), Some(ours), &mut found);
    found
}

fn walk(at: &str, theirs: Option<&Value>, ours: Option<&Value>, found: &mut String) {
    match (theirs, ours) {
        (theirs, ours) if theirs == ours => {}
        (Some(Value::Object(theirs)), Some(Value::Object(ours))) => {
            let names = theirs.keys().chain(ours.keys().filter(|name| !theirs.contains_key(*name)));
            for name in names {
                walk(&format!("{at}/{name}"), theirs.get(name), ours.get(name), found);
            }
        }
        (Some(Value::Array(theirs)), Some(Value::Array(ours))) => {
            for index in 0..theirs.len().max(ours.len()) {
                walk(&format!("{at}/{index}"), theirs.get(index), ours.get(index), found);
            }
        }
        (Some(Value::String(theirs)), Some(Value::String(ours))) => {
            let same = theirs.chars().zip(ours.chars()).take_while(|(one, other)| one == other).count();
            let part = |text: &str| text.chars().skip(same.saturating_sub(40)).take(200).collect::<String>();
            writeln!(
                found,
                "{at}, at character {same}\n    SDK:  {:?}\n    ours: {:?}",
                part(theirs),
                part(ours)
            )
            .unwrap();
        }
        (theirs, ours) => {
            let part = |value: Option<&Value>| match value {
                Some(value) => value.to_string().chars().take(400).collect(),
                None => "nothing".to_owned(),
            };
            writeln!(found, "{at}\n    SDK:  {}\n    ours: {}", part(theirs), part(ours)).unwrap();
        }
    }
}
