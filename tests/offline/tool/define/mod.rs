//! Definitions of tools and resources: what handlers get, and what becomes of what they return.

mod arguments;
mod constraints;
mod policies;
mod results;
mod uri_templates;
