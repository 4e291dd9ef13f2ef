//! The structured output of a turn, as a typed value.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Outcome;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::ResultMessage;

impl ResultMessage {
    /// The answer in the shape of [`Options::output_format`](crate::Options::output_format).
    ///
    /// ```
    /// use greenroom::Message;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Sum { sum: f64 }
    ///
    /// let line = r#"{"type": "result", "subtype": "success", "structured_output": {"sum": 8}}"#;
    /// let Message::Result(end) = Message::parse(line)? else { unreachable!() };
    /// assert_eq!(end.structured::<Sum>()?.sum, 8.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TurnFailed`](ErrorKind::TurnFailed) if the turn failed or has no structured output; CLI 2.1.328 reports success
    /// without one when the model insists on answering in text. [`Malformed`](ErrorKind::Malformed) if the output is no
    /// `T`; the error names the place.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T> {
        let whole = self.whole_structured_output();
        if whole.is_none() && self.structured_output.is_none() {
            let text = match self.error_text() {
                Some(error) => format!("the turn failed, and has no structured output: {error}"),
                None => "the turn ended without a structured output".to_owned(),
            };
            return Err(Error::new(ErrorKind::TurnFailed, text)
                .with_help("set `output_format`, and see in `result` what the model said instead"));
        }
        let read = match (whole, &self.structured_output) {
            (Some(json), _) => {
                serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json.get()))
            }
            (None, value) => serde_path_to_error::deserialize(value.as_ref().unwrap_or(&Value::Null)),
        };
        read.map_err(|error| {
            let (path, type_name) = (error.path().to_string(), std::any::type_name::<T>());
            let at = if path == "." { String::new() } else { format!(" at `{path}`") };
            let text = format!("the structured output is no `{type_name}`{at}: {}", error.inner());
            Error::new(ErrorKind::Malformed, text)
                .with_help("make `output_format` from the same type")
                .with_source(error.into_inner())
        })
    }
}

impl Outcome {
    /// The answer in the shape of [`Options::output_format`](crate::Options::output_format).
    ///
    /// # Errors
    /// The errors of [`into_result`](Outcome::into_result) if the turn was not completed, and of
    /// [`ResultMessage::structured`].
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T> {
        self.clone().into_result()?.structured()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::Message;

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

    fn ended(fields: Value) -> Arc<ResultMessage> {
        let mut line = json!({ "type": "result", "subtype": "success" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        match Message::parse(&line.to_string()).unwrap() {
            Message::Result(end) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fitting_value_is_read() {
        let end = ended(json!({ "structured_output": { "rows": [{ "count": 1 }] } }));
        let expected = Report { rows: vec![Row { count: 1 }] };
        assert_eq!(end.structured::<Report>().unwrap(), expected);
        assert_eq!(Outcome::Completed { result: end }.structured::<Report>().unwrap(), expected);
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
        let failed = Outcome::Failed { error: Error::new(ErrorKind::TurnFailed, "why"), result: None };
        assert_eq!(failed.structured::<Report>().unwrap_err().to_string(), "why");
    }
}
