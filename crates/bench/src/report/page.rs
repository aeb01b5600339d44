//! The report as one HTML page that needs nothing else.

use super::row::Row;
use super::section::{Entry, Section, Table};
use super::shown::{deviation, expected, met, predicted};
use crate::html::{document, escape, number};
use std::fmt::Write;

/// The page of some sections; `lead` are paragraphs before them.
pub(crate) fn page(title: &str, lead: &[String], sections: &[Section]) -> String {
    let mut body = paragraphs(lead);
    body += "<ul>\n";
    for section in sections {
        let _ = writeln!(body, "<li><a href=\"#{}\">{}</a></li>", section.id, escape(section.title));
    }
    body += "</ul>\n";
    body.extend(sections.iter().map(part));
    document(title, &body)
}

fn part(section: &Section) -> String {
    let mut part = format!("<section id=\"{}\"><h2>{}</h2>\n", section.id, escape(section.title));
    part += &paragraphs(&section.prose);
    if !section.rows.is_empty() {
        part += &rows(&section.rows);
    }
    for plot in &section.plots {
        let _ = writeln!(part, "<figure>{}<figcaption>{}</figcaption></figure>", plot.svg, escape(&plot.caption));
    }
    part.extend(section.tables.iter().map(table));
    part + "</section>\n"
}

fn paragraphs(texts: &[String]) -> String {
    texts.iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect()
}

fn rows(rows: &[Row]) -> String {
    let loaded = rows.iter().any(|row| row.baseline().is_some());
    let mut table =
        "<div class=\"wide\"><table><thead><tr><th></th><th>setting</th><th>quantity</th><th>paper, or aim</th>\
                     <th>predicted</th><th>from, to</th><th>deviation</th>"
            .to_owned();
    table += if loaded { "<th>baseline busy, drain</th></tr></thead><tbody>\n" } else { "</tr></thead><tbody>\n" };
    for row in rows {
        table += &line(row, loaded);
    }
    table + "</tbody></table></div>\n"
}

fn line(row: &Row, loaded: bool) -> String {
    let quantity = row.noted().map_or(row.quantity().to_owned(), |note| format!("{} ({note})", row.quantity()));
    let mut line =
        format!("<tr><td>{}</td><td>{}</td><td>{}</td>", row.figure(), escape(row.setting()), escape(&quantity));
    let _ = write!(line, "<td>{}</td>", escape(&expected(row)));
    let _ = write!(line, "<td>{}</td>", predicted(row));
    let spread = row.estimate().map(|estimate| format!("{} to {}", number(estimate.low), number(estimate.high)));
    let _ = write!(line, "<td>{}</td>", spread.as_deref().unwrap_or("–"));
    line += &verdict(row);
    if loaded {
        let load = row.baseline().map(|load| format!("{:.0} %, {:.0} s", load.utilisation, load.drain_s));
        let _ = write!(line, "<td>{}</td>", load.as_deref().unwrap_or("–"));
    }
    line + "</tr>\n"
}

/// How far from the paper, or whether the aim is met.
fn verdict(row: &Row) -> String {
    if let Some(deviation) = deviation(row) {
        return format!("<td>{deviation}</td>");
    }
    match met(row) {
        Some(true) => "<td class=\"met\">met</td>".to_owned(),
        Some(false) => "<td class=\"missed\">missed</td>".to_owned(),
        None => "<td>–</td>".to_owned(),
    }
}

fn table(table: &Table) -> String {
    let head: String = table.head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let row = |row: &Vec<Entry>| format!("<tr>{}</tr>\n", row.iter().map(entry).collect::<String>());
    let body: String = table.rows.iter().map(row).collect();
    format!(
        "<p class=\"settings\">{}</p>\n<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\
         </tbody></table></div>\n",
        escape(&table.caption)
    )
}

fn entry(entry: &Entry) -> String {
    match entry {
        Entry::Plain(text) => format!("<td>{}</td>", escape(text)),
        Entry::Flagged(text) => format!("<td class=\"missed\">{}</td>", escape(text)),
        Entry::Chosen(text) => format!("<td class=\"met\">{}</td>", escape(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_well_formed;
    use crate::report::row::{Paper, Unit};
    use crate::report::section::Plot;

    #[test]
    fn the_page_holds_what_the_sections_say() {
        let row = Row::new("Fig. 11", "3B <b>", "mean", Unit::Percent).paper(Paper::Between(-2.0, 1.0));
        let mut table = Table::new("a & b", &["x", "y"]);
        table.push(vec![Entry::text("1"), Entry::Flagged("flips".into())]);
        let section = Section {
            id: "one",
            title: "One & all",
            prose: vec!["What < how.".into()],
            rows: vec![row],
            tables: vec![table],
            plots: vec![Plot { caption: "c".into(), svg: "<svg></svg>".into() }],
        };
        let page = page("t", &["lead".into()], &[section]);
        assert_well_formed(&page);
        for part in
            ["href=\"#one\"", "id=\"one\"", "3B &lt;b&gt;", "-2 to 1 %", "a &amp; b", "class=\"missed\">flips", "<svg>"]
        {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
