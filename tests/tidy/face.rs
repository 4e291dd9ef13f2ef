//! The public face: few names at the crate's root, and one path for each name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::root;

/// A module of the library, with its `use` declarations and the names that it defines.
struct Module {
    path: Vec<String>,
    code: String,
}

/// A name, and the module that defines it.
type Item = (Vec<String>, String);

impl Module {
    /// The module at this path, if it has a file.
    fn at(path: &[String]) -> Option<Self> {
        let base = root().join("src").join(path.iter().collect::<PathBuf>());
        let file = if path.is_empty() { base.join("lib.rs") } else { base.with_extension("rs") };
        let text = fs::read_to_string(file).or_else(|_| fs::read_to_string(base.join("mod.rs"))).ok()?;
        let text = text.split("#[cfg(test)]\nmod tests {").next()?.to_owned();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        Some(Self { path: path.to_vec(), code: lines.collect::<Vec<_>>().join("\n") })
    }

    /// The names after `start` at the beginning of a line, those of hidden modules left out.
    fn declared(&self, start: &str) -> Vec<String> {
        let shown = self.code.replace("#[doc(hidden)]\npub mod", "mod");
        let found = shown.lines().filter_map(|line| line.strip_prefix(start));
        found.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
    }

    /// The leaves of the `use` declarations that begin like this, from the crate's root on.
    fn uses(&self, start: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for (_, rest) in self.code.match_indices(start).map(|(at, _)| self.code.split_at(at)) {
            let tree = rest[start.len()..].split(';').next().unwrap();
            // Names of the crate of processes are declared there.
            for leaf in leaves(&tree.split_whitespace().collect::<Vec<_>>().join(" ")) {
                if leaf[0] == "greenroom_process" {
                    continue;
                }
                let mut base = self.path.clone();
                let mut rest = leaf.as_slice();
                while let Some(step @ ("crate" | "super" | "self")) = rest.first().map(String::as_str) {
                    match step {
                        "crate" => base.clear(),
                        "super" => drop(base.pop()),
                        _ => {}
                    }
                    rest = &rest[1..];
                }
                found.push([&base, rest].concat());
            }
        }
        found
    }

    /// The module that defines what this path leads to; the path of a module leads to that module.
    fn definition(path: &[String]) -> Item {
        let mut depth = path.len();
        while Module::at(&path[..depth]).is_none() {
            depth -= 1;
        }
        let (module, Some(name)) = (Module::at(&path[..depth]).unwrap(), path.get(depth)) else {
            return (path.to_vec(), String::new());
        };
        let through = ["pub use ", "pub(crate) use "].iter().flat_map(|start| module.uses(start));
        match through.into_iter().find(|leaf| leaf.last() == Some(name) && leaf.as_slice() != path) {
            Some(leaf) => Module::definition(&[&leaf, &path[depth + 1..]].concat()),
            None => (path[..depth].to_vec(), name.clone()),
        }
    }

    /// Adds all that is public in this module and below, each with the path at which it is public.
    fn list(&self, public: &str, all: &mut BTreeMap<Item, BTreeSet<String>>) {
        for kind in ["struct", "enum", "trait", "fn", "async fn", "type", "const", "static"] {
            for name in self.declared(&format!("pub {kind} ")) {
                all.entry((self.path.clone(), name.clone())).or_default().insert(format!("{public}::{name}"));
            }
        }
        let mut modules: Vec<Vec<String>> = self
            .declared("pub mod ")
            .into_iter()
            .map(|name| [self.path.clone(), vec![name]].concat())
            .collect();
        for leaf in self.uses("\npub use ") {
            match leaf.split_last().unwrap() {
                (last, module) if last == "*" => {
                    // Macros may declare names in there: the module as a whole has its one path, too.
                    all.entry((module.to_vec(), "*".to_owned())).or_default().insert(public.to_owned());
                    Module::at(module).unwrap().list(public, all);
                }
                (last, _) => match Module::definition(&leaf) {
                    (module, name) if name.is_empty() => modules.push(module),
                    item => drop(all.entry(item).or_default().insert(format!("{public}::{last}"))),
                },
            }
        }
        for path in modules {
            let public = format!("{public}::{}", path.last().unwrap());
            all.entry((path.clone(), String::new())).or_default().insert(public.clone());
            Module::at(&path).unwrap().list(&public, all);
        }
    }
}

/// The paths in the tree of a `use` declaration, without renames.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        return vec![path.split("::").map(|step| step.trim().to_owned()).collect()];
    };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in rest.strip_suffix('}').unwrap().chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().unwrap().push(c),
        }
    }
    let head: Vec<String> =
        head.split("::").filter(|step| !step.is_empty()).map(|step| step.trim().to_owned()).collect();
    let below = parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| leaves(part));
    below.map(|leaf| [head.clone(), leaf].concat()).collect()
}

#[test]
fn the_crates_root_has_few_names_and_no_glob() {
    let lib = Module::at(&[]).unwrap();
    let leaves = lib.uses("\npub use ");
    assert!(leaves.iter().all(|leaf| leaf.last().unwrap() != "*"), "a glob at the root: {leaves:?}");

    let names: Vec<_> = leaves.into_iter().filter(|leaf| !Module::definition(leaf).1.is_empty()).collect();
    assert!((20..=30).contains(&names.len()), "{} names at the root: {names:#?}", names.len());
}

#[test]
fn every_public_name_has_one_path() {
    let mut all = BTreeMap::new();
    Module::at(&[]).unwrap().list("greenroom", &mut all);
    assert!(all.len() > 250, "{} names are too few", all.len());

    let twice: Vec<_> = all.values().filter(|paths| paths.len() > 1).collect();
    assert!(twice.is_empty(), "with more than one path: {twice:#?}");
    // A module that is public name by name must not be so through a glob as well.
    for (module, name) in all.keys().filter(|(_, name)| !name.is_empty() && name != "*") {
        let Some(globs) = all.get(&(module.clone(), "*".to_owned())) else { continue };
        for path in &all[&(module.clone(), name.clone())] {
            let parent = path.rsplit_once("::").unwrap().0;
            assert!(globs.contains(parent), "`{name}` is at {path} and in {globs:?}");
        }
    }
}
