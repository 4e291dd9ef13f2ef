//! The figures as a picture: a bar of the calls per second for each host of each row. The picture has a background of
//! its own, so that it can be read on dark pages too.

use std::fmt::Write as _;

use super::report::{Figures, HostRow};

const ROWS: &[&str] = &["64 B, 1 in flight", "64 B, 64 in flight", "256 KiB, 64 in flight"];

const WIDTH: f64 = 760.0;
const LABEL: f64 = 160.0;
const BAR: f64 = 16.0;
const GAP: f64 = 20.0;

fn colour(host: &str) -> &'static str {
    match host {
        "greenroom" => "#2f855a",
        "limit" => "#cbd5e0",
        _ => "#90a4bd",
    }
}

/// Each row scaled to its own fastest host.
pub(crate) fn draw(figures: &Figures) -> String {
    let rows: Vec<_> = figures.rows.iter().filter(|row| ROWS.contains(&row.name.as_str())).collect();
    let height = rows.iter().map(|row| row.hosts.len() as f64 * BAR + GAP).sum::<f64>() + 44.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#1a202c\">\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#ffffff\" stroke=\"#cbd5e0\"/>\n\
         <text x=\"14\" y=\"24\" font-size=\"14\" font-weight=\"600\">Tool calls per second over one pipe</text>\n",
        WIDTH - 1.0,
        height - 1.0,
    );
    let mut y = 44.0;
    for row in rows {
        let most = row.hosts.iter().map(|host| host.run.per_second).fold(0.0, f64::max);
        let middle = y + row.hosts.len() as f64 * BAR / 2.0 + 4.0;
        // Writing to a `String` does not fail.
        writeln!(svg, "<text x=\"14\" y=\"{middle}\">{}</text>", row.name).ok();
        for HostRow { host, run, .. } in &row.hosts {
            let width = (WIDTH - LABEL - 170.0) * run.per_second / most;
            let (text_x, text_y) = (LABEL + width + 6.0, y + BAR - 4.0);
            let weight = if host == "greenroom" { "600" } else { "400" };
            writeln!(
                svg,
                "<rect x=\"{LABEL}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>\
                 <text x=\"{text_x:.1}\" y=\"{text_y}\" font-weight=\"{weight}\">{host} {:.0}</text>",
                BAR - 3.0,
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
