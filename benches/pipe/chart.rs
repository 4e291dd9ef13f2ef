//! The figures as a picture: calls per second of each host, in a bar for each row.

use std::fmt::Write as _;

use super::report::{Figures, HostRow};

const WIDTH: f64 = 760.0;
const LABEL: f64 = 250.0;
const BAR: f64 = 14.0;
const GAP: f64 = 18.0;

fn colour(host: &str) -> &'static str {
    match host {
        "greenroom" => "#2f855a",
        "tokio" => "#718096",
        _ => "#cbd5e0",
    }
}

/// The rows that have all hosts, each scaled to its own fastest one.
pub(crate) fn draw(figures: &Figures) -> String {
    let rows: Vec<_> = figures.rows.iter().filter(|row| row.hosts.len() > 1).collect();
    let height = rows.iter().map(|row| row.hosts.len() as f64 * BAR + GAP).sum::<f64>() + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"13\">Calls per second; each group is scaled to its fastest host</text>\n"
    );
    let mut y = 34.0;
    for row in rows {
        let most = row.hosts.iter().map(|host| host.run.per_second).fold(0.0, f64::max);
        let middle = y + row.hosts.len() as f64 * BAR / 2.0 + 4.0;
        // Writing to a `String` does not fail.
        writeln!(svg, "<text x=\"10\" y=\"{middle}\">{}</text>", row.name).ok();
        for HostRow { host, run, .. } in &row.hosts {
            let width = (WIDTH - LABEL - 150.0) * run.per_second / most;
            let (text_x, text_y) = (LABEL + width + 6.0, y + BAR - 3.0);
            writeln!(
                svg,
                "<rect x=\"{LABEL}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>\
                 <text x=\"{text_x:.1}\" y=\"{text_y}\">{host} {:.0}</text>",
                BAR - 2.0,
                colour(host),
                run.per_second
            )
            .ok();
            y += BAR;
        }
        y += GAP;
    }
    svg.push_str("</svg>\n");
    svg
}
