//! What the CLI can be asked, one typed method for each.
