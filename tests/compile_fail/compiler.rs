//! `rustc`, with the libraries that this test was built with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use tempfile::TempDir;

/// Compiles programs against the `greenroom` of this test.
pub(crate) struct Compiler {
    rustc: PathBuf,
    /// Such as `rustc 1.95.0`.
    pub(crate) version: String,
    /// The folder of the libraries, in which this test is as well.
    libraries: PathBuf,
    externs: Vec<String>,
    scratch: TempDir,
}

/// A crate of the programs, and a program that compiles only with the right library of it: a folder may hold several
/// libraries of one crate, built with other features.
const CRATES: [(&str, &str); 3] = [
    ("greenroom", "fn main() { let _ = greenroom::Session::builder(); }"),
    (
        "serde",
        "#[derive(serde::Deserialize)] struct A {} \
         fn read<T: greenroom::tool::ReadArguments>() {} fn main() { read::<A>() }",
    ),
    (
        "schemars",
        "#[derive(schemars::JsonSchema)] struct A {} \
         fn described<T: greenroom::tool::ArgumentsSchema>() {} fn main() { described::<A>() }",
    ),
];

impl Compiler {
    /// # Panics
    /// If the compiler or a library is not found: these tests are never passed over.
    pub(crate) fn of_this_test() -> Self {
        let own = std::env::current_exe().unwrap();
        let rustc = rustc();
        let version = Command::new(&rustc).arg("--version").output().expect("rustc runs");
        let version = String::from_utf8(version.stdout).unwrap();
        let mut compiler = Self {
            rustc,
            version: version.split(' ').take(2).collect::<Vec<_>>().join(" "),
            libraries: own.parent().unwrap().to_owned(),
            externs: Vec::new(),
            scratch: tempfile::tempdir().unwrap(),
        };
        for (name, program) in CRATES {
            compiler.find(name, program, changed(&own));
        }
        compiler
    }

    /// Adds the newest library of a crate that is not newer than this test and with which the program compiles. Cargo
    /// builds the library whenever its source has changed, and then this test, so that the newest one is of the present
    /// source.
    fn find(&mut self, name: &str, program: &str, built: SystemTime) {
        let path = self.scratch.path().join("probe.rs");
        std::fs::write(&path, program).unwrap();
        let prefix = format!("lib{name}-");
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(&self.libraries).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.retain(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(".rlib") && changed(path) <= built
        });
        found.sort_by_key(|path| std::cmp::Reverse(changed(path)));
        let mut answers = String::new();
        for library in &found {
            self.externs.push(format!("{name}={}", library.display()));
            match self.compile(&path) {
                Ok(()) => return,
                Err(answer) => answers += &format!("{}:\n{answer}\n", library.display()),
            }
            self.externs.pop();
        }
        panic!("no library of the crate {name} fits, of {}:\n{answers}", found.len());
    }

    /// Compiles a program; the error is what the compiler says.
    pub(crate) fn compile(&self, path: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.rustc);
        command.args(["--edition=2024", "--crate-type=bin", "--crate-name=mistake", "--emit=metadata"]);
        command.args(["--cap-lints=allow", "--color=never", "--diagnostic-width=140"]);
        command.arg("--out-dir").arg(self.scratch.path());
        command.arg("-L").arg(format!("dependency={}", self.libraries.display()));
        for library in &self.externs {
            command.args(["--extern", library]);
        }
        let done = command.arg(path).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("rustc runs");
        if done.status.success() { Ok(()) } else { Err(String::from_utf8(done.stderr).unwrap()) }
    }
}

/// The compiler beside the `cargo` that runs this test; started by hand, the one on `PATH`.
fn rustc() -> PathBuf {
    if let Some(rustc) = std::env::var_os("RUSTC") {
        return rustc.into();
    }
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustc"));
    beside.filter(|rustc| rustc.exists()).unwrap_or_else(|| "rustc".into())
}

fn changed(path: &Path) -> SystemTime {
    std::fs::metadata(path).unwrap().modified().unwrap()
}
