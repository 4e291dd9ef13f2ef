//! Calls: how a request finds its handler, and what the handler gets.

pub(crate) mod blocking;
pub(crate) mod cancel;
pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod erased;
pub(crate) mod instance;
pub(super) mod isolated;
pub(crate) mod log_level;
pub(crate) mod pace;
pub(crate) mod peer;
pub(crate) mod service;
