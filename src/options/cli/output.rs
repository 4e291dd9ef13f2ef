//! The form of a turn's result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::options::schema;

/// The form of the result of each turn. With a schema, the model returns structured data.
///
/// The CLI gives the model a tool `StructuredOutput` with this schema, which the model calls at the end of each turn.
/// CLI 2.1.328 was seen to tell the model why a value does not fit, to insist once if the model did not call the tool,
/// and then to end the turn as a success *without* structured output. Read the value with
/// [`structured`](crate::message::Typed::structured) of its result.
///
/// ```
/// use greenroom::options::OutputFormat;
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
    /// JSON that fits a JSON Schema. The schema must describe an object.
    #[allow(missing_docs, reason = "named like its variant")]
    JsonSchema { schema: Value },
}

impl OutputFormat {
    /// Values of `T`. The schema is draft 2020-12, with subschemas inlined.
    pub fn of<T: JsonSchema>() -> Self {
        let mut schema = Value::Object(schema::of::<T>());
        if let Some(object) = schema.as_object_mut() {
            object.remove("description");
        }
        Self::JsonSchema { schema }
    }

    /// The JSON Schema.
    pub fn schema(&self) -> &Value {
        match self {
            OutputFormat::JsonSchema { schema } => schema,
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        match self.schema() {
            Value::Object(object) if schema::is_object(object) => Ok(()),
            // The schema becomes the input schema of a tool, which must be an object.
            _ => Err(Error::invalid_option("option `output_format`: the schema does not describe an object")
                .with_help(
                    "give it `\"type\": \"object\"`; put a list or a scalar into a field of a struct",
                )),
        }
    }
}
