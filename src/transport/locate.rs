//! Finds the `claude` executable.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

const INSTALL: &str = "install it with `npm install -g @anthropic-ai/claude-code`, or name the executable in \
                       the option `cli_path`";

const NOT_EXECUTABLE: &str = "is not executable";

/// Folders where installers put the CLI, besides `PATH`. A leading `~` is the host's home directory.
const USUAL_PLACES: [&str; 7] = [
    "~/.npm-global/bin",
    "/usr/local/bin",
    "~/.local/bin",
    "~/node_modules/.bin",
    "~/.yarn/bin",
    "~/.claude/local",
    "/opt/homebrew/bin",
];

/// Result of looking at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Not a regular file, for instance a directory.
    NotAFile,
    NotExecutable,
    Executable,
}

/// The machine on which the CLI is searched; a trait so that tests can play one.
pub(super) trait Machine {
    /// A variable of the host's own environment.
    fn var(&self, name: &str) -> Option<OsString>;
    fn look(&self, path: &Path) -> Found;
}

/// The machine that this process runs on.
pub(super) struct ThisMachine;

impl Machine for ThisMachine {
    fn var(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn look(&self, path: &Path) -> Found {
        use std::os::unix::fs::PermissionsExt;
        match std::fs::metadata(path) {
            Err(_) => Found::Nothing,
            Ok(data) if !data.is_file() => Found::NotAFile,
            Ok(data) if data.permissions().mode() & 0o111 == 0 => Found::NotExecutable,
            Ok(_) => Found::Executable,
        }
    }
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Located {
    /// The CLI itself, or the runtime of a script.
    pub(super) program: PathBuf,
    /// The script, which comes before all other arguments of the runtime.
    pub(super) script: Option<PathBuf>,
}

/// Finds the CLI: at `named`, or else `claude` on `PATH`, or else in the usual folders.
///
/// - A name without a slash is searched on `PATH`, as by a shell. A path must be an executable file; a relative path is
///   resolved in the host's working directory.
/// - `PATH` is `child_path` if given (the `PATH` that the CLI will have), or else the host's. Relative entries are skipped,
///   because they depend on the host's working directory.
/// - A script (`.js`, `.mjs`, `.cjs`, `.jsx`, `.ts`, `.tsx`) runs under `runtime`, or else under the `node` on the same
///   `PATH`.
///
/// # Errors
/// [`ErrorKind::CliNotFound`], which lists the paths that were tried.
pub(super) fn locate(
    named: Option<&Path>,
    runtime: Option<&Path>,
    child_path: Option<&OsStr>,
    machine: &impl Machine,
) -> Result<Located> {
    let path = child_path.map(OsStr::to_owned).or_else(|| machine.var("PATH"));
    let mut search = Search { machine, path: path.unwrap_or_default(), looked_at: Vec::new() };
    let program = match named {
        None => search.on_path("claude").or_else(|| search.in_usual_places("claude")).ok_or_else(|| {
            Error::new(ErrorKind::CliNotFound, format!("no `claude` executable found; {}", search.report()))
                .with_help(INSTALL)
        })?,
        Some(name) if is_bare(name) => search.on_path(name).ok_or_else(|| {
            let message = format!("no '{}' (option `cli_path`) on PATH; {}", name.display(), search.report());
            Error::new(ErrorKind::CliNotFound, message)
                .with_help("give `cli_path` the whole path of the executable, or leave it out")
        })?,
        Some(path) => search.exactly(path, "cli_path")?,
    };
    if !is_script(&program) {
        return Ok(Located { program, script: None });
    }
    let runtime = match runtime {
        Some(path) if !is_bare(path) => search.exactly(path, "runtime")?,
        named => {
            let name = named.unwrap_or(Path::new("node"));
            search.on_path(name).ok_or_else(|| {
                let (program, name, report) = (program.display(), name.display(), search.report());
                let message = match named {
                    Some(_) => format!("no '{name}' (option `runtime`) on PATH for '{program}'; {report}"),
                    None => format!("'{program}' needs `node`, which is not on PATH; {report}"),
                };
                Error::new(ErrorKind::CliNotFound, message)
                    .with_help("install Node.js, put it on PATH, or name another in the option `runtime`")
            })?
        }
    };
    Ok(Located { program: runtime, script: Some(program) })
}

struct Search<'a, M> {
    machine: &'a M,
    path: OsString,
    looked_at: Vec<String>,
}

impl<M: Machine> Search<'_, M> {
    fn on_path(&mut self, name: impl AsRef<Path>) -> Option<PathBuf> {
        let directories: Vec<_> = std::env::split_paths(&self.path).collect();
        self.in_any(directories, name.as_ref())
    }

    fn in_usual_places(&mut self, name: &str) -> Option<PathBuf> {
        let home = self.machine.var("HOME").map(PathBuf::from);
        let directories = USUAL_PLACES.iter().filter_map(|place| match place.strip_prefix("~/") {
            Some(below) => home.as_ref().map(|home| home.join(below)),
            None => Some(PathBuf::from(place)),
        });
        self.in_any(directories, Path::new(name))
    }

    fn in_any(&mut self, directories: impl IntoIterator<Item = PathBuf>, name: &Path) -> Option<PathBuf> {
        directories.into_iter().filter(|directory| directory.is_absolute()).map(|it| it.join(name)).find(
            |path| {
                let found = self.look(path);
                found == Found::Executable || (found == Found::NotExecutable && is_script(path))
            },
        )
    }

    fn exactly(&mut self, path: &Path, option: &str) -> Result<PathBuf> {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let trouble = match self.look(&whole) {
            Found::Executable => return Ok(whole),
            Found::NotExecutable if is_script(&whole) => return Ok(whole),
            Found::NotExecutable => NOT_EXECUTABLE,
            Found::NotAFile => "is not a file",
            Found::Nothing => "does not exist",
        };
        let message = format!("'{}' (option `{option}`) {trouble}", whole.display());
        let executable =
            if trouble == NOT_EXECUTABLE { "make the file executable with `chmod +x`, or " } else { "" };
        Err(Error::new(ErrorKind::CliNotFound, message)
            .with_help(format!("{executable}correct `{option}`, or leave it out to have PATH searched")))
    }

    fn look(&mut self, path: &Path) -> Found {
        let found = self.machine.look(path);
        let remark = match found {
            Found::Nothing | Found::Executable => "",
            Found::NotAFile => " (not a file)",
            Found::NotExecutable => " (not executable)",
        };
        self.looked_at.push(format!("{}{remark}", path.display()));
        found
    }

    fn report(&self) -> String {
        if self.looked_at.is_empty() {
            return "PATH names no directory to search".to_owned();
        }
        format!("looked at: {}", self.looked_at.join(", "))
    }
}

/// True for a name without a slash.
fn is_bare(name: &Path) -> bool {
    !name.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// True for a file that needs a runtime.
fn is_script(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    ["js", "mjs", "cjs", "jsx", "ts", "tsx"].contains(&extension)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A machine that has these files and variables.
    #[derive(Default)]
    struct Fake {
        files: BTreeMap<String, Found>,
        vars: BTreeMap<&'static str, &'static str>,
    }

    impl Fake {
        fn new<const N: usize>(path: &'static str, files: [&str; N]) -> Self {
            Self {
                files: files.map(|file| (file.to_owned(), Found::Executable)).into(),
                vars: [("PATH", path), ("HOME", "/home/me")].into(),
            }
        }

        fn with(mut self, file: &str, found: Found) -> Self {
            self.files.insert(file.to_owned(), found);
            self
        }
    }

    impl Machine for Fake {
        fn var(&self, name: &str) -> Option<OsString> {
            self.vars.get(name).map(OsString::from)
        }

        fn look(&self, path: &Path) -> Found {
            path.to_str().and_then(|path| self.files.get(path)).copied().unwrap_or(Found::Nothing)
        }
    }

    fn program(path: &str) -> Located {
        Located { program: path.into(), script: None }
    }

    #[test]
    fn path_goes_before_the_usual_places() {
        let fake = Fake::new("/a:/b", ["/b/claude", "/usr/local/bin/claude"]);
        assert_eq!(locate(None, None, None, &fake).unwrap(), program("/b/claude"));
    }

    #[test]
    fn each_usual_place_is_looked_at() {
        for place in USUAL_PLACES {
            let file = format!("{}/claude", place.replace('~', "/home/me"));
            let fake = Fake::new("/a", [file.as_str()]);
            assert_eq!(locate(None, None, None, &fake).unwrap(), program(&file));
        }
    }

    #[test]
    fn the_path_of_the_child_goes_before_the_hosts() {
        let fake = Fake::new("/host", ["/host/claude", "/child/claude"]);
        assert_eq!(locate(None, None, Some("/child".as_ref()), &fake).unwrap(), program("/child/claude"));
    }

    #[test]
    fn files_that_cannot_run_are_skipped() {
        let fake = Fake::new("/a:/b:/c", ["/c/claude"])
            .with("/a/claude", Found::NotExecutable)
            .with("/b/claude", Found::NotAFile);
        assert_eq!(locate(None, None, None, &fake).unwrap(), program("/c/claude"));
    }

    #[test]
    fn relative_entries_of_path_are_skipped() {
        let fake = Fake::new(":.:bin:/a", ["/a/claude"]).with("bin/claude", Found::Executable);
        assert_eq!(locate(None, None, None, &fake).unwrap(), program("/a/claude"));
    }

    #[test]
    fn the_error_lists_each_place_and_how_to_install() {
        let fake = Fake::new("/a:/b", []).with("/b/claude", Found::NotExecutable);
        let error = locate(None, None, None, &fake).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CliNotFound);
        assert_eq!(
            error.to_string(),
            "no `claude` executable found; looked at: /a/claude, /b/claude (not executable), \
             /home/me/.npm-global/bin/claude, /usr/local/bin/claude, /home/me/.local/bin/claude, \
             /home/me/node_modules/.bin/claude, /home/me/.yarn/bin/claude, /home/me/.claude/local/claude, \
             /opt/homebrew/bin/claude; install it with `npm install -g @anthropic-ai/claude-code`, or name \
             the executable in the option `cli_path`"
        );
    }

    #[test]
    fn a_search_without_any_variable_fails_with_a_clear_error() {
        let error = locate(None, None, None, &Fake::default()).unwrap_err();
        assert!(error.to_string().contains("looked at: /usr/local/bin/claude, /opt/"), "{error}");
        let error = locate(Some("claude".as_ref()), None, None, &Fake::default()).unwrap_err();
        assert!(error.to_string().contains("PATH names no directory"), "{error}");
    }

    #[test]
    fn a_named_path_is_used_or_refused_with_the_reason() {
        let fake = Fake::new("/a", ["/a/claude", "/opt/cli"])
            .with("/opt", Found::NotAFile)
            .with("/opt/text", Found::NotExecutable);
        assert_eq!(locate(Some("/opt/cli".as_ref()), None, None, &fake).unwrap(), program("/opt/cli"));
        for (path, reason) in [
            ("/opt/none", "'/opt/none' (option `cli_path`) does not exist"),
            ("/opt/text", "'/opt/text' (option `cli_path`) is not executable"),
            ("/opt", "'/opt' (option `cli_path`) is not a file"),
        ] {
            let error = locate(Some(path.as_ref()), None, None, &fake).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CliNotFound);
            assert!(error.to_string().starts_with(reason), "{error}");
        }
    }

    #[test]
    fn a_named_path_that_is_relative_starts_at_the_hosts_directory() {
        let error = locate(Some("./no/claude".as_ref()), None, None, &Fake::default()).unwrap_err();
        let whole = std::env::current_dir().unwrap().join("no/claude");
        assert!(error.to_string().contains(whole.to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_named_bare_name_is_looked_for_on_path() {
        let fake = Fake::new("/a:/b", ["/b/claude-next"]);
        assert_eq!(
            locate(Some("claude-next".as_ref()), None, None, &fake).unwrap(),
            program("/b/claude-next")
        );
        let error = locate(Some("other".as_ref()), None, None, &fake).unwrap_err();
        assert!(error.to_string().contains("looked at: /a/other, /b/other"), "{error}");
    }

    #[test]
    fn a_script_runs_under_node() {
        for extension in ["js", "mjs", "cjs", "ts", "jsx", "tsx"] {
            let script = format!("/opt/cli.{extension}");
            let fake = Fake::new("/bin", ["/bin/node"]).with(&script, Found::NotExecutable);
            let located = locate(Some(script.as_ref()), None, None, &fake).unwrap();
            assert_eq!(located, Located { program: "/bin/node".into(), script: Some(script.into()) });
        }
    }

    #[test]
    fn a_script_runs_under_the_runtime_that_is_named() {
        let fake = Fake::new("/bin", ["/bin/bun", "/opt/deno", "/opt/cli.js", "/opt/cli"]);
        let runtime = |cli: &str, named: &str| locate(Some(cli.as_ref()), Some(named.as_ref()), None, &fake);
        for (named, found) in [("bun", "/bin/bun"), ("/opt/deno", "/opt/deno")] {
            let script = Some("/opt/cli.js".into());
            assert_eq!(runtime("/opt/cli.js", named).unwrap(), Located { program: found.into(), script });
            assert_eq!(runtime("/opt/cli", named).unwrap(), program("/opt/cli"), "no script needs one");
        }
        for named in ["node", "/opt/node"] {
            let error = runtime("/opt/cli.js", named).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CliNotFound);
            assert!(error.to_string().contains("`runtime`") && error.help().is_some(), "{error}");
        }
    }

    #[test]
    fn a_script_without_node_is_refused() {
        let fake = Fake::new("/bin", ["/opt/cli.js"]);
        let error = locate(Some("/opt/cli.js".as_ref()), None, None, &fake).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CliNotFound);
        assert!(error.to_string().starts_with("'/opt/cli.js' needs `node`"), "{error}");
    }

    #[test]
    fn this_machine_tells_what_it_finds() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        assert_eq!(ThisMachine.look(&file), Found::Nothing);
        assert_eq!(ThisMachine.look(directory.path()), Found::NotAFile);
        for (mode, found) in [(0o644, Found::NotExecutable), (0o755, Found::Executable)] {
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(ThisMachine.look(&file), found);
        }
        assert_eq!(ThisMachine.var("PATH"), std::env::var_os("PATH"));
    }
}
