//! Conversations on disk, and in a store.
