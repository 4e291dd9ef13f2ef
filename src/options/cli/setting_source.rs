//! The places of settings files.

use crate::wire::words::words;

words! {
    /// A place of settings files. CLI 2.1.328 was seen not to start with an unknown word.
    pub enum SettingSource {
        /// The user's: `~/.claude/settings.json`.
        User = "user",
        /// The project's, shared: `.claude/settings.json`, and `CLAUDE.md`.
        Project = "project",
        /// The project's, on this machine only: `.claude/settings.local.json`.
        Local = "local",
    }
}
