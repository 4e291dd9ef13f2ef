//! A line of a transcript: the exact JSON.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::lenient::or_default;
use crate::wire::message::read::mend;

/// A line of a transcript, as JSON. A [`SessionStore`](crate::store::SessionStore) keeps these.
///
/// Two entries are equal if their JSON is equal, apart from the order of fields and white space. Cloning is cheap.
///
/// ```
/// use greenroom::sessions::TranscriptEntry;
///
/// let entry: TranscriptEntry = serde_json::from_str(r#"{"type": "tag", "tag": "nightly", "uuid": "u1"}"#)?;
/// assert_eq!((entry.kind(), entry.uuid()), (Some("tag"), Some("u1")));
/// assert_eq!(entry.value()["tag"], "nightly");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct TranscriptEntry {
    raw: Arc<RawValue>,
    kind: Option<String>,
    uuid: Option<String>,
}

#[derive(Deserialize)]
struct Names {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    uuid: Option<String>,
}

impl TranscriptEntry {
    /// Reads one line.
    ///
    /// # Errors
    /// If the line is not one JSON object.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        Self::from_raw(serde_json::from_str::<&RawValue>(line)?.to_owned())
    }

    pub(crate) fn from_raw(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        // Serde would also read a list into `Names`.
        if !raw.get().starts_with('{') {
            return Err(de::Error::custom("a transcript entry is a JSON object, and this line is not"));
        }
        let Names { kind, uuid } = serde_json::from_str(&mend(raw.get()))?;
        Ok(Self { raw: raw.into(), kind, uuid })
    }

    /// The exact JSON.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The parsed JSON; `null` if it is nested too deeply to be parsed.
    pub fn value(&self) -> Value {
        serde_json::from_str(&mend(self.raw.get())).unwrap_or(Value::Null)
    }

    /// The `type`: `user`, `assistant`, `system`, `attachment`, `custom-title`, `tag`, and many others.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    pub(crate) fn is_sidechain(&self) -> bool {
        self.value().get("isSidechain") == Some(&Value::Bool(true))
    }

    /// The entry's own id, which every entry of the conversation has. A store should drop an entry whose uuid it
    /// already has under the same key: a batch is sent again after a failed attempt.
    pub fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }
}

impl TryFrom<Value> for TranscriptEntry {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, serde_json::Error> {
        Self::from_raw(serde_json::value::to_raw_value(&value)?)
    }
}

impl PartialEq for TranscriptEntry {
    fn eq(&self, other: &Self) -> bool {
        self.raw.get() == other.raw.get() || self.value() == other.value()
    }
}

/// Writes the JSON exactly as it was read. Only `serde_json` supports this.
impl Serialize for TranscriptEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TranscriptEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl fmt::Debug for TranscriptEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw.get())
    }
}
