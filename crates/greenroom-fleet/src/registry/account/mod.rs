//! The accounts of tenants: quotas and money, the room for new prompts, and usage.

mod holds;
pub(super) mod quota;
pub(super) mod room;
pub(super) mod usage;
