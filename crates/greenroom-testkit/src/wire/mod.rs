//! The wire as data: recorded, redacted, compared and played back.

pub(super) mod record;
pub(super) mod redact;
pub(super) mod replay;
pub(super) mod transcript;
