//! Tables that people look things up in. `Options`, `Limits`, `Timeouts` and `Event` have a row for each field or variant,
//! with the real defaults. `docs/troubleshooting.md` has the texts that the library really says.

use std::fs;

use greenroom::Options;
use greenroom::options::{Limits, Timeouts};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{root, sources};

/// A row: the name of the field or variant, and the text of the last column.
fn rows(table: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("src").join(table)).unwrap();
    let rows = text.lines().filter_map(|line| {
        let (name, link) = line.strip_prefix("| [`")?.split_once("`](Self::")?;
        assert!(link.starts_with(&format!("{name})")), "{table}: `{name}` links to something else: {line}");
        let last = line.strip_suffix(" |").unwrap().rsplit(" | ").next().unwrap();
        Some((name.to_owned(), last.to_owned()))
    });
    rows.collect()
}

/// Asserts that the table has each of these names exactly once.
fn complete(table: &str, mut names: Vec<String>) {
    let mut listed: Vec<String> = rows(table).into_iter().map(|(name, _)| name).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names, "the rows of src/{table}, and the names that should have a row");
}

fn defaults<T: Default + Serialize>() -> Map<String, Value> {
    match serde_json::to_value(T::default()).unwrap() {
        Value::Object(fields) => fields,
        other => panic!("no fields: {other}"),
    }
}

/// The number that a default such as `64 MiB`, `16,384` or `60 s` says, durations in milliseconds; `null` for `none`.
fn said(text: &str) -> Value {
    if text == "none" {
        return Value::Null;
    }
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u64 = number.replace(',', "").parse().unwrap_or_else(|error| panic!("`{text}`: {error}"));
    let unit = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "s" => 1000,
        other => panic!("a default has the unit `{other}`"),
    };
    Value::from(number * unit)
}

/// Asserts that the rows, and the docs of the fields, have the real defaults.
fn true_defaults(table: &str, source: &str, defaults: &Map<String, Value>) {
    let source = fs::read_to_string(root().join("src").join(source)).unwrap();
    for (name, default) in rows(table) {
        assert_eq!(said(&default), defaults[&name], "src/{table}: the default of `{name}` is `{default}`");
        let before = source.split(&format!("pub {name}: ")).next().unwrap();
        let docs = before.rsplit("pub ").next().unwrap().replace("///", " ");
        let docs = docs.split_whitespace().collect::<Vec<_>>().join(" ");
        let documented = docs.rsplit("Default: ").next().unwrap();
        assert!(
            documented.starts_with(&default),
            "the docs of `{name}` say `{documented}`, the table `{default}`"
        );
    }
}

#[test]
fn every_limit_has_a_row_with_its_default() {
    let (table, defaults) = ("options/runtime/limits.md", defaults::<Limits>());
    complete(table, defaults.keys().cloned().collect());
    true_defaults(table, "options/runtime/limits.rs", &defaults);
}

#[test]
fn every_timeout_has_a_row_with_its_default() {
    let (table, defaults) = ("options/runtime/timeouts.md", defaults::<Timeouts>());
    complete(table, defaults.keys().cloned().collect());
    true_defaults(table, "options/runtime/timeouts.rs", &defaults);
}

#[test]
fn every_option_has_a_row_with_its_default() {
    let (table, defaults) = ("options/options.md", defaults::<Options>());
    complete(table, defaults.keys().cloned().collect());
    for (name, default) in rows(table) {
        let real = &defaults[&name];
        let right = match real {
            Value::Bool(on) => default == if *on { "on" } else { "off" },
            // The variant that serde writes as this word in snake case.
            Value::String(word) => {
                let variant = default.split('`').nth(1).unwrap_or_default();
                variant.to_lowercase() == word.replace('_', "")
            }
            Value::Array(all) => all.is_empty() && default == "none",
            Value::Object(all) if all.is_empty() => default == "none",
            Value::Object(_) => default.starts_with("see ["),
            // Nothing is set: the default is somebody else's.
            Value::Null => default != "off" && default != "on" && !default.starts_with("see ["),
            Value::Number(_) => false,
        };
        assert!(right, "src/{table}: the default of `{name}` is `{default}`, in truth {real}");
    }
}

#[test]
fn every_event_has_a_row() {
    let source = fs::read_to_string(root().join("src/report/event.rs")).unwrap();
    let body = source.split("pub enum Event {\n").nth(1).unwrap().split("\n}\n").next().unwrap();
    let variants = body.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let name: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
        line.starts_with(char::is_uppercase).then_some(name)
    });
    complete("report/event.md", variants.collect());
}

#[test]
fn the_texts_in_troubleshooting_are_those_of_the_library() {
    let mut files = sources(&root().join("src"));
    files.extend(sources(&root().join("crates/greenroom-process/src")));
    let source: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    // A text that goes on in the next line of the source.
    let parts: Vec<&str> = source.split("\\\n").collect();
    let source = parts.iter().map(|part| part.trim_start_matches(' ')).collect::<String>();

    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let tables = page.split("| text |").skip(1).filter_map(|table| table.split("\n\n").next());
    let rows: Vec<&str> = tables.flat_map(|table| table.lines().skip(2)).collect();
    assert!(rows.len() > 40, "only {} rows were found", rows.len());
    let mut unsaid = Vec::new();
    for row in rows {
        let texts = row.strip_prefix("| ").unwrap().split(" | ").next().unwrap().replace("\\`", "`");
        let pieces = texts.split("<br>").flat_map(|text| text.split('…')).map(str::trim);
        unsaid.extend(pieces.filter(|piece| piece.len() > 3 && !source.contains(piece)).map(str::to_owned));
    }
    assert!(unsaid.is_empty(), "no source has these texts: {unsaid:#?}");
}
