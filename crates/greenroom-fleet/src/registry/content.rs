//! The content of a prompt, and the digest by which a repeated prompt is recognised.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::txn::to_json;
use super::{Result, parsed};
use crate::record::PromptContent;

/// The content of a prompt as it is kept.
pub(super) struct Content {
    pub(super) json: String,
    /// Tells it apart from other contents, also once it is gone.
    pub(super) digest: Uuid,
}

impl Content {
    pub(super) fn of(content: &PromptContent) -> Result<Self> {
        let json = to_json(content)?;
        // As it is read again, with the members of objects in one order.
        let stored: Value = parsed(json.as_bytes())?;
        let digest = Uuid::new_v5(&Uuid::nil(), sorted(&stored).as_bytes());
        Ok(Self { json, digest })
    }
}

/// JSON whose objects have their members in the order of their names.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().collect();
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), sorted(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(","))
        }
        value => value.to_string(),
    }
}
