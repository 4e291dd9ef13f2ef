//! A chat in the terminal.

fn main() {}
