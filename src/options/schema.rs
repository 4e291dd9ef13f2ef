//! JSON Schemas of Rust types, as MCP clients expect them.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of `T`: draft 2020-12, which is MCP's own, without `$schema` and the type's Rust name as a title, and
/// with subschemas inlined, so that only a recursive type has `$defs`.
pub(crate) fn of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    match schema.to_value() {
        Value::Object(mut object) => {
            object.remove("title");
            if is_object(&object) && !object.contains_key("properties") {
                object.insert("properties".into(), Value::Object(Map::new()));
            }
            object
        }
        // The other schemas are `true` and `false`.
        _ => Map::new(),
    }
}

/// Whether a schema of `T` has a rule that deserialising `T` does not enforce: a range, a length, a pattern, a list of
/// words for a plain text. An unknown keyword counts as such a rule.
#[cfg(feature = "schema")]
pub(crate) fn has_rules<T: JsonSchema>() -> bool {
    // Not inlined: the words of an enum, which serde enforces, are then told from those of a text.
    let settings = SchemaSettings::draft2020_12();
    let schema = settings.into_generator().into_root_schema_for::<T>();
    rules_in(schema.as_value(), SchemaOf::Type)
}

/// The part of a Rust type that a schema describes.
#[cfg(feature = "schema")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaOf {
    Type,
    /// A variant of an enum.
    Variant,
    /// A field of a variant, which may be its tag.
    VariantField,
    Field,
}

#[cfg(feature = "schema")]
fn rules_in(schema: &Value, of: SchemaOf) -> bool {
    let Value::Object(keywords) = schema else { return false };
    let any = |schemas: &Value, of| match schemas {
        Value::Array(schemas) => schemas.iter().any(|schema| rules_in(schema, of)),
        Value::Object(schemas) => schemas.values().any(|schema| rules_in(schema, of)),
        _ => false,
    };
    keywords.iter().any(|(keyword, value)| match keyword.as_str() {
        "$schema" | "$comment" | "title" | "description" | "default" | "examples" | "deprecated"
        | "readOnly" | "writeOnly" | "format" => false,
        "type" | "required" | "$ref" => false,
        "enum" => !matches!(of, SchemaOf::Type | SchemaOf::Variant),
        "const" => of == SchemaOf::Field,
        "minimum" | "maximum" => !is_bound_of_type(keywords, keyword, value),
        "minItems" | "maxItems" => !is_length_of_tuple(keywords, value),
        "$defs" => any(value, SchemaOf::Type),
        "anyOf" | "oneOf" | "allOf" => any(value, if of == SchemaOf::Type { SchemaOf::Variant } else { of }),
        "properties" => {
            any(value, if of == SchemaOf::Variant { SchemaOf::VariantField } else { SchemaOf::Field })
        }
        "prefixItems" => any(value, SchemaOf::Field),
        "items" | "additionalProperties" | "unevaluatedProperties" => rules_in(value, SchemaOf::Field),
        _ => true,
    })
}

/// Whether a bound is that of the integer type, which `schemars` names as the format.
#[cfg(feature = "schema")]
fn is_bound_of_type(keywords: &Map<String, Value>, keyword: &str, bound: &Value) -> bool {
    let (least, most) = match keywords.get("format").and_then(Value::as_str) {
        Some("uint8") => (0, Some(u8::MAX.into())),
        Some("uint16") => (0, Some(u16::MAX.into())),
        // `schemars` writes no maximum of a longer type.
        Some("uint32" | "uint64" | "uint128" | "uint") => (0, None),
        Some("int8") => (i8::MIN.into(), Some(i8::MAX.into())),
        Some("int16") => (i16::MIN.into(), Some(i16::MAX.into())),
        _ => return false,
    };
    let expected = if keyword == "minimum" { Some(least) } else { most };
    expected.is_some_and(|expected| bound.as_i64() == Some(expected))
}

#[cfg(feature = "schema")]
fn is_length_of_tuple(keywords: &Map<String, Value>, length: &Value) -> bool {
    let items = keywords.get("prefixItems").and_then(Value::as_array);
    items.is_some_and(|items| length.as_u64() == Some(items.len() as u64))
}

/// A schema that is rarely read. Kept as text if the text parses back to the same schema: a tree takes ten times the
/// memory.
#[derive(Clone, Debug)]
pub(crate) enum StoredSchema {
    Text(Box<str>),
    Tree(Map<String, Value>),
}

impl StoredSchema {
    pub(crate) fn tree(&self) -> Map<String, Value> {
        match self {
            Self::Text(text) => serde_json::from_str(text).unwrap_or_default(),
            Self::Tree(tree) => tree.clone(),
        }
    }
}

impl From<Map<String, Value>> for StoredSchema {
    fn from(tree: Map<String, Value>) -> Self {
        // A schema that is nested too deeply for the parser does not parse back.
        match serde_json::to_string(&tree) {
            Ok(text) if serde_json::from_str(&text).is_ok_and(|back: Map<_, _>| back == tree) => {
                Self::Text(text.into())
            }
            _ => Self::Tree(tree),
        }
    }
}

/// Whether a schema describes objects.
pub(crate) fn is_object(schema: &Map<String, Value>) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[test]
    fn a_stored_schema_comes_back_unchanged() {
        let flat =
            json!({ "type": "object", "properties": { "π": { "multipleOf": 0.1, "maximum": u64::MAX } } });
        let deep = (0..500).fold(json!({ "type": "string" }), |inner, _| json!({ "items": inner }));
        for (schema, is_text) in [(flat, true), (deep, false)] {
            let Value::Object(schema) = schema else { unreachable!() };
            let kept = StoredSchema::from(schema.clone());
            assert_eq!(matches!(kept, StoredSchema::Text(_)), is_text);
            assert_eq!(kept.tree(), schema);
        }
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Search {
        /// What to look for.
        query: String,
        #[serde(default = "ten")]
        limit: u32,
        sort: Option<Order>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[allow(dead_code)]
    enum Order {
        Newest,
        Best,
    }

    fn ten() -> u32 {
        10
    }

    #[test]
    fn required_and_default_fields_are_distinguished_without_noise() {
        let schema = Value::Object(of::<Search>());
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["query"]));
        assert_eq!(
            schema["properties"]["query"],
            json!({"type": "string", "description": "What to look for."})
        );
        assert_eq!(schema["properties"]["limit"]["default"], 10);
        for noise in ["$schema", "title", "$defs"] {
            assert!(schema.get(noise).is_none(), "{noise} in {schema}");
        }
        assert!(schema["properties"]["sort"].to_string().contains("newest"), "{schema}");
    }

    #[test]
    fn a_type_without_fields_is_an_object_without_properties() {
        assert_eq!(Value::Object(of::<crate::NoArgs>()), json!({"type": "object", "properties": {}}));
    }

    /// What parsing enforces by itself: no field has a rule of its own.
    #[cfg(feature = "schema")]
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Plain {
        search: Search,
        bytes: (u8, i8, Option<u16>, i16, Vec<u32>, usize, u128, f32),
        by_name: std::collections::HashMap<String, Vec<bool>>,
        #[serde(default)]
        kinds: Vec<Kind>,
        more: Option<Box<Plain>>,
        unit: (),
        any: Value,
    }

    #[cfg(feature = "schema")]
    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[allow(dead_code)]
    enum Kind {
        /// Sorted.
        Sorted {
            by: Option<Order>,
        },
        Plain,
    }

    #[cfg(feature = "schema")]
    #[test]
    fn only_rules_that_parsing_does_not_enforce_are_rules() {
        macro_rules! ruled {
            ($($rule:meta, $type:ty);+ $(;)?) => {$({
                #[derive(Deserialize, JsonSchema)]
                #[allow(dead_code)]
                struct Ruled {
                    plain: Search,
                    #[$rule]
                    field: $type,
                }
                assert!(has_rules::<Ruled>(), stringify!($rule));
                assert!(has_rules::<std::collections::BTreeMap<String, Option<Vec<Ruled>>>>(), stringify!($rule));
            })+};
        }
        ruled! {
            schemars(range(min = 1)), u32;
            schemars(range(max = 254)), u8;
            schemars(range(max = 9_223_372_036_854_775_807_u64)), u64;
            schemars(range(min = 0)), f64;
            schemars(length(min = 1)), String;
            schemars(length(max = 3)), Vec<u32>;
            schemars(regex(pattern = "a")), Option<String>;
            schemars(extend("enum" = ["a"])), String;
            schemars(extend("multipleOf" = 2)), u32;
            schemars(inner(range(min = 1))), Vec<u32>;
            doc = "of the type", std::collections::BTreeSet<u32>;
        }
        assert!(!has_rules::<crate::NoArgs>());
        assert!(!has_rules::<Plain>(), "{}", Value::Object(of::<Plain>()));
    }
}
