//! Servers that come and go in a running session.
