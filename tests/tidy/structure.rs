//! The structure of each library: how large folders and files are, which imports run in a circle, which names stand twice.
//!
//! The imports come from the text of the sources: `use` declarations, also those in macros, and paths that begin with
//! `crate`, `super` or `self`. A name that a module re-exports counts as an import of the file that declares the name.
//! Tests, comments and texts in quotes do not count. A `mod.rs` and the files of its folder are one unit, so an import
//! of one by the other closes no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::{LIBRARIES, root, sources};

/// Files in one folder.
const FILES: usize = 15;
/// Lines of one file.
const LINES: usize = 400;
/// Names of types with more than one declaration.
const REPEATED_TYPES: usize = 10;
/// Percent of the comments whose first word hides what the comment is about.
const RIDDLES: usize = 2;
const RIDDLE_WORDS: &str = "What Whatever Which How Why Whoever Whose Those One Ones Of Neither Its It";

type Path = Vec<String>;

/// The sources of a crate, each with its path under `src/`.
struct Sources {
    texts: BTreeMap<String, String>,
    /// Code without tests, comments and the insides of texts; files of tests are left out.
    code: BTreeMap<String, String>,
    modules: BTreeMap<Path, String>,
    /// Names that `use` declarations bring into a file, with the path of each.
    uses: BTreeMap<String, Vec<(String, Path)>>,
}

impl Sources {
    fn new(texts: BTreeMap<String, String>) -> Self {
        let tests = |file: &str| file.split('/').any(|part| part == "tests" || part == "tests.rs");
        let code: BTreeMap<_, _> = texts
            .iter()
            .filter(|(file, _)| !tests(file))
            .map(|(file, text)| (file.clone(), code(text)))
            .collect();
        let modules = code.keys().map(|file| (module(file), file.clone())).collect();
        let mut sources = Self { texts, code, modules, uses: BTreeMap::new() };
        sources.uses =
            sources.code.iter().map(|(file, code)| (file.clone(), sources.used(file, code))).collect();
        sources
    }

    /// The sources of each library.
    fn of_libraries() -> impl Iterator<Item = Self> {
        LIBRARIES.iter().map(|library| {
            let src = root().join(library);
            let texts = sources(&src).into_iter().map(|path| {
                (path.strip_prefix(&src).unwrap().display().to_string(), fs::read_to_string(&path).unwrap())
            });
            Self::new(texts.collect())
        })
    }

    fn used(&self, file: &str, code: &str) -> Vec<(String, Path)> {
        let mut uses = Vec::new();
        for (at, _) in code.match_indices("use ") {
            if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
                continue;
            }
            let tree = code[at + 4..].split(';').next().unwrap();
            for (path, name) in leaves(tree) {
                if let Some(path) = self.absolute(file, &path) {
                    uses.push((name, path));
                }
            }
        }
        uses
    }

    /// A path from the crate's root on; `None` for a path into another crate.
    fn absolute(&self, file: &str, path: &[String]) -> Option<Path> {
        let mut base = module(file);
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" | "$crate" => base.clear(),
            "self" | "super" => {}
            child => {
                let mut below = base.clone();
                below.push(child.to_owned());
                self.modules.get(&below)?;
                return Some([&base, path].concat());
            }
        }
        while let Some("crate" | "$crate" | "self" | "super") = rest.first().map(String::as_str) {
            if rest[0] == "super" {
                base.pop();
            }
            rest = &rest[1..];
        }
        Some([&base, rest].concat())
    }

    /// The file that declares what a path leads to.
    fn declaring(&self, path: &[String], depth: usize) -> Option<&String> {
        let known = (0..=path.len()).rev().find(|known| self.modules.contains_key(&path[..*known]))?;
        let file = &self.modules[&path[..known]];
        let Some(name) = path.get(known).filter(|name| *name != "*") else { return Some(file) };
        if depth == 0 || declares(&self.code[file], name) {
            return Some(file);
        }
        let uses = &self.uses[file];
        if let Some((_, through)) = uses.iter().find(|(used, _)| used == name) {
            return self.declaring(&[through.as_slice(), &path[known + 1..]].concat(), depth - 1);
        }
        // A macro may declare the name in a module of which everything is re-exported.
        let behind = uses.iter().filter(|(used, _)| used == "*").find_map(|(_, glob)| {
            let module = &glob[..glob.len() - 1];
            let below = self.declaring(&[module, std::slice::from_ref(name)].concat(), depth - 1)?;
            let code = &self.code[below];
            (declares(code, name) || code.contains(&format!("{name} {{"))).then_some(below)
        });
        Some(behind.unwrap_or(file))
    }

    /// The files that each file imports.
    fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, code) in &self.code {
            let found = imports.entry(file.clone()).or_default();
            let inline = inline_paths(code).into_iter().filter_map(|path| self.absolute(file, &path));
            for path in self.uses[file].iter().map(|(_, path)| path.clone()).chain(inline) {
                found.extend(self.declaring(&path, 8).filter(|to| *to != file).cloned());
            }
        }
        imports
    }

    fn circles_of_files(&self) -> Vec<Vec<String>> {
        let mut imports = self.imports();
        for (file, to) in &mut imports {
            let folder = file.strip_suffix("mod.rs").or(file.strip_suffix("lib.rs"));
            to.retain(|to| folder.is_none_or(|folder| !to.starts_with(folder)));
        }
        circles(&imports)
    }

    /// Circles between the folders and files right under `src/`. `lib.rs` names all of them, and what opens the inside
    /// to fuzzing and benches may use any.
    fn circles_of_folders(&self) -> Vec<Vec<String>> {
        let aside = ["lib.rs", "internals.rs"];
        let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let room = |file: &str| file.split('/').next().unwrap().to_owned();
        for (file, to) in self.imports() {
            let to =
                to.iter().map(|to| room(to)).filter(|to| *to != room(&file) && !aside.contains(&to.as_str()));
            if !aside.contains(&room(&file).as_str()) {
                folders.entry(room(&file)).or_default().extend(to);
            }
        }
        circles(&folders)
    }

    /// Types that more than one file declares, with these files. The names of ractor's associated types are indented,
    /// so they do not count.
    fn repeated_types(&self) -> BTreeMap<String, Vec<&String>> {
        let mut types: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for (file, code) in &self.code {
            for line in code.lines() {
                let line =
                    line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').unwrap_or(("", "")).1);
                let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                if let (Some("struct" | "enum" | "trait" | "type"), Some(name)) = (words.next(), words.next())
                {
                    let files = types.entry(name.to_owned()).or_default();
                    if files.last() != Some(&file) {
                        files.push(file);
                    }
                }
            }
        }
        types.retain(|_, files| files.len() > 1);
        types
    }
}

/// The module that a file is.
fn module(file: &str) -> Path {
    let path = file.strip_suffix(".rs").unwrap();
    let path = path.strip_suffix("/mod").unwrap_or(if path == "lib" { "" } else { path });
    path.split('/').filter(|step| !step.is_empty()).map(str::to_owned).collect()
}

/// The code without comments, the insides of texts and the module of tests.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let mut code = String::new();
    for line in text.lines() {
        let (mut quoted, mut escaped, mut before) = (false, false, ' ');
        for c in line.chars() {
            if !quoted && c == '/' && before == '/' {
                code.pop();
                break;
            }
            if c == '"' && !escaped && before != '\'' {
                quoted = !quoted;
            }
            escaped = quoted && c == '\\' && !escaped;
            if !quoted || c == '"' {
                code.push(c);
            }
            before = c;
        }
        code.push('\n');
    }
    code
}

fn declares(code: &str, name: &str) -> bool {
    ["struct ", "enum ", "trait ", "fn ", "type ", "const ", "static ", "union ", "macro_rules! "].iter().any(
        |kind| {
            code.match_indices(&format!("{kind}{name}")).any(|(at, found)| {
                !code[at + found.len()..].starts_with(|after: char| after.is_alphanumeric() || after == '_')
            })
        },
    )
}

/// The paths of a `use` declaration, each with the name that the path has in the file.
fn leaves(tree: &str) -> Vec<(Path, String)> {
    let steps = |path: &str| -> Path {
        path.split("::").map(|step| step.trim().to_owned()).filter(|step| !step.is_empty()).collect()
    };
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = steps(path);
        if path.len() > 1 && path.last().unwrap() == "self" {
            path.pop();
        }
        let Some(last) = path.last().cloned() else { return Vec::new() };
        return vec![(path, if name.is_empty() { last } else { name.trim().to_owned() })];
    };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in rest.trim_end().strip_suffix('}').unwrap_or(rest).chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().unwrap().push(c),
        }
    }
    let below = parts.iter().flat_map(|part| leaves(part));
    below.map(|(leaf, name)| ([steps(head), leaf].concat(), name)).collect()
}

/// Paths in the code that begin at the crate's root or at a parent.
fn inline_paths(code: &str) -> Vec<Path> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
    code.split(|c: char| !part(c))
        .filter(|word| {
            ["crate::", "$crate::", "super::", "self::"].iter().any(|start| word.starts_with(start))
        })
        .map(|word| word.split("::").filter(|step| !step.is_empty()).map(str::to_owned).collect())
        .collect()
}

/// Groups of nodes each of which reaches every other of its group.
fn circles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            for next in arrows.get(node).into_iter().flatten() {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<_, _> = arrows.keys().map(|node| (node, reached(node))).collect();
    let mut found = BTreeSet::new();
    for (node, seen) in &reach {
        let circle: Vec<String> = seen
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|back| back.contains(*node)))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

#[test]
fn no_folder_has_too_many_files() {
    let mut folders: BTreeMap<_, usize> = BTreeMap::new();
    for path in LIBRARIES.iter().flat_map(|library| sources(&root().join(library))) {
        *folders.entry(path.parent().unwrap().to_owned()).or_default() += 1;
    }
    folders.retain(|_, files| *files > FILES);
    assert!(folders.is_empty(), "folders with more than {FILES} files: {folders:#?}");
}

#[test]
fn no_file_is_too_long() {
    for all in Sources::of_libraries() {
        let lines = all.texts.iter().map(|(file, text)| (text.lines().count(), file));
        let long: Vec<_> = lines.filter(|(lines, _)| *lines > LINES).collect();
        assert!(long.is_empty(), "files with more than {LINES} lines: {long:#?}");
    }
}

#[test]
fn imports_between_files_run_in_no_circle() {
    for all in Sources::of_libraries() {
        let circles = all.circles_of_files();
        assert!(circles.is_empty(), "circles of files: {circles:#?}");
    }
}

#[test]
fn imports_between_folders_run_in_no_circle() {
    for all in Sources::of_libraries() {
        let circles = all.circles_of_folders();
        assert!(circles.is_empty(), "circles of folders: {circles:#?}");
    }
}

#[test]
fn few_names_of_types_stand_twice() {
    for all in Sources::of_libraries() {
        let types = all.repeated_types();
        assert!(types.len() <= REPEATED_TYPES, "{} types are declared twice: {types:#?}", types.len());
    }
}

#[test]
fn comments_begin_with_their_subject() {
    let (mut comments, mut riddles) = (0, Vec::new());
    for (file, text) in Sources::of_libraries().flat_map(|all| all.texts) {
        let mut inside = false;
        for line in text.lines() {
            let comment =
                line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
            let Some(comment) = comment.filter(|comment| !comment.is_empty()) else {
                inside = false;
                continue;
            };
            if !inside {
                comments += 1;
                let first = comment.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                let hides = RIDDLE_WORDS.split(' ').any(|word| word == first);
                let vague = ["The same ", "Some of ", "Nothing of ", "None of "];
                if hides || vague.iter().any(|start| comment.starts_with(start)) {
                    riddles.push(format!("{file}: {comment}"));
                }
            }
            inside = true;
        }
    }
    assert!(comments > 1000, "only {comments} comments were found");
    let some = &riddles[..riddles.len().min(20)];
    assert!(riddles.len() * 100 <= RIDDLES * comments, "{} of {comments}: {some:#?}", riddles.len());
}

/// The rules above see what they are to see.
mod seen {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Sources {
        Sources::new(files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn a_circle_through_a_use_tree() {
        let circle = crate_of(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "use crate::{b::{self, Bee}, c::Sea};\npub struct Ant;"),
            ("b.rs", "use super::c::*;\npub struct Bee;"),
            ("c.rs", "pub struct Sea;\nfn f() -> crate::a::Ant { todo() }"),
        ]);
        assert_eq!(circle.circles_of_files(), [["a.rs", "b.rs", "c.rs"]]);
        assert_eq!(circle.circles_of_folders(), [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn a_circle_through_re_exports_and_renames() {
        let circle = crate_of(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::{Ant};"),
            ("a/mod.rs", "mod ant;\nmod nest;\npub use ant::Insect as Ant;\npub use nest::*;"),
            ("a/ant.rs", "use crate::b::Bee;\npub struct Insect;"),
            ("a/nest.rs", "open_enum! {\n    Nest { Full }\n}"),
            ("b.rs", "pub struct Bee(crate::Ant);"),
        ]);
        assert_eq!(circle.circles_of_files(), [["a/ant.rs", "b.rs"]]);
        assert_eq!(circle.declaring(&module("a/Nest.rs"), 8).unwrap(), "a/nest.rs");
    }

    #[test]
    fn a_circle_through_a_macro() {
        let circle = crate_of(&[
            ("a.rs", "macro_rules! ant { () => { $crate::b::bee() } }\npub(crate) use ant;"),
            ("b.rs", "use crate::a::ant;\npub fn bee() {}"),
        ]);
        assert_eq!(circle.circles_of_files(), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn no_circle_in_tests_comments_texts_and_parents() {
        let none = crate_of(&[
            ("a/mod.rs", "mod child;\nuse child::Child;\npub struct Parent;"),
            (
                "a/child.rs",
                "use super::Parent;\npub struct Child; // use crate::b::Bee;\nconst T: &str = \"crate::b::Bee\";",
            ),
            ("a/tests.rs", "use crate::b::Bee;"),
            ("b.rs", "use crate::a::Parent;\npub struct Bee;"),
            ("c.rs", "pub struct Sea;\n#[cfg(test)]\nmod tests {\n    use crate::b::Bee;\n}"),
        ]);
        assert!(none.circles_of_files().is_empty());
        let imports = none.imports();
        assert!(imports["c.rs"].is_empty() && !imports["a/child.rs"].contains("b.rs"));
    }

    #[test]
    fn a_type_that_two_files_declare() {
        let twice = crate_of(&[
            ("a.rs", "pub(crate) struct Ant<T>(T);\nimpl X {\n    type State = ();\n}"),
            ("b.rs", "enum Ant {}\nimpl X {\n    type State = ();\n}"),
        ]);
        assert_eq!(twice.repeated_types().keys().collect::<Vec<_>>(), ["Ant"]);
    }
}
