//! The desk is short enough to be read in one go.

use std::path::Path;

/// Lines of Rust in the whole desk, without blank lines and comments. The desk is an example of what the library leaves to do: raise the
/// library, not this bound.
const LINES: usize = 250;

#[test]
fn the_desk_has_at_most_250_lines_of_code() {
    let (mut files, mut lines) = (0, 0);
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            let code = text.lines().map(str::trim_start);
            lines += code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
            files += 1;
        } else {
            assert!(path.ends_with("page"), "{path:?} is not counted");
        }
    }
    assert!(files >= 4, "{files} files");
    assert!(lines <= LINES, "{lines} lines of code");
}
