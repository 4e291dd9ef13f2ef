//! A tool as a server stores and lists it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::about::{About, Listable};
use super::validate::{OutputCheck, Validator};
use crate::error::{Error, Result};
use crate::options::check::{NAME_RULE, keeps_rule, name_like};
use crate::options::schema;
use crate::tool::run::erased::{CallEnd, ToolRunner};

/// Hints about a tool (MCP `ToolAnnotations`). Nothing enforces them, but the CLI runs the calls of one message at the
/// same time only if their tools are read-only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolAnnotations {
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// A repeated call with the same arguments has no further effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool reaches systems outside, such as the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// A [`ToolDef`](super::def::ToolDef) without the type of its state.
#[derive(Clone)]
pub(crate) struct ToolDefinition {
    pub(crate) name: String,
    pub(crate) about: About,
    pub(crate) annotations: ToolAnnotations,
    pub(super) input_schema: schema::StoredSchema,
    pub(super) output_schema: Option<schema::StoredSchema>,
    /// Check of a hand-written input schema, or of a type's schema with rules that parsing does not enforce.
    pub(super) input_check: Option<Validator>,
    pub(super) output_check: Option<OutputCheck>,
    pub(crate) max_concurrency: Option<usize>,
    pub(crate) runner: ToolRunner,
}

impl ToolDefinition {
    /// The runner, with a check of the structured content if the tool has an output schema.
    pub(crate) fn checked_runner(&self) -> ToolRunner {
        let Some(check) = self.output_check.clone() else { return self.runner.clone() };
        let name: Arc<str> = self.name.as_str().into();
        let checked = move |ran: CallEnd| match ran {
            CallEnd::Returned(result) => CallEnd::Returned(check.apply(&name, result)),
            other => other,
        };
        match self.runner.clone() {
            ToolRunner::Async(run) => ToolRunner::Async(Arc::new(move |state, call, arguments| {
                let (ran, checked) = (run(state, call, arguments), checked.clone());
                Box::pin(async move { checked(ran.await) })
            })),
            ToolRunner::Blocking(run) => ToolRunner::Blocking(Arc::new(move |state, call, arguments| {
                checked(run(state, call, arguments))
            })),
        }
    }
}

impl Listable for ToolDefinition {
    const KIND: &'static str = "tool";
    const FIELD: &'static str = "tools";

    fn key(&self) -> &str {
        &self.name
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed(&self.name);
        if let Some(title) = &self.annotations.title {
            entry.insert("title".into(), json!(title));
        }
        entry.insert("inputSchema".into(), Value::Object(self.input_schema.tree()));
        if let Some(schema) = &self.output_schema {
            entry.insert("outputSchema".into(), Value::Object(schema.tree()));
        }
        if self.annotations != ToolAnnotations::default() {
            entry.insert("annotations".into(), json!(self.annotations));
        }
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let name = &self.name;
        let fault = |what: &str, help: &str| {
            let text = format!("tool '{name}' of server '{server}': {what}");
            Err(Error::invalid_option(text).with_help(help))
        };
        if !keeps_rule(name) {
            return fault(NAME_RULE, &name_like(name));
        }
        const TYPE: &str = "write `\"type\": \"object\"` at the top of the schema";
        if !schema::is_object(&self.input_schema.tree()) {
            let help = if self.input_check.is_some() { TYPE } else { "use a struct with named fields" };
            return fault("its arguments must be an object", help);
        }
        if self.output_schema.as_ref().is_some_and(|schema| !schema::is_object(&schema.tree())) {
            return fault("its output schema must describe an object", TYPE);
        }
        let checks = [
            (
                "input",
                "`ToolDef::raw`, or the `#[schemars(...)]` attributes of the arguments' type",
                self.input_check.as_ref().and_then(Validator::fault),
            ),
            ("output", "`ToolDef::output_schema`", self.output_check.as_ref().and_then(OutputCheck::fault)),
        ];
        for (which, origin, wrong) in checks {
            if let Some(wrong) = wrong {
                let help = format!("correct the schema that is given to {origin}");
                return fault(&format!("its {which} schema is not a valid JSON Schema: {wrong}"), &help);
            }
        }
        if self.max_concurrency == Some(0) {
            return fault("max_concurrency must be at least 1", "leave it out for no limit");
        }
        Ok(())
    }
}
