//! The order in which unread messages are dropped.

use serde::{Deserialize, Serialize};

/// The fate of partial messages that nobody reads (`stream_event`, see
/// [`Options::include_partial_messages`](crate::Options::include_partial_messages)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnreadPartials {
    /// Partial messages wait like all others.
    #[default]
    Keep,
    /// Partial messages are dropped first when [`Limits::unread_bytes`](crate::options::Limits::unread_bytes) is
    /// reached: a quarter of the bound at a time, oldest first. The complete messages usually wait right behind their
    /// pieces. If few partial messages wait and the new message is partial, the new message is dropped.
    ///
    /// Dropped messages are counted (`dropped_partials`), and [`Turn::missed_partials`](crate::Turn::missed_partials)
    /// says where the gaps are. After a gap, pieces of a message may arrive whose beginning was dropped.
    DropFirst,
}
