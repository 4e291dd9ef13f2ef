//! In which form a turn's answer is given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;
use crate::error::{Error, Result};

/// In which form the model gives the result of each turn.
///
/// The CLI gives the model a tool `StructuredOutput` with this schema and has it called at the end of each turn; CLI
/// 2.1.328 was seen to say why a value does not fit, to insist once when the tool was not called, and then to end the turn
/// as a success *without* a structured output.
/// [`ResultMessage::structured`](crate::ResultMessage::structured) reads the value.
///
/// ```
/// use greenroom::OutputFormat;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Sum { sum: f64 }
///
/// let format = OutputFormat::of::<Sum>();
/// assert_eq!(format.schema()["required"], serde_json::json!(["sum"]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OutputFormat {
    /// A JSON value that fits a JSON Schema, which must be one of an object.
    JsonSchema {
        /// The schema.
        schema: Value,
    },
}

impl OutputFormat {
    /// Values of `T`. The schema is in draft 2020-12 with subschemas in place.
    pub fn of<T: JsonSchema>() -> Self {
        let mut schema = Value::Object(schema::of::<T>());
        if let Some(object) = schema.as_object_mut() {
            object.remove("description");
        }
        Self::JsonSchema { schema }
    }

    /// Values that fit this schema.
    pub fn json_schema(schema: Value) -> Self {
        Self::JsonSchema { schema }
    }

    /// The schema.
    pub fn schema(&self) -> &Value {
        match self {
            OutputFormat::JsonSchema { schema } => schema,
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        match self.schema() {
            Value::Object(object) if schema::is_object(object) => Ok(()),
            // The input of a tool is an object, and this becomes one.
            _ => {
                Err(Error::invalid_option("option `output_format` has a schema that is not one of an object")
                    .with_help(
                        "give it `\"type\": \"object\"`; put lists and scalars into a field of a struct",
                    ))
            }
        }
    }
}
