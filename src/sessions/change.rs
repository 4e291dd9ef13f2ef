//! The entries that change a session's title and tag.

use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use crate::error::{Error, Result};

pub(crate) fn title_entry(session_id: &str, title: &str) -> Result<Value> {
    let title = title.trim();
    if title.is_empty() {
        let error = Error::invalid_option("the title of a session must not be empty");
        return Err(error.with_help("give it at least one visible character"));
    }
    Ok(json!({ "type": "custom-title", "customTitle": title, "sessionId": session_id }))
}

pub(crate) fn tag_entry(session_id: &str, tag: Option<&str>) -> Result<Value> {
    let tag = tag.map(clean);
    if tag.as_deref() == Some("") {
        let error = Error::invalid_option("the tag of a session must not be empty");
        return Err(error.with_help("give it at least one visible character, or `None` to remove the tag"));
    }
    Ok(json!({ "type": "tag", "tag": tag.unwrap_or_default(), "sessionId": session_id }))
}

/// The tag in the form that the CLI's filters expect: NFKC without invisible characters.
fn clean(tag: &str) -> String {
    let invisible = |char: &char| {
        matches!(
            char.general_category(),
            GeneralCategory::Format | GeneralCategory::PrivateUse | GeneralCategory::Unassigned
        )
    };
    let mut cleaned = tag.to_owned();
    // Repeated, because removing a character can join two that NFKC combines.
    loop {
        let next: String = cleaned.nfkc().filter(|char| !invisible(char)).collect();
        if next == cleaned {
            return next.trim().to_owned();
        }
        cleaned = next;
    }
}
