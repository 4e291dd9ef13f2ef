//! `docs/promises.md`: each row names the tests that guard it, from the comments `// Guards: ROW` in front of tests and in files of
//! tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use crate::bless::check_or_bless;
use crate::{root, sources};

const PAGE: &str = "docs/promises.md";
/// The tests of sessions.
const SESSION: [&str; 4] = ["src", "crates/greenroom-process/src", "crates/greenroom-testkit/src", "tests"];
/// The tests of fleets.
const FLEET: [&str; 3] =
    ["crates/greenroom-fleet/src", "crates/greenroom-fleet/tests", "examples/fleet/tests"];

/// The guards of each row, by its first cell.
fn guards(folders: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut guards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in folders.iter().flat_map(|folder| sources(&root().join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap().with_extension("").display().to_string();
        let place = path.trim_start_matches("crates/greenroom-fleet/").trim_start_matches("tests/");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(row) = line.strip_prefix("// Guards: ") else { continue };
            let mut below = lines[at..].iter().skip_while(|line| line.starts_with("//")).peekable();
            let mut is_test = false;
            while let Some(attribute) = below.next_if(|line| line.starts_with("#[")) {
                is_test |= attribute.contains("test");
            }
            let test = below.next().and_then(|line| line.trim_start_matches("async ").strip_prefix("fn "));
            let test = test.and_then(|test| test.split('(').next());
            assert!(is_test || test.is_none(), "{path}: `{test:?}` guards a promise and is no test");
            let guard = test.map_or_else(|| format!("`{path}.rs`"), |test| format!("`{place}::{test}`"));
            guards.entry(row.to_owned()).or_default().insert(guard);
        }
    }
    guards
}

#[test]
fn each_promise_names_the_tests_that_guard_it() {
    let (mut session, mut fleet) = (guards(&SESSION), guards(&FLEET));
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (mut made, mut section, mut in_table) = (String::new(), "", false);
    for line in page.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let row = line.strip_prefix("| ").filter(|_| in_table);
        if let Some((first, _)) = row.and_then(|row| row.split_once(" | ")) {
            let guards = if section == "A fleet" { &mut fleet } else { &mut session };
            let name = first.trim_matches('*');
            let tests = guards.remove(name).unwrap_or_else(|| panic!("no test says `// Guards: {name}`"));
            let (cells, _) = line.strip_suffix(" |").unwrap().rsplit_once(" |").unwrap();
            let tests = tests.into_iter().collect::<Vec<_>>().join(", ");
            writeln!(made, "{cells} | {tests} |").unwrap();
        } else {
            writeln!(made, "{line}").unwrap();
        }
        in_table = line.ends_with("| guarded by |") || (in_table && line.starts_with('|'));
    }
    let unknown: Vec<_> = session.keys().chain(fleet.keys()).collect();
    assert!(unknown.is_empty(), "tests guard rows that {PAGE} does not have: {unknown:#?}");
    check_or_bless(PAGE, &made, "tidy");
}
