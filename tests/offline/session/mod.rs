//! What an application gives to a session.

mod prompt;
