//! `llms.txt` and `AGENTS.md`, for readers that are programs, are made of the pages that people read.

use std::fmt::Write;
use std::fs;

use crate::bless::check_or_bless;
use crate::links::{anchors, prose};
use crate::root;

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The text below this heading, to the next heading of its level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let below = page.split(&format!("\n## {heading}\n")).nth(1).unwrap_or_else(|| panic!("no `{heading}`"));
    below.split("\n## ").next().unwrap().trim()
}

/// The paragraphs of a page in front of its first second-level heading, each on one line, without programs.
fn opening(page: &str) -> Vec<String> {
    let lines: Vec<&str> = prose(page).take_while(|line| !line.starts_with("## ")).collect();
    let text = lines.join("\n");
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ").trim().to_owned());
    paragraphs.filter(|text| !text.is_empty() && !text.starts_with(['#', '<', '|'])).collect()
}

fn headings<'a>(page: &'a str, level: &'a str) -> impl Iterator<Item = &'a str> {
    prose(page).filter_map(move |line| line.strip_prefix(level)?.strip_prefix(' '))
}

/// The guides: those of the README's table first, in its order.
fn guides() -> Vec<String> {
    let readme = page("README.md");
    let listed = section(&readme, "Guides").split("](docs/").skip(1);
    let mut guides: Vec<String> =
        listed.filter_map(|rest| Some(format!("docs/{}", rest.split_once(')')?.0))).collect();
    let files = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut rest: Vec<String> = files
        .map(|name| format!("docs/{}", name.to_str().unwrap()))
        .filter(|path| path.ends_with(".md") && !guides.contains(path))
        .collect();
    rest.sort();
    guides.append(&mut rest);
    guides
}

/// A line with a link to a page, and the page's first paragraph.
fn entry(path: &str) -> String {
    let text = page(path);
    let title = headings(&text, "#").next().unwrap();
    // Its links start at its own folder.
    let about = without_links(&opening(&text)[0]);
    format!("- [{title}]({path}): {about}\n")
}

/// The text with the words of its links, without their targets.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        let at = plain.rfind('[').unwrap();
        plain.remove(at);
        plain.push_str(part.split_once(')').unwrap().1);
    }
    plain
}

/// What the library is, and each heading of each guide: the format of <https://llmstxt.org>.
fn llms() -> String {
    let readme = page("README.md");
    let mut opening = opening(&readme).into_iter();
    let mut text = format!("# greenroom\n\n> {}\n", opening.next().unwrap());
    for paragraph in opening {
        write!(text, "\n{paragraph}\n").unwrap();
    }
    text.push_str("\n## Guides\n\n");
    for guide in guides() {
        text.push_str(&entry(&guide));
        let page = page(&guide);
        for heading in headings(&page, "##").filter(|heading| *heading != "See also") {
            let anchor = anchors(&format!("## {heading}")).pop_first().unwrap();
            writeln!(text, "  - [{}]({guide}#{anchor})", without_links(heading)).unwrap();
        }
    }
    text.push_str("\n## Project\n\n");
    for path in ["architecture.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        text.push_str(&entry(path));
    }
    text
}

/// How to build and test, and the rules: what a program has to know that changes the library.
fn agents() -> String {
    let (readme, contributing) = (page("README.md"), page("CONTRIBUTING.md"));
    let mut text = "<!-- Made by tests/tidy of README.md, CONTRIBUTING.md and docs/: GREENROOM_BLESS=1 cargo test --test tidy -->\n\n\
                    # For agents\n\n"
        .to_owned();
    for paragraph in opening(&readme).into_iter().take(3) {
        write!(text, "{paragraph}\n\n").unwrap();
    }
    text.push_str("To use the library, start with the first program of [README.md](README.md). [llms.txt](llms.txt) has each heading of the guides:\n\n");
    for guide in guides() {
        writeln!(text, "- [{}]({guide})", headings(&page(&guide), "#").next().unwrap()).unwrap();
    }
    text.push_str(
        "\nTo change the library, read on, and [architecture.md](architecture.md) before you change code.\n",
    );
    let kept = [
        "Build and test",
        "Where things belong",
        "Plain words",
        "Rules for tests",
        "Rules for code",
        "Files that are made",
    ];
    for heading in kept {
        write!(text, "\n## {heading}\n\n{}\n", section(&contributing, heading)).unwrap();
    }
    text
}

#[test]
fn the_pages_for_programs_are_made_of_those_for_people() {
    check_or_bless("llms.txt", &llms(), "tidy");
    check_or_bless("AGENTS.md", &agents(), "tidy");
}

mod seen {
    use super::*;

    #[test]
    fn openings_and_words_of_links() {
        let page = "<!-- made -->\n\n# A\n\nFirst [one](x.md#y),\nthen two.\n\n```sh\nno\n```\n\n| a |\n\n## B\n\nno";
        assert_eq!(opening(page), ["First [one](x.md#y), then two."]);
        assert_eq!(without_links("a [b `c`](d) e [f](g)."), "a b `c` e f.");
        assert_eq!(section("# A\n\n## B\n\nb\n\n## C\n\nc", "B"), "b");
    }
}
