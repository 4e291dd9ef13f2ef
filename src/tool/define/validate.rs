//! Parses arguments, and checks values against hand-written JSON Schemas (feature `schema`) and types.

#[cfg(feature = "schema")]
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::tool::run::erased::Arguments;
use crate::wire::CallToolResult;
use crate::wire::message::read::mend;

/// Parses a tool's arguments; the error names the path of the field.
pub(super) fn parse_arguments<A: DeserializeOwned>(arguments: Arguments) -> Result<A, String> {
    // The model may write half of a surrogate pair; replace it rather than refuse the call.
    let text = mend(arguments.as_deref().map_or("{}", RawValue::get));
    // Tracking the path doubles the cost of parsing, so only a failure is parsed again with it.
    serde_json::from_str(&text).or_else(|_| {
        let mut json = serde_json::Deserializer::from_str(&text);
        serde_path_to_error::deserialize(&mut json).map_err(|error| validation_error(&error))
    })
}

/// Says which field does not fit, and why.
pub(super) fn validation_error<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    invalid(&fault_at(error))
}

pub(super) fn invalid(what: &str) -> String {
    format!("Input validation error: {what}")
}

fn fault_at<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    let path = error.path().to_string();
    let error = error.inner().to_string();
    // The model does not see the line, so its position is left out.
    let error = error.split(" at line ").next().unwrap_or_default();
    if path == "." { error.to_owned() } else { format!("`{path}`: {error}") }
}

/// A compiled schema. Without the feature `schema` every value fits.
#[derive(Clone, Debug)]
pub(crate) struct Validator {
    /// `Err` says why the schema is invalid.
    #[cfg(feature = "schema")]
    compiled: Result<Arc<jsonschema::Validator>, String>,
}

impl Validator {
    #[cfg(feature = "schema")]
    pub(crate) fn new(schema: &Map<String, Value>) -> Self {
        let compiled = jsonschema::validator_for(&Value::Object(schema.clone()));
        Self { compiled: compiled.map(Arc::new).map_err(|error| error.to_string()) }
    }

    #[cfg(not(feature = "schema"))]
    pub(crate) fn new(_: &Map<String, Value>) -> Self {
        Self {}
    }

    /// The reason why the schema is invalid.
    #[cfg(feature = "schema")]
    pub(crate) fn fault(&self) -> Option<&str> {
        self.compiled.as_ref().err().map(String::as_str)
    }

    #[cfg(not(feature = "schema"))]
    pub(crate) fn fault(&self) -> Option<&str> {
        None
    }

    /// Lists the misfits with their paths.
    #[cfg(feature = "schema")]
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let validator = self.compiled.as_ref().map_err(Clone::clone)?;
        let faults: Vec<String> = validator
            .iter_errors(value)
            .map(|error| match error.instance_path().as_str() {
                "" => error.to_string(),
                path => format!("`{path}`: {error}"),
            })
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    #[cfg(not(feature = "schema"))]
    pub(crate) fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// The check of the structured content of a tool's results.
#[derive(Clone)]
pub(crate) enum OutputCheck {
    /// Reads the content as a type.
    Type(fn(&Value) -> Result<(), String>),
    Schema(Validator),
}

impl OutputCheck {
    pub(crate) fn of_type<T: DeserializeOwned>() -> Self {
        Self::Type(|value| {
            serde_path_to_error::deserialize::<_, T>(value).map(drop).map_err(|error| fault_at(&error))
        })
    }

    pub(crate) fn fault(&self) -> Option<&str> {
        match self {
            Self::Type(_) => None,
            Self::Schema(validator) => validator.fault(),
        }
    }

    /// Returns the result, or an error result if the structured content does not fit.
    pub(crate) fn apply(&self, tool: &str, result: CallToolResult) -> CallToolResult {
        if result.is_error {
            return result;
        }
        let checked = match (&result.structured_content, self) {
            (Some(value), Self::Type(check)) => check(value),
            (Some(value), Self::Schema(validator)) => validator.check(value),
            (None, _) => Err("there is none".into()),
        };
        match checked {
            Ok(()) => result,
            Err(what) => CallToolResult::error(format!(
                "the structured content of tool '{tool}' does not fit its output schema: {what}"
            )),
        }
    }
}
