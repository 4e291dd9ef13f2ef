//! Parses arguments, and checks values against JSON Schemas (feature `schema`) and types.

#[cfg(feature = "schema")]
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::tool::run::erased::Arguments;
use crate::wire::CallToolResult;
use crate::wire::message::read::mend;

/// Parses a tool's arguments, and checks them against `rules`. The error names the path of the field.
pub(super) fn parse_arguments<A: DeserializeOwned>(
    arguments: Arguments,
    rules: Option<&Validator>,
) -> Result<A, String> {
    // The model may write half of a surrogate pair; replace it rather than refuse the call.
    let text = mend(arguments.as_deref().map_or("{}", RawValue::get));
    if let Some(rules) = rules {
        // Refused if it is no `Value`: in a field that the type ignores, `1e999` would hide the others from the rules.
        let value =
            serde_json::from_str(&text).map_err(|error| invalid(&without_position(&error.to_string())))?;
        rules.check(&value).map_err(|what| invalid(&what))?;
    }
    // serde would take the elements of a list for the fields of the type, in order.
    if text.starts_with('[') {
        return Err(invalid("invalid type: sequence, expected a JSON object"));
    }
    // Tracking the path doubles the cost of parsing, so only a failure is parsed again with it.
    serde_json::from_str(&text).or_else(|_| {
        let parse = |text: &str| {
            let mut json = serde_json::Deserializer::from_str(text);
            serde_path_to_error::deserialize(&mut json).map_err(|error| invalid(&fault_at(&error)))
        };
        let error = match parse(&text) {
            Ok(arguments) => return Ok(arguments),
            Err(error) => error,
        };
        let mut value: Value = serde_json::from_str(&text).unwrap_or_default();
        if write_integers(&mut value) { parse(&value.to_string()) } else { Err(error) }
    })
}

/// Writes whole numbers such as `1.0` as integers: JSON Schema counts them as such, and serde does not. Returns false if
/// there are none.
fn write_integers(value: &mut Value) -> bool {
    /// Above 2^53 a float may stand for another integer than the model wrote.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() <= MOST => {
                *value = Value::from(whole as i64);
                true
            }
            _ => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| write_integers(item) | any),
        Value::Object(fields) => fields.values_mut().fold(false, |any, field| write_integers(field) | any),
        _ => false,
    }
}

/// The rules of a type's schema that parsing the type does not enforce, such as a range or a pattern; `None` if there are
/// none. Without the feature `schema` nothing enforces them.
#[cfg(feature = "schema")]
pub(super) fn rules_of<A: JsonSchema>(schema: &Map<String, Value>) -> Option<Validator> {
    crate::options::schema::has_rules::<A>().then(|| Validator::new(schema))
}

#[cfg(not(feature = "schema"))]
#[allow(clippy::extra_unused_type_parameters, reason = "the type is needed with the feature")]
pub(super) fn rules_of<A: JsonSchema>(_: &Map<String, Value>) -> Option<Validator> {
    None
}

pub(super) fn invalid(what: &str) -> String {
    format!("Input validation error: {what}")
}

fn fault_at<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    let path = error.path().to_string();
    let error = without_position(&error.inner().to_string());
    if path == "." { error } else { format!("`{path}`: {error}") }
}

/// The text of an error of `serde_json` without the line and column, which the model does not see.
fn without_position(error: &str) -> String {
    error.split(" at line ").next().unwrap_or_default().to_owned()
}

/// A compiled schema. Without the feature `schema` every value fits.
#[derive(Clone, Debug)]
pub(crate) struct Validator {
    /// `Err` says why the schema is invalid, and where in it.
    #[cfg(feature = "schema")]
    compiled: Result<Arc<jsonschema::Validator>, String>,
    /// The most alternatives in one place that lead to a `$ref`, and so may lead to themselves.
    #[cfg(feature = "schema")]
    alternatives: u64,
}

impl Validator {
    #[cfg(feature = "schema")]
    pub(crate) fn new(schema: &Map<String, Value>) -> Self {
        let schema = Value::Object(schema.clone());
        let compiled = jsonschema::validator_for(&schema);
        let fault = |error: jsonschema::ValidationError<'_>| match error.instance_path().as_str() {
            "" => error.to_string(),
            path => format!("at `{path}`: {error}"),
        };
        Self { compiled: compiled.map(Arc::new).map_err(fault), alternatives: alternatives(&schema).max(1) }
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

    /// Lists the first misfits with their paths.
    #[cfg(feature = "schema")]
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        /// Misfits that are listed: the model mends these first.
        const MOST: usize = 10;
        /// `jsonschema` checks a value in each alternative of each schema above it, and collects all misfits of all
        /// of them. With three alternatives that lead to themselves, 11 levels took 24 s and 2.6 GB.
        const MOST_STEPS: u64 = 50_000;
        let validator = self.compiled.as_ref().map_err(Clone::clone)?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let (values, depth) = extent(value);
        if self.alternatives.saturating_pow(depth).saturating_mul(values) > MOST_STEPS {
            return Err("the value is too large or too deeply nested to say what does not fit".to_owned());
        }
        let mut faults = Vec::new();
        for error in validator.iter_errors(value) {
            list_misfits(&error, &mut faults);
            if faults.len() > MOST {
                break;
            }
        }
        if faults.len() > MOST {
            faults.truncate(MOST);
            faults.push("and more".to_owned());
        }
        Err(faults.join("; "))
    }

    #[cfg(not(feature = "schema"))]
    pub(crate) fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// The most alternatives in one place of a schema that hold a `$ref`.
#[cfg(feature = "schema")]
fn alternatives(schema: &Value) -> u64 {
    fn refers(schema: &Value) -> bool {
        match schema {
            Value::Array(items) => items.iter().any(refers),
            Value::Object(keywords) => {
                keywords.contains_key("$ref")
                    || keywords.contains_key("$dynamicRef")
                    || keywords.values().any(refers)
            }
            _ => false,
        }
    }
    match schema {
        Value::Array(items) => items.iter().map(alternatives).max().unwrap_or(0),
        Value::Object(keywords) => {
            let here = ["anyOf", "oneOf", "allOf"]
                .into_iter()
                .filter_map(|keyword| keywords.get(keyword)?.as_array());
            let here = here.map(|schemas| schemas.iter().filter(|schema| refers(schema)).count() as u64);
            here.chain(keywords.values().map(alternatives)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

/// The number of values in a value, itself included, and the depth of its arrays and objects.
#[cfg(feature = "schema")]
fn extent(value: &Value) -> (u64, u32) {
    let sum = |(values, depth): (u64, u32), inner: &Value| {
        let (more, deep) = extent(inner);
        (values + more, depth.max(deep + 1))
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 1), sum),
        Value::Object(fields) => fields.values().fold((1, 1), sum),
        _ => (1, 0),
    }
}

/// Lists what does not fit. Where a value fits none of several schemas, and all but one are those of other types or other
/// variants of an enum, only the misfits of that alternative are listed.
#[cfg(feature = "schema")]
fn list_misfits(error: &jsonschema::ValidationError<'_>, faults: &mut Vec<String>) {
    use jsonschema::error::ValidationErrorKind as Kind;

    if let Kind::AnyOf { context } | Kind::OneOfNotValid { context } = error.kind() {
        let is_other = |misfit: &jsonschema::ValidationError<'_>| match misfit.kind() {
            // A tag.
            Kind::Constant { .. } => true,
            Kind::Type { .. }
            | Kind::Enum { .. }
            | Kind::Required { .. }
            | Kind::AdditionalProperties { .. } => misfit.instance_path() == error.instance_path(),
            _ => false,
        };
        let mut meant = context.iter().filter(|misfits| !misfits.iter().any(is_other));
        if let (Some(misfits), None) = (meant.next(), meant.next()) {
            return misfits.iter().for_each(|misfit| list_misfits(misfit, faults));
        }
    }
    faults.push(misfit(error));
}

/// A misfit with its path, written as serde's errors write it.
#[cfg(feature = "schema")]
fn misfit(error: &jsonschema::ValidationError<'_>) -> String {
    use jsonschema::paths::LocationSegment;

    /// Longer texts repeat a long value, which the model knows.
    const LONGEST: usize = 500;
    let mut path = String::new();
    for segment in error.instance_path() {
        match segment {
            LocationSegment::Index(index) => path.push_str(&format!("[{index}]")),
            LocationSegment::Property(name) if path.is_empty() => path.push_str(&name),
            LocationSegment::Property(name) => path.push_str(&format!(".{name}")),
        }
    }
    let mut text = error.to_string();
    if text.len() > LONGEST {
        text = error.masked_with("the value").to_string();
        // `str::floor_char_boundary` needs Rust 1.91. Every text has a boundary at 0.
        let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    if path.is_empty() { text } else { format!("`{path}`: {text}") }
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
