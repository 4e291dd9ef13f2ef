//! Every message of the CLI has a type.

use std::collections::BTreeSet;

use greenroom::Message;
use greenroom::message::SystemMessage;

use crate::table::{file, mapped};

/// A line of each message, as the CLI writes it.
fn lines() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file("tests/coverage/messages.jsonl")).unwrap();
    let lines = text.lines().map(|line| {
        let message = Message::parse(line).unwrap();
        let wire = match message.subtype() {
            Some(subtype) => format!("{}/{subtype}", message.kind()),
            None => message.kind().to_owned(),
        };
        (wire, line.to_owned())
    });
    lines.collect()
}

/// The name of the variant.
fn variant(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[test]
fn every_message_is_read_as_what_the_table_says_and_written_as_it_came() {
    let lines = lines();
    for row in mapped("message") {
        let Some(wire) = &row.wire else { continue };
        let replay = row.typescript.as_deref() == Some("SDKUserMessageReplay");
        let fits = |line: &str| line.contains("\"isReplay\":true") == replay;
        let line = lines.iter().find(|(kind, line)| kind == wire && fits(line));
        let (_, line) = line.unwrap_or_else(|| panic!("no line for {}", row.name()));
        let message = Message::parse(line).unwrap();
        let read = match &message {
            Message::System(system) => format!("message::SystemDetail::{}", variant(system.detail())),
            other => format!("Message::{}", variant(other)),
        };
        assert_eq!(row.ours, [read], "{}", row.name());
        assert_eq!(serde_json::to_string(&message).unwrap(), *line, "nothing is lost: {}", row.name());
    }
}

#[test]
fn every_message_that_is_known_has_a_row() {
    let rows: BTreeSet<String> = mapped("message").into_iter().filter_map(|row| row.wire).collect();
    for subtype in SystemMessage::SUBTYPES {
        assert!(rows.contains(&format!("system/{subtype}")), "system/{subtype} has no row");
    }
    for kind in Message::TYPES {
        let found = rows.iter().any(|row| row.split('/').next() == Some(*kind));
        assert!(found, "{kind} has no row");
    }
}
