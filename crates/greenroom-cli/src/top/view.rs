//! The lines of a snapshot.

use super::Part;
use super::snapshot::{PAGE, Snapshot};
use crate::arguments::Sort;
use crate::output::{Row, aligned, shown_cells};
use crate::rows::{NameRow, NodeRow};
use crate::text::{fit, shown};

/// Nodes in a window. Those with the oldest leases are shown first in need.
const NODES: usize = 8;

/// The window in which the lines are shown.
pub(super) struct Window<'a> {
    /// Looks so far.
    pub(super) count: u64,
    /// The failure of the last look.
    pub(super) failure: Option<&'a str>,
    /// Columns and rows.
    pub(super) size: (usize, usize),
}

/// The lines for a window, or all of them.
pub(super) fn lines(snapshot: &Snapshot, part: &Part, window: Option<&Window<'_>>) -> Vec<String> {
    let mut lines = vec![summary(snapshot, window)];
    lines.push(String::new());
    lines.extend(nodes(&snapshot.nodes, window.map_or(usize::MAX, |_| NODES)));
    lines.push(String::new());
    let mut names: Vec<&NameRow> = snapshot.names.iter().collect();
    match part.sort {
        Sort::Name => {}
        Sort::State => names.sort_by_key(|row| row.state),
        Sort::Age => names.sort_by_key(|row| row.since),
    }
    let skipped = names.iter().skip(window.map_or(0, |_| part.scrolled));
    lines.extend(table(skipped.copied()));
    let Some(window) = window else { return lines };
    let (columns, rows) = window.size;
    lines.truncate(rows.saturating_sub(1));
    lines.resize(rows.saturating_sub(1), String::new());
    lines.push(keys(snapshot, part));
    // A full last column would have the terminal begin another row.
    lines.iter().map(|line| fit(line, columns.saturating_sub(1)).into_owned()).collect()
}

fn summary(snapshot: &Snapshot, window: Option<&Window<'_>>) -> String {
    let Snapshot { nodes, queued, stuck, questions, tenants, .. } = snapshot;
    let counts = format!(
        "nodes {}  queued {queued}  tenants {tenants}  stuck {stuck}  questions {questions}",
        nodes.len()
    );
    match window {
        None => counts,
        Some(Window { failure: Some(failure), .. }) => format!("not reached: {}", shown(failure)),
        Some(window) => format!("{counts}  look {} took {} ms", window.count, snapshot.took.as_millis()),
    }
}

fn nodes(nodes: &[NodeRow], most: usize) -> Vec<String> {
    let mut lines = table(nodes.iter().take(most));
    if nodes.len() > most {
        lines.push(format!("and {} more: `greenroom nodes` lists all", nodes.len() - most));
    }
    lines
}

/// Rows under their headings.
fn table<'a, R: Row + 'a>(rows: impl Iterator<Item = &'a R>) -> Vec<String> {
    let headings = R::COLUMNS.iter().map(|name| (*name).to_owned()).collect();
    let lines: Vec<_> = std::iter::once(headings).chain(rows.map(shown_cells)).collect();
    aligned(&lines)
}

fn keys(snapshot: &Snapshot, part: &Part) -> String {
    let order = match part.sort {
        Sort::Name => "name",
        Sort::State => "state",
        Sort::Age => "age",
    };
    let first = part.pages.len() * PAGE;
    let (from, to) = (first + usize::from(!snapshot.names.is_empty()), first + snapshot.names.len());
    let which = if part.stuck { "stuck sessions" } else { "sessions" };
    format!("{which} {from}-{to} by {order} | n p page  ↓ ↑ scroll  s order  f stuck or all  r look  q quit")
}
