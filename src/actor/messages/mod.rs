//! Messages between the actors of a session.

pub(crate) mod children;
pub(crate) mod conversation;
#[cfg(feature = "testing")]
pub(crate) mod fault;
pub(crate) mod router;
pub(crate) mod session;
