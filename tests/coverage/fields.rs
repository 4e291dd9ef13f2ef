//! No field of the SDKs' types is forgotten.
//!
//! `extract.py` finds the fields, those inside of fields too. A field is here if the type of the library that the table
//! names has a member or a word on the wire that is called the same. `fields.tsv` says the rest: which type of the
//! library belongs to a type that has no row in the table, where a field is that is called otherwise, and why a field
//! is not here. A row may stand for many with `*`, and covers what is inside of its field.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::declared::{Declared, snake};
use crate::table::{file, rows};

/// A row of `fields.tsv`.
#[derive(Debug)]
pub(crate) struct FieldRow {
    /// `typescript`, `python`, or `*` for both.
    pub(crate) sdk: String,
    /// A type, or a field of one; `*` stands for any part of a word.
    pub(crate) name: String,
    /// Paths in greenroom, without the name of the crate.
    pub(crate) ours: Vec<String>,
    /// Reason why greenroom does not have it.
    pub(crate) reason: Option<String>,
    pattern: Regex,
}

impl FieldRow {
    /// Whether it is about this type or field, or one that it is inside of.
    fn covers(&self, sdk: &str, name: &str) -> bool {
        (self.sdk == "*" || self.sdk == sdk) && self.pattern.is_match(name)
    }
}

pub(crate) fn field_rows() -> Vec<FieldRow> {
    let text = std::fs::read_to_string(file("tests/coverage/fields.tsv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("sdk\tname\tours\treason"));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [sdk, name, ours, reason] = cells.as_slice() else { panic!("not four cells: {line}") };
        assert_ne!(*ours == "-", *reason == "-", "either or: {line}");
        let pattern = regex::escape(name).replace(r"\*", r"\w*");
        FieldRow {
            sdk: (*sdk).to_owned(),
            name: (*name).to_owned(),
            ours: ours.split(", ").filter(|ours| *ours != "-").map(str::to_owned).collect(),
            reason: Some((*reason).to_owned()).filter(|reason| reason != "-"),
            pattern: Regex::new(&format!(r"^{pattern}(\.|$)")).unwrap(),
        }
    });
    rows.collect()
}

/// The fields of each type of each SDK.
fn fields() -> BTreeMap<(String, String), Vec<String>> {
    let text = std::fs::read_to_string(file("tests/coverage/names.tsv")).unwrap();
    let mut fields: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        if let [sdk, "field", name] = cells.as_slice() {
            let (owner, field) = name.split_once('.').unwrap();
            fields.entry(((*sdk).to_owned(), owner.to_owned())).or_default().push(field.to_owned());
        }
    }
    assert!(fields.len() > 300, "{} types are too few", fields.len());
    fields
}

/// Fields that every message has, in `Message` itself.
const ENVELOPE: [&str; 7] = [
    "type",
    "subtype",
    "uuid",
    "session_id",
    "parent_tool_use_id",
    "user_message_uuid",
    "user_message_uuids",
];

/// Their fields have names of a kind of their own: `option`, `method`, `initialize`. What is inside of those is checked
/// here.
const OF_ANOTHER_KIND: [&str; 4] = ["Options", "ClaudeAgentOptions", "Query", "SDKControlInitializeRequest"];

/// A type's row in the table: its paths in greenroom, or the reason why there are none.
enum Type {
    Here { owners: BTreeSet<String>, envelope: bool },
    NotHere,
    Unknown,
}

fn type_of(sdk: &str, name: &str, own: &[FieldRow], declared: &Declared) -> Type {
    let (mut owners, mut envelope, mut reason) = (BTreeSet::new(), false, false);
    // `SDKControlSetModelRequest` is the request `set_model`.
    let request = name.strip_prefix("SDKControl").and_then(|name| name.strip_suffix("Request")).map(snake);
    for row in rows() {
        let column = if sdk == "typescript" { &row.typescript } else { &row.python };
        let named = matches!(row.kind.as_str(), "type" | "message") && column.as_deref() == Some(name);
        let asked =
            matches!(row.kind.as_str(), "request" | "asked") && row.wire.is_some() && row.wire == request;
        if named || asked {
            owners.extend(row.ours.iter().flat_map(|path| declared.behind(path)));
            envelope |= row.kind == "message";
            reason |= row.reason.is_some();
        }
    }
    for row in own.iter().filter(|row| !row.name.contains('.') && row.covers(sdk, name)) {
        owners.extend(row.ours.iter().flat_map(|path| declared.behind(path)));
        if row.reason.is_some() {
            return Type::NotHere;
        }
    }
    if name.ends_with("HookInput") {
        owners.insert("Common".to_owned());
    }
    match owners.is_empty() {
        false => Type::Here { owners, envelope },
        true if reason => Type::NotHere,
        true => Type::Unknown,
    }
}

/// Whether one of these types has the field. What is inside of a field that is kept as JSON is there with it.
fn has(declared: &Declared, mut owners: BTreeSet<String>, field: &str) -> bool {
    for step in field.split('.') {
        let found: Vec<BTreeSet<String>> =
            owners.iter().filter_map(|owner| declared.members(owner).remove(&snake(step))).collect();
        if found.is_empty() {
            return false;
        }
        owners = found.into_iter().flatten().filter(|name| name != "Option" && name != "Vec").collect();
        if owners.iter().any(|name| matches!(name.as_str(), "Value" | "Map" | "BTreeMap")) {
            return true;
        }
    }
    true
}

#[test]
fn every_field_of_both_sdks_is_here_or_says_why_not() {
    let (declared, own) = (Declared::read(), field_rows());
    let (mut forgotten, mut used) = (Vec::new(), BTreeSet::new());
    for ((sdk, owner), fields) in fields() {
        let kind = type_of(&sdk, &owner, &own, &declared);
        used.extend(own.iter().filter(|row| row.covers(&sdk, &owner)).map(|row| &row.name));
        for field in fields {
            let name = format!("{owner}.{field}");
            let found = match &kind {
                _ if OF_ANOTHER_KIND.contains(&owner.as_str()) && !field.contains('.') => true,
                Type::NotHere => true,
                Type::Unknown => false,
                Type::Here { envelope: true, .. } if ENVELOPE.contains(&field.as_str()) => true,
                Type::Here { owners, .. } => has(&declared, owners.clone(), &field),
            };
            if !found {
                match own.iter().find(|row| row.name.contains('.') && row.covers(&sdk, &name)) {
                    Some(row) => drop(used.insert(&row.name)),
                    None => forgotten.push(format!("{sdk} {name}")),
                }
            }
        }
    }
    assert!(forgotten.is_empty(), "neither here nor in fields.tsv: {forgotten:#?}");
    let idle: Vec<&String> = own.iter().map(|row| &row.name).filter(|name| !used.contains(name)).collect();
    assert!(idle.is_empty(), "of no field that needs it, in fields.tsv: {idle:?}");
}

#[test]
fn what_fields_tsv_names_is_declared() {
    let declared = Declared::read();
    for row in field_rows() {
        for path in &row.ours {
            let (owner, name) = path.rsplit_once("::").unwrap_or(("", path));
            let owner = owner.rsplit("::").next().unwrap_or_default();
            let found = declared.has(name) || declared.members(owner).contains_key(&snake(name));
            assert!(found, "`{path}` is not declared: {row:?}");
        }
    }
}
