//! What tools return, as results that the model reads.

use std::borrow::Cow;
use std::collections::BTreeMap;

use greenroom::tool::Content;
use greenroom::{IntoToolResult, Json};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

#[test]
fn plain_values_become_text() {
    assert_eq!("a".into_tool_result().text(), "a");
    assert_eq!(String::from("b").into_tool_result().text(), "b");
    assert_eq!(7_u64.into_tool_result().text(), "7");
    assert_eq!(().into_tool_result().text(), "done");
    assert_eq!(json!({"a": [1]}).into_tool_result().text(), r#"{"a":[1]}"#);
    assert_eq!(vec![Content::text("x"), Content::text("y")].into_tool_result().text(), "x\ny");
}

#[test]
fn an_error_becomes_a_result_that_the_model_reads() {
    let result = Err::<String, _>("disk full").into_tool_result();
    assert!(result.is_error);
    assert_eq!(result.text(), "disk full");
}

#[test]
fn json_that_is_no_object_becomes_text_only() {
    let result = Json(vec![1, 2]).into_tool_result();
    assert_eq!((result.text().as_str(), result.structured_content), ("[1,2]", None));
    assert!(Json::<Vec<i32>>::output_schema().is_none());
    assert!(Result::<Json<BTreeMap<String, i32>>, String>::output_schema().is_some());
}

#[test]
fn a_value_that_does_not_serialise_is_an_error_result() {
    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("broken"))
        }
    }
    impl JsonSchema for Broken {
        fn schema_name() -> Cow<'static, str> {
            "Broken".into()
        }
        fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
            schemars::Schema::default()
        }
    }
    assert!(Json(Broken).into_tool_result().is_error);
}
