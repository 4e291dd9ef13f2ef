//! The differences that there are, each with its reason.

use serde_json::Value;

use crate::compare::differences;

/// A difference: what turns what is seen with the SDK into what is seen with greenroom.
struct Difference {
    /// The scenario, or `*` for all of them.
    scenario: &'static str,
    /// The places in what was seen, each of which has it; `*` stands for any index or name.
    at: &'static [&'static str],
    change: Change,
    reason: &'static str,
}

enum Change {
    /// A part of a text.
    Text { sdk: &'static str, ours: &'static str },
    /// A whole value, as JSON.
    Value { sdk: &'static str, ours: &'static str },
    /// A value that is there with greenroom only, as JSON.
    Added(&'static str),
    /// An element of a list that is the last with greenroom.
    ToTheEnd(&'static str),
}

/// Where the results of tools are: in what the model is told, and in what the application reads.
const RESULTS: &[&str] = &["/requests/*/messages/*/content/*/content", "/told/heard/*/blocks/*/content"];
const TEXTS_IN_RESULTS: &[&str] =
    &["/requests/*/messages/*/content/*/content/*/text", "/told/heard/*/blocks/*/content/*/text"];

const LISTED: &[Difference] = &[
    Difference {
        scenario: "*",
        at: &["/requests/*/system/0/text"],
        change: Change::Text { sdk: "cc_entrypoint=sdk-py", ours: "cc_entrypoint=sdk-cli" },
        reason: "the CLI says by whom it was started; it knows no name for greenroom",
    },
    Difference {
        scenario: "arguments",
        at: RESULTS,
        change: Change::Text { sdk: "'a' is a required property", ours: "missing field `a`" },
        reason: WORDS,
    },
    Difference {
        scenario: "arguments",
        at: RESULTS,
        change: Change::Text { sdk: "'b' is a required property", ours: "missing field `b`" },
        reason: WORDS,
    },
    Difference {
        scenario: "arguments",
        at: RESULTS,
        change: Change::Text { sdk: "'kind' is a required property", ours: "missing field `kind`" },
        reason: WORDS,
    },
    Difference {
        scenario: "arguments",
        at: RESULTS,
        change: Change::Text {
            sdk: "'three' is not of type 'integer'",
            ours: "`b`: invalid type: string \"three\", expected i64",
        },
        reason: NAMED,
    },
    Difference {
        scenario: "arguments",
        at: RESULTS,
        change: Change::Text {
            sdk: "None is not of type 'integer'",
            ours: "`b`: invalid type: null, expected i64",
        },
        reason: NAMED,
    },
    Difference {
        scenario: "late_hooks",
        at: RESULTS,
        change: Change::Text {
            sdk: "PreToolUse hook did not respond before its timeout (host client may be unreachable). The tool call was not executed; other configured hooks may not have completed.",
            ours: "PreToolUse:mcp__desk__echo hook error: the PreToolUse hook did not answer within 1s",
        },
        reason: LATE,
    },
    Difference {
        scenario: "late_hooks",
        at: RESULTS,
        change: Change::Value { sdk: r#"[{"text":"raises","type":"text"}]"#, ours: FAILED_HOOK },
        reason: BLOCKS,
    },
    Difference {
        scenario: "late_hooks",
        at: &["/requests/3/messages/7/content/0/is_error"],
        change: Change::Added("true"),
        reason: BLOCKS,
    },
    Difference {
        scenario: "late_hooks",
        at: &["/told/heard/2/blocks/0/is_error"],
        change: Change::Value { sdk: "false", ours: "true" },
        reason: BLOCKS,
    },
    Difference {
        scenario: "late_hooks",
        at: &["/told/ends/0/denied/1", "/told/ends/0/denied/2"],
        change: Change::Added(r#""mcp__desk__echo""#),
        reason: "greenroom denies the call; in the SDK the CLI gives up waiting, which it does not count as a denial, or goes on",
    },
    Difference {
        scenario: "rich_results",
        at: TEXTS_IN_RESULTS,
        change: Change::Text {
            sdk: "a\nfile:///a.txt\nThe first",
            ours: "[Resource link: a] file:///a.txt (The first)",
        },
        reason: FLATTENED,
    },
    Difference {
        scenario: "rich_results",
        at: TEXTS_IN_RESULTS,
        change: Change::Text { sdk: "inside", ours: "[Resource from desk at file:///a.txt] inside" },
        reason: FLATTENED,
    },
    Difference {
        scenario: "rich_results",
        at: &["/requests/1/messages/3/content/2/content/1", "/told/heard/2/blocks/0/content/1"],
        change: Change::Added(
            r#"{"text":"[Resource from desk at file:///a.bin] Binary content (application/octet-stream, 2 bytes) saved to <root>/home/.claude/projects/<root>-cwd/<uuid>/tool-results/mcp-desk-blob-<id>.bin","type":"text"}"#,
        ),
        reason: DROPPED,
    },
    Difference {
        scenario: "rich_results",
        at: &["/requests/1/messages/3/content/3/content/1", "/told/heard/3/blocks/0/content/1"],
        change: Change::Added(
            r#"{"text":"[Audio from desk] Binary content (audio/wav, 2 bytes) saved to <root>/home/.claude/projects/<root>-cwd/<uuid>/tool-results/mcp-desk-blob-<id>.wav","type":"text"}"#,
        ),
        reason: DROPPED,
    },
    Difference {
        scenario: "rich_results",
        at: RESULTS,
        change: Change::Value { sdk: r#"[{"text":"5","type":"text"}]"#, ours: r#""{\"sum\":5}""# },
        reason: "the SDK drops structured content; where there is some, the CLI shows it to the model and no text",
    },
    Difference {
        scenario: "output_schema",
        at: &["/requests/*/tool_order"],
        change: Change::ToTheEnd("StructuredOutput"),
        reason: "greenroom tells the CLI of the schema in `initialize`, and not in an argument that all users of the machine can \
                 read; the CLI then adds the tool after all others",
    },
    Difference {
        scenario: "questions",
        at: &["/told/asked/6/messageBreakdown/userMessageTokens"],
        change: Change::Value { sdk: "2.0", ours: "8.0" },
        reason: "the CLI guesses how long a prompt is from its JSON, and the prompts of the SDK are no list of blocks",
    },
    Difference {
        scenario: "questions",
        at: &["/told/asked/8"],
        change: Change::Text { sdk: "Server not", ours: "the CLI refused 'mcp_reconnect': Server not" },
        reason: SAID,
    },
    Difference {
        scenario: "questions",
        at: &["/told/asked/9"],
        change: Change::Text { sdk: "File", ours: "the CLI refused 'rewind_files': File" },
        reason: SAID,
    },
];

const FAILED_HOOK: &str =
    r#""PreToolUse:mcp__desk__echo hook error: the PreToolUse hook failed: the policy is lost""#;
const LATE: &str =
    "the limit of greenroom passes before the CLI's, so the reason is greenroom's; the call runs in neither";
const BLOCKS: &str =
    "a PreToolUse hook that fails blocks the call unless it was registered to let pass; the SDK lets pass";
const SAID: &str = "an error of greenroom says what it was that failed";
const WORDS: &str = "the same finding in other words: serde's instead of jsonschema's";
const NAMED: &str = "greenroom names the field, so that the model knows what to mend";
const FLATTENED: &str = "the SDK makes text of resources; greenroom hands them to the CLI as they are";
const DROPPED: &str = "the SDK drops what is neither text nor a picture; the CLI saves it and says where";

/// Fails when the two differ in anything that is not listed, or do not differ in what is.
pub(crate) fn check(scenario: &str, mut theirs: Value, ours: &Value) {
    let mut gone = Vec::new();
    for difference in LISTED.iter().filter(|listed| ["*", scenario].contains(&listed.scenario)) {
        assert!(!difference.reason.is_empty(), "a difference without a reason at {:?}", difference.at);
        for at in difference.at {
            let path: Vec<&str> = at.split('/').skip(1).collect();
            if !apply(&mut theirs, &path, &difference.change) {
                gone.push((at, difference.reason));
            }
        }
    }
    let found = differences(&theirs, ours);
    assert!(found.is_empty(), "differences that are not listed:\n{found}");
    assert!(gone.is_empty(), "listed differences that are no more: {gone:#?}");
}

/// Makes the change wherever the path leads; false if there is no such place.
fn apply(value: &mut Value, path: &[&str], change: &Change) -> bool {
    let [step, rest @ ..] = path else { return replace(value, change) };
    if let (Change::Added(added), []) = (change, rest) {
        return add(value, step, serde_json::from_str(added).unwrap());
    }
    let fits = |name: &str| *step == "*" || *step == name;
    // Each place is changed, so nothing stops at the first.
    match value {
        Value::Object(fields) => fields
            .iter_mut()
            .filter(|(name, _)| fits(name))
            .fold(false, |changed, (_, value)| apply(value, rest, change) || changed),
        Value::Array(items) => items
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| fits(&index.to_string()))
            .fold(false, |changed, (_, value)| apply(value, rest, change) || changed),
        _ => false,
    }
}

fn replace(value: &mut Value, change: &Change) -> bool {
    match (change, value) {
        (Change::Text { sdk, ours }, Value::String(text)) if text.contains(sdk) => {
            *text = text.replace(sdk, ours);
            true
        }
        (Change::ToTheEnd(name), Value::Array(items)) => match items.iter().position(|item| item == name) {
            Some(place) => {
                let item = items.remove(place);
                items.push(item);
                place + 1 < items.len()
            }
            None => false,
        },
        (Change::Value { sdk, ours }, value) if *value == serde_json::from_str::<Value>(sdk).unwrap() => {
            *value = serde_json::from_str(ours).unwrap();
            true
        }
        _ => false,
    }
}

fn add(to: &mut Value, name: &str, added: Value) -> bool {
    match to {
        Value::Object(fields) if !fields.contains_key(name) => {
            fields.insert(name.to_owned(), added).is_none()
        }
        Value::Array(items) if items.len().to_string() == name => {
            items.push(added);
            true
        }
        _ => false,
    }
}
