//! Lines and messages.

mod messages;
