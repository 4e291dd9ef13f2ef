//! Fields, methods, variants and wire names of the library's types, read from its sources.
//!
//! Fields that the macros of the library declare are seen as well, which the compiler could not be asked for by name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::table::file;

/// A field, method or variant, in snake case, and the types that its declaration names.
pub(crate) type Members = BTreeMap<String, BTreeSet<String>>;

/// The declarations in `src/`, by the name of the type or function: a type may have several, such as its `impl`s.
pub(crate) struct Declared {
    blocks: HashMap<String, Vec<String>>,
    /// Earlier answers, by type.
    members: RefCell<HashMap<String, Members>>,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// A type at the beginning of a line, in a macro of the library or outside of one.
static TYPE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"^( {0,4})(?:pub )?(?:(?:struct|enum|trait|message|request|part|answer) )?([A-Z]\w*)\b[^(;]*[{:"]#?$"#,
    )
});
static IMPL: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^( {0,4})impl\b(?:<[^>]*>)? (?:[^{]+ for )?(?:\w+::)*([A-Z]\w*)"));
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| regex(r"^( {4})pub (?:async )?fn (\w+)"));
/// A hook event declares three types at once, up to the end of its macro.
static EVENT: LazyLock<Regex> = LazyLock::new(|| regex(r"^ {4}\w+: \w+Input, \w+Output"));
static MEMBER: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"^\s*(?:pub )?(?:r#)?(\w+)\s*[:({,]|\bfn (\w+)|\b([a-z_]+): |"([A-Za-z][\w-]*)""#)
});
static NAME: LazyLock<Regex> = LazyLock::new(|| regex(r"\b[A-Z]\w+"));

/// `fooBar`, `FooBar` and `foo-bar` as `foo_bar`.
pub(crate) fn snake(name: &str) -> String {
    static WORD: LazyLock<Regex> = LazyLock::new(|| regex(r"([a-z0-9])([A-Z])"));
    static ACRONYM: LazyLock<Regex> = LazyLock::new(|| regex(r"([A-Z]+)([A-Z][a-z])"));
    let name = WORD.replace_all(name, "${1}_$2");
    ACRONYM.replace_all(&name, "${1}_$2").replace('-', "_").to_lowercase()
}

impl Declared {
    pub(crate) fn read() -> Self {
        let mut declared = Self { blocks: HashMap::new(), members: RefCell::default() };
        declared.folder(&file("src"));
        assert!(declared.blocks.len() > 500, "{} declarations are too few", declared.blocks.len());
        declared
    }

    fn folder(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "tests" {
                self.folder(&path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                self.text(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    fn text(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let found = [&*TYPE, &*IMPL, &*FUNCTION].into_iter().find_map(|kind| kind.captures(line));
            let (indent, names) = match found {
                // The macro in which the variants of `SystemDetail` are listed.
                _ if *line == "subtypes! {" => (0, vec!["SystemDetail"]),
                _ if EVENT.is_match(line) => (0, NAME.find_iter(line).map(|name| name.as_str()).collect()),
                Some(found) => (found[1].len(), vec![found.get(2).unwrap().as_str()]),
                None => continue,
            };
            let ends = |line: &&&str| {
                line.trim_start().starts_with('}') && line.len() - line.trim_start().len() <= indent
            };
            let length = lines[at + 1..].iter().position(|line| ends(&line)).map_or(0, |end| end + 1);
            let code = lines[at..=at + length].iter().filter(|line| !line.trim_start().starts_with("//"));
            let block = code.copied().collect::<Vec<_>>().join("\n");
            for name in names {
                self.blocks.entry(name.to_owned()).or_default().push(block.clone());
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.blocks.contains_key(name)
    }

    /// The members of a type, or the parameters of a function.
    pub(crate) fn members(&self, name: &str) -> Members {
        if let Some(members) = self.members.borrow().get(name) {
            return members.clone();
        }
        let mut members = Members::new();
        for line in self.blocks.get(name).into_iter().flatten().flat_map(|block| block.lines()) {
            for found in MEMBER.captures_iter(line) {
                let member = found.iter().skip(1).flatten().next().unwrap().as_str();
                let types = NAME.find_iter(line).map(|name| name.as_str().to_owned());
                members.entry(snake(member)).or_default().extend(types);
            }
        }
        self.members.borrow_mut().insert(name.to_owned(), members.clone());
        members
    }

    /// The types and functions that a path of the table means: `Message::Assistant` is what that variant holds.
    pub(crate) fn behind(&self, path: &str) -> BTreeSet<String> {
        let steps: Vec<&str> = path.split("::").collect();
        let name = *steps.last().unwrap();
        let mut behind = BTreeSet::from([name.to_owned()]);
        if let [.., owner, _] = steps.as_slice()
            && owner.starts_with(char::is_uppercase)
        {
            behind.extend(self.members(owner).remove(&snake(name)).unwrap_or_default());
        }
        behind
    }
}
