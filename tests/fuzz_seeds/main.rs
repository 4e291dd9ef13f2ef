//! Tests that need no fuzzer: each seed of the fuzz targets, in the check that its target runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "in the checks, too")]

#[path = "../../fuzz/checks/dispatch.rs"]
mod dispatch;
#[path = "../../fuzz/checks/envelope.rs"]
mod envelope;
#[path = "../../fuzz/checks/lines.rs"]
mod lines;

use std::fs;
use std::path::{Path, PathBuf};

type Check = fn(&[u8]);

/// The fuzz targets and their checks.
const TARGETS: [(&str, Check); 3] =
    [("dispatch", dispatch::check), ("envelope", envelope::check), ("lines", lines::check)];

/// The files of a folder in `fuzz/`.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn each_seed_passes_the_check_of_its_fuzz_target() {
    for (target, check) in TARGETS {
        let seeds = files(&format!("seeds/{target}"));
        assert!(!seeds.is_empty(), "fuzz/seeds/{target} has no seeds");
        for seed in seeds {
            println!("{}", seed.display());
            check(&fs::read(seed).unwrap());
        }
    }
}

#[test]
fn each_fuzz_target_has_its_check_and_its_seeds_here() {
    let named: Vec<String> = TARGETS.iter().map(|(target, _)| (*target).to_owned()).collect();
    for folder in ["targets", "checks", "seeds"] {
        let found: Vec<String> = files(folder)
            .iter()
            .map(|file| file.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(found, named, "fuzz/{folder}");
    }
}
