//! A file for each type of message.

pub(super) mod aside;
pub(super) mod assistant;
pub(super) mod content;
pub(super) mod origin;
pub(super) mod other;
pub(super) mod reason;
pub(super) mod result;
pub(super) mod stream;
pub(super) mod system;
pub(super) mod usage;
pub(super) mod user;
