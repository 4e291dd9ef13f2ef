//! Options that greenroom itself applies.

pub(super) mod limits;
pub(super) mod process;
pub(super) mod recovery;
pub(super) mod restart;
pub(super) mod store;
pub(super) mod timeouts;
pub(super) mod trace;
pub(super) mod unread;
