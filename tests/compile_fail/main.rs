//! Mistakes that do not compile. Each program in `cases/` makes one, and the compiler says the cause and the line to
//! write.
//!
//! Every line `// says: TEXT` of a program must be in the compiler's answer, whatever the compiler. The whole answer is
//! in the `.stderr` file beside the program, and is compared if the compiler is the one that `compiler.txt` names: the
//! words around ours differ between versions. `GREENROOM_BLESS=1` writes these files again; read them before you commit.
//!
//! The programs are compiled by `rustc` itself against the library that was built for this test, which takes a second in
//! all. The crate `trybuild` would check every dependency once more in a folder of its own, for minutes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(clippy::disallowed_methods, reason = "the compiler is a process that the test waits for")]

mod answer;
mod compiler;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use compiler::Compiler;

const FOLDER: &str = "tests/compile_fail/cases";

/// A line of a program that begins so is in the compiler's answer.
const SAYS: &str = "// says: ";

#[test]
fn each_mistake_is_answered_with_its_cause_and_the_line_to_write() {
    let bless = std::env::var_os("GREENROOM_BLESS").is_some();
    let compiler = Compiler::of_this_test();
    let known = root().join("tests/compile_fail/compiler.txt");
    if bless {
        std::fs::write(&known, format!("{}\n", compiler.version)).unwrap();
    }
    let whole = std::fs::read_to_string(&known).unwrap().trim() == compiler.version;
    let programs = files("rs");
    assert!(!programs.is_empty());
    assert!(files("stderr").is_subset(&programs), "an answer without a program");
    let faults: Vec<String> =
        programs.iter().filter_map(|name| check(&compiler, name, whole, bless).err()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Compiles a program and looks at the answer.
fn check(compiler: &Compiler, name: &str, whole: bool, bless: bool) -> Result<(), String> {
    let path = Path::new(FOLDER).join(name).with_extension("rs");
    let text = std::fs::read_to_string(root().join(&path)).unwrap();
    let said = match compiler.compile(&path) {
        Ok(()) => return Err(format!("{name}: it compiles")),
        Err(stderr) => answer::normalised(&stderr),
    };
    let wanted: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(SAYS)).collect();
    if wanted.is_empty() {
        return Err(format!("{name}: no line begins with `{SAYS}`"));
    }
    if let Some(missing) = wanted.iter().find(|wanted| !said.contains(**wanted)) {
        return Err(format!("{name}: the compiler does not say: {missing}\n{said}"));
    }
    let kept = root().join(&path).with_extension("stderr");
    if bless {
        std::fs::write(kept, said).unwrap();
        return Ok(());
    }
    let before = std::fs::read_to_string(&kept).map_err(|_| format!("{name}: no file {}", kept.display()))?;
    if whole && before != said {
        let text = "the answer has changed; if that is right, run the test with GREENROOM_BLESS=1";
        return Err(format!("{name}: {text}\n--- before\n{before}--- now\n{said}"));
    }
    Ok(())
}

/// The names of the files with this extension in the folder of the programs.
fn files(extension: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(FOLDER)).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.extension().is_some_and(|found| found == extension));
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}
