//! Checks of values by a JSON Schema that was written by hand (feature `schema`), and of results by their type.

#[cfg(feature = "schema")]
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::def::fault_at;
use crate::wire::CallToolResult;

/// A schema that values are checked by. Without the feature `schema` everything fits.
#[derive(Clone, Debug)]
pub(crate) struct Validator {
    /// The error says why the schema is none.
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

    /// Why the schema is none.
    #[cfg(feature = "schema")]
    pub(crate) fn fault(&self) -> Option<&str> {
        self.compiled.as_ref().err().map(String::as_str)
    }

    #[cfg(not(feature = "schema"))]
    pub(crate) fn fault(&self) -> Option<&str> {
        None
    }

    /// What does not fit, each with its path.
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

/// What the structured content of a tool's results has to be.
#[derive(Clone)]
pub(crate) enum OutputCheck {
    /// This reads it, or says what does not fit.
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

    /// The result, or an error that says what is wrong with it.
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
