//! What goes first when messages are not read.

use serde::{Deserialize, Serialize};

/// What happens to partial messages (`stream_event`, see [`Options::include_partial_messages`](super::Options::include_partial_messages)) that nobody reads.
///
/// ```
/// assert_eq!(greenroom::UnreadPartials::default(), greenroom::UnreadPartials::Keep);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnreadPartials {
    /// They wait like all others.
    #[default]
    Keep,
    /// They are the first to go when [`Limits::unread_bytes`](super::Limits::unread_bytes) is reached, a quarter of it at a time, the oldest first:
    /// the messages of which those are pieces have arrived whole most likely, and wait right behind them. When there are
    /// few to drop and the one that comes is partial itself, that one goes. No partial message is written to the file.
    ///
    /// What is dropped is counted (`dropped_partials`), and [`Turn::missed_partials`](crate::Turn::missed_partials)
    /// says where the gaps are. Of a message that is written on, pieces may come whose beginning was dropped.
    DropFirst,
}
