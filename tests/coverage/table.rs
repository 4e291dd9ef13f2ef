//! The table `tests/coverage/table.tsv`.

use std::path::PathBuf;

/// A row: something that the protocol or an SDK has.
#[derive(Debug)]
pub(crate) struct Row {
    /// `option`, `initialize`, `request` (to the CLI), `asked` (by the CLI), `prompt`, `message`, `hook`, `mcp`
    /// (between the CLI and a tool server), `function`, `method`, `type`.
    pub(crate) kind: String,
    /// Name on the wire: a flag, a variable, a field, a subtype, an event.
    pub(crate) wire: Option<String>,
    pub(crate) typescript: Option<String>,
    pub(crate) python: Option<String>,
    /// Paths in greenroom, without the name of the crate.
    pub(crate) ours: Vec<String>,
    /// Reason why greenroom does not have it.
    pub(crate) reason: Option<String>,
    /// Difference to an SDK, from `differs.tsv`.
    pub(crate) differs: Option<String>,
}

impl Row {
    /// Name of the row in a failure.
    pub(crate) fn name(&self) -> String {
        let names = [&self.wire, &self.typescript, &self.python];
        let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
        format!("{} {}", self.kind, names.join(" / "))
    }
}

pub(crate) fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(file("tests/coverage/table.tsv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("kind\twire\ttypescript\tpython\tours\treason"));
    let mut rows: Vec<Row> = lines.map(row).collect();
    for (kind, name, differs) in differences() {
        let is_meant = |row: &&mut Row| {
            row.kind == kind
                && [&row.typescript, &row.python].into_iter().flatten().any(|other| *other == name)
        };
        let mut meant = rows.iter_mut().filter(is_meant);
        let row =
            meant.next().unwrap_or_else(|| panic!("differs.tsv names the {kind} `{name}`: there is no row"));
        assert!(meant.next().is_none(), "differs.tsv names the {kind} `{name}`, of several rows");
        assert!(!row.ours.is_empty(), "what is not here differs in nothing: {}", row.name());
        row.differs = Some(differs);
    }
    rows
}

/// The rows of `differs.tsv`: kind, name in an SDK, what is different here.
fn differences() -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(file("tests/coverage/differs.tsv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("kind\tname\tdiffers"));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, name, differs] = cells.as_slice() else { panic!("not three cells: {line}") };
        ((*kind).to_owned(), (*name).to_owned(), (*differs).to_owned())
    });
    rows.collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('\t').collect();
    let [kind, cells @ ..] = cells.as_slice() else { panic!("an empty line") };
    let cell = |index: usize| Some(cells[index].to_owned()).filter(|cell| cell != "-");
    assert_eq!(cells.len(), 5, "a row has six cells, with `-` for an empty one: {line}");
    assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "an empty cell is written `-`: {line}");
    let ours = cell(3).map(|ours| ours.split(", ").map(str::to_owned).collect()).unwrap_or_default();
    Row {
        kind: (*kind).to_owned(),
        wire: cell(0),
        typescript: cell(1),
        python: cell(2),
        ours,
        reason: cell(4),
        differs: None,
    }
}

/// The rows of one kind that are something here.
pub(crate) fn mapped(kind: &str) -> Vec<Row> {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.kind == kind && !row.ours.is_empty()).collect();
    assert!(!rows.is_empty(), "no row of the kind `{kind}`");
    rows
}
