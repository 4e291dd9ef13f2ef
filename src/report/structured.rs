//! The structured output of a turn, as a typed value.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Outcome;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Typed;
use crate::wire::ResultMessage;

impl Typed<ResultMessage> {
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
    /// [`TurnFailed`](ErrorKind::TurnFailed) if the turn failed or has no structured output; CLI 2.1.328 reports
    /// success without one when the model insists on answering in text. [`Malformed`](ErrorKind::Malformed) if the
    /// output is no `T`; the error names the place.
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
    /// [`Typed::structured`].
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T> {
        self.clone().into_result()?.structured()
    }
}
