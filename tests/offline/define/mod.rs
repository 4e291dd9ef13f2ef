//! Definitions of tools, resources and prompts: what handlers get, and what becomes of what they return.

mod arguments;
mod constraints;
mod policies;
mod results;
mod uri_templates;
