//! Messages between the actors of a session.

pub(crate) mod callbacks;
pub(crate) mod conversation;
#[cfg(feature = "testing")]
pub(crate) mod fault;
pub(crate) mod mcp_server;
pub(crate) mod port;
pub(crate) mod router;
pub(crate) mod session;
