//! Everything that the CLI says is read without loss.
