//! Session stores: that of the library, the test of any store, and sessions with a store.

mod conformance;
mod mirror;
mod resume;
mod stored_sessions;

use greenroom::sessions::TranscriptEntry;

#[test]
fn an_entry_is_an_object_and_keeps_its_exact_json() {
    let line = r#"{ "uuid":"u", "b":1.50, "type":"x" }"#;
    let entry = TranscriptEntry::parse(line).unwrap();
    assert_eq!(serde_json::to_string(&entry).unwrap(), line);
    assert_eq!(entry, TranscriptEntry::parse(r#"{"type":"x","b":1.5,"uuid":"u"}"#).unwrap());
    assert_ne!(entry, TranscriptEntry::parse(r#"{"type":"x","b":2,"uuid":"u"}"#).unwrap());
    for bad in ["[]", r#"["x","u"]"#, "null", "7", "{", ""] {
        assert!(TranscriptEntry::parse(bad).is_err(), "{bad}");
    }
    let odd = TranscriptEntry::parse(r#"{"type":7,"text":"\ud83d"}"#).unwrap();
    assert_eq!((odd.kind(), odd.value()["text"].as_str()), (None, Some("\u{fffd}")));
}
