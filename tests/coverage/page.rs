//! `table.md`: the table in a form for people.

use std::fmt::Write;

use crate::bless::check_or_bless;
use crate::fields::field_rows;
use crate::table::{Row, rows};

const PAGE: &str = "tests/coverage/table.md";

/// Each kind of row: its heading, and what there is to say.
const SECTIONS: [(&str, &str, &str); 11] = [
    (
        "option",
        "Options",
        "The first column says how the CLI gets the option: as a flag, a variable, or a field of `initialize`.",
    ),
    (
        "function",
        "Functions",
        "Functions that end in `_from_store` and `_via_store` work on a store instead of the disk.",
    ),
    ("method", "Methods", "Methods of `Query` and `ClaudeSDKClient` that send no request to the CLI."),
    (
        "request",
        "Requests to the CLI",
        "`Requests::control` sends any other request. An empty cell means that the SDK has no method for the request.",
    ),
    (
        "asked",
        "Requests of the CLI",
        "Your handlers answer these requests. Unknown requests are refused, as the protocol demands.",
    ),
    ("prompt", "Prompts", "The fields of a prompt. A plain text is a `Prompt` too."),
    (
        "message",
        "Messages",
        "Unknown messages, subtypes and fields are kept as JSON: `Message::Other`, `SystemDetail::Unknown`.",
    ),
    ("hook", "Hooks", "`Hook::new` makes a hook at an event that greenroom does not know, by its name."),
    ("mcp", "Tool servers", "Messages between the CLI and a tool server in your process, in MCP."),
    (
        "initialize",
        "Fields of `initialize`",
        "`initialize` is the first request of a session, and carries many options.",
    ),
    ("type", "Types and constants", "The remaining names that the SDKs export."),
];

fn page() -> String {
    let mut page = "<!-- Made of table.tsv, differs.tsv and fields.tsv by GREENROOM_BLESS=1 cargo test --test coverage -->\n\n\
         # Where each name of the SDKs is\n\nFor the TypeScript SDK 0.3.330, the Python SDK 0.2.187 and CLI 2.1.330.\n"
        .to_owned();
    let rows = rows();
    for (kind, heading, words) in SECTIONS {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        assert!(!rows.is_empty(), "no row of the kind `{kind}`");
        write!(page, "\n## {heading}\n\n{words}\n\n").unwrap();
        // A column in which nothing stands is left out.
        let on_the_wire = rows.iter().any(|row| row.wire.is_some());
        let in_sdks = rows.iter().any(|row| row.typescript.is_some() || row.python.is_some());
        let mut titles = Vec::new();
        titles.extend(on_the_wire.then_some("on the wire"));
        titles.extend(in_sdks.then_some("TypeScript"));
        titles.extend(in_sdks.then_some("Python"));
        titles.push("greenroom");
        writeln!(page, "| {} |", titles.join(" | ")).unwrap();
        writeln!(page, "|{}", "---|".repeat(titles.len())).unwrap();
        for row in rows {
            let mut cells = Vec::new();
            cells.extend(on_the_wire.then(|| code(row.wire.as_deref())));
            cells.extend(in_sdks.then(|| code(row.typescript.as_deref())));
            cells.extend(in_sdks.then(|| code(row.python.as_deref())));
            cells.push(match &row.reason {
                Some(reason) => format!("not here: {reason}"),
                None => row.ours.iter().map(|ours| code(Some(ours))).collect::<Vec<_>>().join(", "),
            });
            if let (Some(differs), Some(ours)) = (&row.differs, cells.last_mut()) {
                write!(ours, "; different: {differs}").unwrap();
            }
            writeln!(page, "| {} |", cells.join(" | ")).unwrap();
        }
    }
    fields(&mut page);
    page
}

/// The fields that are called otherwise here, or are not here.
fn fields(page: &mut String) {
    let words = "A field that is not in this list has the same name here, perhaps in snake case, in the type that the tables \
         above name. `*` stands for any part of a name; the fields inside a listed field go with it.";
    write!(page, "\n## Fields that are elsewhere, or not here\n\n{words}\n\n").unwrap();
    writeln!(page, "| SDK | field | greenroom |\n|---|---|---|").unwrap();
    for row in field_rows() {
        let sdk = match row.sdk.as_str() {
            "typescript" => "TypeScript",
            "python" => "Python",
            _ => "both",
        };
        let here = match &row.reason {
            Some(reason) => format!("not here: {reason}"),
            None => row.ours.iter().map(|ours| code(Some(ours))).collect::<Vec<_>>().join(", "),
        };
        writeln!(page, "| {sdk} | `{}` | {here} |", row.name).unwrap();
    }
}

fn code(name: Option<&str>) -> String {
    name.map(|name| format!("`{name}`")).unwrap_or_default()
}

#[test]
fn the_page_is_made_of_the_table() {
    check_or_bless(PAGE, &page(), "coverage");
}
