//! The guide's table of limits, compared with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_guide_lists_every_limit() {
    let code = text("src/limits/mod.rs");
    let fields = code.split("pub struct FleetLimits {").nth(1).unwrap().split("\n}").next().unwrap();
    let fields: BTreeSet<_> = fields
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(':').map(|(name, _)| name))
        .collect();
    let guide = text("../../docs/fleet.md");
    let section = guide.split("\n## Limits\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: BTreeSet<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name))
        .collect();
    assert!(fields.len() > 15, "{fields:?}");
    assert_eq!(rows, fields);
}
