//! The structured output of a turn, as a typed value.

use std::sync::Arc;

use greenroom::message::{ResultMessage, Typed};
use greenroom::{ErrorKind, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{refused_option, view};

#[test]
fn a_huge_output_is_read_from_the_json_of_the_message() {
    let rows: Vec<_> = (0..20_000).map(|count| json!({ "count": count })).collect();
    let end = ended(json!({ "structured_output": { "rows": rows } }));
    let read = end.structured::<Report>().unwrap();
    assert_eq!((read.rows.len(), read.rows[19_999].count), (20_000, 19_999));
}

#[derive(Debug, Deserialize, PartialEq)]
struct Report {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Row {
    count: u32,
}

fn ended(fields: Value) -> Arc<Typed<ResultMessage>> {
    let mut line = json!({ "type": "result", "subtype": "success" });
    line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    view!(Result, line)
}

#[test]
fn a_fitting_value_is_read() {
    let end = ended(json!({ "structured_output": { "rows": [{ "count": 1 }] } }));
    let expected = Report { rows: vec![Row { count: 1 }] };
    assert_eq!(end.structured::<Report>().unwrap(), expected);
    assert_eq!(
        Outcome::Completed { result: end, usage: Arc::default() }.structured::<Report>().unwrap(),
        expected
    );
}

#[test]
fn the_error_of_a_misfit_names_the_place() {
    let end = ended(json!({ "structured_output": { "rows": [{ "count": 1 }, { "count": "x" }] } }));
    let error = end.structured::<Report>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("Report` at `rows[1].count`"), "{error}");
    let error = ended(json!({ "structured_output": 3 })).structured::<Report>().unwrap_err();
    assert!(!error.to_string().contains("at `"), "{error}");
}

#[test]
fn a_turn_without_structured_output_says_why() {
    let error = ended(json!({ "result": "8" })).structured::<Report>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TurnFailed);
    assert!(error.to_string().contains("without a structured output"), "{error}");
    let failed = json!({ "subtype": "error_max_structured_output_retries", "errors": ["too often"] });
    let error = ended(failed).structured::<Report>().unwrap_err();
    assert!(error.to_string().contains("too often"), "{error}");
    let error = refused_option();
    let failed = Outcome::Failed { error: error.clone(), result: None, usage: Arc::default() };
    assert_eq!(failed.structured::<Report>().unwrap_err().to_string(), error.to_string());
}
