//! Files that are made from other files, and written again with `GREENROOM_BLESS=1`.

use std::path::Path;

/// Fails when a file of the project is not the one that is made now. With `GREENROOM_BLESS=1`, writes the file.
pub(crate) fn check_or_bless(path: &str, made: &str, target: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("GREENROOM_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&file, made).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = made.lines().zip(there.lines()).find(|(made, there)| made != there);
    assert!(
        made == there,
        "{path} is stale; write it again with GREENROOM_BLESS=1 cargo test --test {target}. {differs:?}"
    );
}
