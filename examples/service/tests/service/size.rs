//! The service is short enough to be read in one go.

use std::path::Path;

/// Lines of code in the whole service, without blank lines and comments, and without the command line and the stand-ins
/// (`arguments.rs`). The service is an example of what the library leaves to do: raise the library, not this bound.
const LINES: usize = 150;

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

#[test]
fn the_service_has_at_most_150_lines_of_code() {
    let mut files = 0;
    let mut lines = 0;
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("src/arguments.rs") {
                files += 1;
                lines += std::fs::read_to_string(path).unwrap().lines().filter(|line| is_code(line)).count();
            }
        }
    }
    assert!(files >= 2, "`lib.rs` and `main.rs` at least");
    assert!(lines <= LINES, "{lines} lines of code");
    // No part of the service hides in `arguments.rs`.
    let arguments = include_str!("../../src/arguments.rs").lines().filter(|line| is_code(line)).count();
    assert!(arguments <= 70, "{arguments} lines of code in arguments.rs");
}
