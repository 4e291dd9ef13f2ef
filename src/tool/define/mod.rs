//! Definitions: tools and resources, as the application writes them.

pub(crate) mod about;
pub(crate) mod def;
pub(crate) mod definition;
pub(crate) mod handler;
pub(crate) mod resource;
pub(crate) mod template;
pub(super) mod uri_template;
pub(super) mod validate;
