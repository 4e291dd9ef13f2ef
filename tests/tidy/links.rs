//! Links between the pages of the project lead somewhere: the file is there, and the heading too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::{root, sources};

const FLEET: &str = "crates/greenroom-fleet/README.md";

/// The pages that people read, by their paths in the project.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CODE_OF_CONDUCT.md",
        "architecture.md",
        "CHANGELOG.md",
        "tests/coverage/table.md",
        "llms.txt",
        "AGENTS.md",
        "fuzz/README.md",
        FLEET,
        "crates/greenroom-cli/README.md",
    ]
    .map(Into::into)
    .into();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
    pages
}

/// The lines of a page outside of its programs.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors that the headings of a page get: lower case, dashes for spaces, no punctuation, and a number behind the
/// second heading of a name.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let Some((marks, heading)) = line.split_once(' ') else { continue };
        if marks.is_empty() || marks.bytes().any(|byte| byte != b'#') {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let times = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        *times += 1;
    }
    anchors
}

/// The targets of the links in this text.
fn links(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in prose(text) {
        found.extend(line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
        // `[name]: target`
        let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        found.extend(reference.map(|(_, target)| target.trim().to_owned()));
    }
    found
}

/// The path and the anchor that a link on this page means; `None` for a link to elsewhere.
fn target(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.contains("://") || path.starts_with("mailto:") {
        return None;
    } else if path.is_empty() {
        page.to_owned()
    } else {
        page.parent().unwrap().join(path)
    };
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    Some((plain, anchor.map(str::to_owned)))
}

/// The trouble with a link, if it leads nowhere.
fn trouble(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = target(page, link)?;
    let file = root().join(&path);
    if !file.exists() {
        return Some(format!("{}: `{link}`: there is no such file", page.display()));
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    let anchor = anchor.filter(|anchor| !anchors(&text).contains(anchor))?;
    Some(format!("{}: `{link}`: {} has no heading `#{anchor}`", page.display(), path.display()))
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let (mut found, mut broken) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let links = links(&text);
        found += links.len();
        broken.extend(links.iter().filter_map(|link| trouble(&page, link)));
    }
    assert!(found > 40, "only {found} links were found");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_guide_that_the_sources_name_is_there() {
    let (mut found, mut broken) = (0, Vec::new());
    for folder in ["src", "tests", "benches", "examples", "crates"] {
        for source in sources(&root().join(folder)) {
            let text = fs::read_to_string(&source).unwrap();
            // A name ends where no path and no anchor goes on; this file has names of no guide.
            let mentions = text.split("docs/").skip(1).filter(|_| !source.ends_with("tidy/links.rs"));
            for mention in mentions {
                let link = |c: char| c.is_ascii_alphanumeric() || "-_.#/".contains(c);
                let name: String = mention.chars().take_while(|c| link(*c)).collect();
                let name = name.trim_end_matches('.');
                if name.ends_with(".md") || name.contains(".md#") {
                    found += 1;
                    broken.extend(
                        trouble(Path::new("docs/mod.rs"), name)
                            .map(|why| format!("{}: {why}", source.display())),
                    );
                }
            }
        }
    }
    assert!(found > 10, "only {found} guides are named");
    assert!(broken.is_empty(), "{broken:#?}");
}

mod seen {
    use super::*;

    #[test]
    fn links_without_a_target() {
        let page = Path::new("docs/permissions.md");
        for good in ["hooks.md", "../README.md", "tools.md", "https://docs.rs/ractor"] {
            assert_eq!(trouble(page, good), None);
        }
        for bad in ["hooks.md#no-such-heading", "#no-such-heading", "README.md"] {
            assert!(trouble(page, bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn anchors_as_they_are_rendered() {
        let text = "# A `b` (c), d\n```sh\n# no heading\n```\n## Twice\n## Twice\ntext # 3\n[x](y.md#z) and\n[w]: v.md";
        assert_eq!(anchors(text), ["a-b-c-d", "twice", "twice-1"].map(String::from).into());
        assert_eq!(links(text), ["y.md#z", "v.md"]);
    }
}
