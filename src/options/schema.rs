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
}
