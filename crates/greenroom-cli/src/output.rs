//! The output: aligned columns on a terminal, columns with tabs in a pipe, or JSON.

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use crate::text::{shown, shown_json, width};

/// A line of a list.
pub(crate) trait Row: Serialize {
    /// The headings of the columns, in capitals.
    const COLUMNS: &'static [&'static str];

    /// The cells, one for each column. A list may leave out its last columns, in all of its lines.
    fn cells(&self) -> Vec<String>;
}

pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) is_terminal: bool,
    has_heading: bool,
    out: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn new(json: bool, is_terminal: bool) -> Self {
        Self { json, is_terminal, has_heading: false, out: BufWriter::new(io::stdout()) }
    }

    /// Writes a page of a list, and has it seen at once. On a terminal the first page has a heading, and each page is aligned by itself.
    pub(crate) fn page<R: Row>(&mut self, rows: &[R]) -> io::Result<()> {
        if self.json {
            for row in rows {
                self.document(row)?;
            }
        } else {
            let mut lines: Vec<Vec<String>> = rows.iter().map(shown_cells).collect();
            if self.is_terminal
                && let Some(columns) = lines.first().map(Vec::len)
                && !std::mem::replace(&mut self.has_heading, true)
            {
                lines.insert(0, R::COLUMNS.iter().take(columns).map(|name| (*name).to_owned()).collect());
            }
            for line in if self.is_terminal { aligned(&lines) } else { with_tabs(&lines) } {
                writeln!(self.out, "{line}")?;
            }
        }
        self.out.flush()
    }

    /// Writes an object as a line.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_string(value).map_err(io::Error::other)?;
        writeln!(self.out, "{}", shown_json(&json))
    }

    /// Writes the answer of a command that does something: an object, or a sentence.
    pub(crate) fn answer(&mut self, value: &impl Serialize, sentence: &str) -> io::Result<()> {
        match self.json {
            true => self.document(value),
            false => writeln!(self.out, "{}", shown(sentence)),
        }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(crate) fn shown_cells(row: &impl Row) -> Vec<String> {
    row.cells().iter().map(|cell| shown(cell).into_owned()).collect()
}

/// Lines of cells in columns, two spaces apart.
pub(crate) fn aligned(lines: &[Vec<String>]) -> Vec<String> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| width(cell)).max();
    let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    let line = |cells: &Vec<String>| {
        let padded =
            cells.iter().zip(&widths).map(|(cell, most)| format!("{cell}{}", " ".repeat(most - width(cell))));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

fn with_tabs(lines: &[Vec<String>]) -> Vec<String> {
    lines.iter().map(|cells| cells.join("\t")).collect()
}
