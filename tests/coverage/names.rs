//! No name of the SDKs is forgotten, and none is made up.

use std::collections::BTreeSet;

use crate::table::{Row, file, rows};

/// SDK, kind, name.
type Name = (String, String, String);

fn names() -> BTreeSet<Name> {
    let text = std::fs::read_to_string(file("tests/coverage/names.tsv")).unwrap();
    // `fields.rs` tests the names of fields.
    let names = text.lines().filter(|line| !line.contains("\tfield\t")).map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [sdk, kind, name] = cells.as_slice() else { panic!("not a name: {line}") };
        ((*sdk).to_owned(), (*kind).to_owned(), (*name).to_owned())
    });
    let names: BTreeSet<Name> = names.collect();
    assert!(names.len() > 500, "{} names are too few", names.len());
    names
}

/// Where a name of this kind may stand: the kinds of rows, and whether it is what the wire says.
fn places(kind: &str) -> (&'static [&'static str], bool) {
    match kind {
        "method" => (&["method", "request"], false),
        // A name that both SDKs have, such as `SDKResultError`, may be a message or a type.
        "message" | "type" => (&["message", "type"], false),
        "request" => (&["request", "asked"], true),
        "initialize" => (&["initialize"], true),
        "option" => (&["option"], false),
        "hook" => (&["hook"], false),
        "function" => (&["function"], false),
        other => panic!("a name of the kind `{other}`"),
    }
}

fn is_at(row: &Row, (sdk, kind, name): &Name) -> bool {
    let (kinds, on_the_wire) = places(kind);
    let column = match sdk.as_str() {
        _ if on_the_wire => &row.wire,
        "typescript" => &row.typescript,
        "python" => &row.python,
        other => panic!("a name of the SDK `{other}`"),
    };
    kinds.contains(&row.kind.as_str()) && column.as_ref() == Some(name)
}

#[test]
fn every_name_of_both_sdks_has_a_row() {
    let rows = rows();
    let forgotten: Vec<_> =
        names().into_iter().filter(|name| !rows.iter().any(|row| is_at(row, name))).collect();
    assert!(forgotten.is_empty(), "without a row: {forgotten:#?}");
}

#[test]
fn every_row_names_something_of_an_sdk_or_of_the_wire() {
    let names = names();
    for row in rows() {
        for (sdk, column) in [("typescript", &row.typescript), ("python", &row.python)] {
            let Some(name) = column else { continue };
            let known = names.iter().any(|known| known.0 == sdk && known.2 == *name && is_at(&row, known));
            assert!(known, "the {sdk} SDK has no `{name}`: {}", row.name());
        }
        let named = row.wire.is_some() || row.typescript.is_some() || row.python.is_some();
        assert!(named, "a row without a name: {row:?}");
    }
}

#[test]
fn every_row_is_something_here_or_says_why_not() {
    let mut seen = BTreeSet::new();
    for row in rows() {
        assert_ne!(row.ours.is_empty(), row.reason.is_none(), "either or: {}", row.name());
        assert!(seen.insert(row.name()), "twice: {}", row.name());
    }
}
