//! The figures as tables in Markdown.

use std::fmt::Write as _;
use std::path::Path;

use super::greenroom_host::Result;
use super::report::{Figures, Row};

/// Writes the tables to the file.
pub(crate) fn put(file: &Path, figures: &Figures) -> Result<()> {
    Ok(std::fs::write(file, tables(figures))?)
}

/// 1234567 as 1,234,567.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn part(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.2}"))
}

// Writing to a `String` does not fail.
fn tables(figures: &Figures) -> String {
    let mut text = String::from(
        "| calls over one pipe | host | calls/s | p50 µs | p99 µs | CPU µs a call | peak MB | to `limit` | to `tokio` |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let beside = |row: &&Row| row.hosts.iter().any(|host| host.p99_to_beside.is_some());
    let sessions = |row: &&Row| row.hosts.iter().any(|host| host.to_one.is_some());
    let traced = |row: &&Row| row.hosts.iter().any(|host| host.cpu_to_untraced.is_some());
    for row in figures.rows.iter().filter(|row| !beside(row) && !sessions(row) && !traced(row)) {
        let mut name = row.name.as_str();
        for host in &row.hosts {
            let run = &host.run;
            writeln!(
                text,
                "| {name} | {} | {} | {:.1} | {:.1} | {:.2} | {:.1} | {} | {} |",
                host.host,
                grouped(run.per_second),
                run.p50_us,
                run.p99_us,
                run.cpu_us,
                run.peak_mb,
                part(host.to_limit),
                part(host.to_tokio),
            )
            .ok();
            name = "";
        }
    }
    text.push_str(
        "\n| calls with a subscriber | host | calls/s | CPU µs a call | to no subscriber |\n|---|---|--:|--:|--:|\n",
    );
    for row in figures.rows.iter().filter(traced) {
        let mut name = row.name.as_str();
        for host in &row.hosts {
            let (per_second, cpu) = (grouped(host.run.per_second), host.run.cpu_us);
            let ratio = part(host.cpu_to_untraced);
            writeln!(text, "| {name} | {} | {per_second} | {cpu:.2} | {ratio} |", host.host).ok();
            name = "";
        }
    }
    text.push_str(
        "\n| a quick call beside | host | p50 µs | p99 µs | with nothing beside: p50 µs | p99 µs | p99 to p99 |\n\
         |---|---|--:|--:|--:|--:|--:|\n",
    );
    for row in figures.rows.iter().filter(beside) {
        for host in &row.hosts {
            let run = &host.run;
            writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
                row.name,
                host.host,
                run.p50_us,
                run.p99_us,
                run.beside_p50_us,
                run.beside_p99_us,
                part(host.p99_to_beside),
            )
            .ok();
        }
    }
    text.push_str(
        "\n| sessions in one process | | calls/s of all | to one session | peak MB | threads a session |\n\
         |---|---|--:|--:|--:|--:|\n",
    );
    for row in figures.rows.iter().filter(sessions) {
        let mut name = row.name.as_str();
        for host in &row.hosts {
            let (run, per_second) = (&host.run, grouped(host.run.per_second));
            let (peak, threads, to_one) = (run.peak_mb, run.threads, part(host.to_one));
            writeln!(text, "| {name} | {} | {per_second} | {to_one} | {peak:.1} | {threads:.2} |", host.host)
                .ok();
            name = "";
        }
    }
    text.push_str("\n| what | figure |\n|---|--:|\n");
    if let (Some(all), Some(tool)) = (figures.allocations, figures.tool_allocations) {
        writeln!(text, "| allocations for a call, 64 in flight | {all:.1} |").ok();
        writeln!(text, "| of which the tool's own: the text of its arguments | {tool:.1} |").ok();
    }
    if let Some(held) = &figures.held {
        for (what, bytes) in [
            ("an idle session", held.session),
            ("an idle server", held.server),
            ("a call in flight", held.call),
        ] {
            writeln!(text, "| {what}, on the heap | {} bytes |", grouped(bytes as f64)).ok();
        }
    }
    if let Some(recovered) = &figures.recovered {
        writeln!(text, "| the death of a server to its next answer, p50 | {:.0} µs |", recovered.server_us)
            .ok();
        writeln!(text, "| the death of the CLI to the resumed session, p50 | {:.0} µs |", recovered.cli_us)
            .ok();
    }
    text
}
