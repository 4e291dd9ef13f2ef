//! Resources, prompts, completion and changes of the list of tools.
