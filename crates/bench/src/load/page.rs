//! The report as one HTML page that needs nothing else.

use super::section::{Bound, Section, Target};
use crate::html::{document, escape, number};
use serde_json::Value;
use std::fmt::Write;

/// The page of `sections`.
pub(crate) fn page(title: &str, sections: &[Section]) -> String {
    let parts: String = sections.iter().map(section_part).collect();
    document(title, &(targets_table(sections) + &parts))
}

fn targets_table(sections: &[Section]) -> String {
    let mut table =
        "<table><thead><tr><th>figure</th><th>aim</th><th>measured</th><th></th></tr></thead><tbody>\n".to_owned();
    for section in sections {
        let _ = writeln!(
            table,
            "<tr><th colspan=\"4\"><a href=\"#{}\">{}</a> (n {})</th></tr>",
            section.name,
            escape(section.title),
            section.n
        );
        for target in &section.targets {
            table += &target_row(target);
        }
    }
    table + "</tbody></table>\n"
}

fn target_row(target: &Target) -> String {
    let sign = match target.bound {
        Bound::AtMost => "≤",
        Bound::AtLeast => "≥",
    };
    let (class, word) = match target.met {
        Some(true) => ("met", "met"),
        Some(false) => ("missed", "missed"),
        None => ("absent", "not measured"),
    };
    let value = target.value.map_or("–".to_owned(), number);
    format!(
        "<tr><td>{}</td><td>{sign} {}</td><td>{value}</td><td class=\"{class}\">{word}</td></tr>\n",
        escape(&target.figure),
        number(target.limit)
    )
}

fn section_part(section: &Section) -> String {
    let mut part = format!(
        "<section id=\"{}\"><h2>{}</h2><p>{}</p><p class=\"settings\">{}; n {}; took {:.0} s</p>\n",
        section.name,
        escape(section.title),
        escape(section.about),
        escape(&inline(&section.settings)),
        section.n,
        section.took_s
    );
    for plot in &section.plots {
        let _ = writeln!(part, "<figure>{}<figcaption>{}</figcaption></figure>", plot.svg, escape(&plot.caption));
    }
    part += &figures(&section.figures);
    for missing in &section.not_measured {
        let _ = writeln!(part, "<p class=\"absent\">Not measured: {}</p>", escape(missing));
    }
    part + "</section>\n"
}

/// A list of objects is a table; an object is rows of name and value.
fn figures(value: &Value) -> String {
    match value {
        Value::Array(rows) if rows.iter().all(Value::is_object) => table_of(rows),
        Value::Object(fields) => {
            let mut plain = String::new();
            let mut nested = String::new();
            for (name, value) in fields {
                match value {
                    Value::Null => {}
                    Value::Object(_) => {
                        nested += &format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(&inline(value)))
                    }
                    Value::Array(rows) if !rows.is_empty() && rows.iter().all(Value::is_object) => {
                        nested += &format!("<tr><td colspan=\"2\">{}{}</td></tr>\n", escape(name), table_of(rows));
                    }
                    value => {
                        plain += &format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(&inline(value)))
                    }
                }
            }
            format!("<table><tbody>\n{plain}{nested}</tbody></table>\n")
        }
        value => format!("<p>{}</p>\n", escape(&inline(value))),
    }
}

/// Objects within the rows become columns of their own.
fn table_of(rows: &[Value]) -> String {
    let rows: Vec<Vec<(String, String)>> = rows.iter().map(|row| flat("", row)).collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let head: String = columns.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let cell = |row: &[(String, String)], column: &str| {
        let value = row.iter().find(|(name, _)| name == column).map_or("–", |(_, value)| value);
        format!("<td>{}</td>", escape(value))
    };
    let body: String = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", columns.iter().map(|column| cell(row, column)).collect::<String>()))
        .collect();
    format!("<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n")
}

fn flat(prefix: &str, value: &Value) -> Vec<(String, String)> {
    let Value::Object(fields) = value else { return Vec::new() };
    let named = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix} {name}") };
    let field = |(name, value): (&String, &Value)| match value {
        Value::Object(_) => flat(&named(name), value),
        value => vec![(named(name), inline(value))],
    };
    fields.iter().flat_map(field).collect()
}

/// On one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(value) => if *value { "yes" } else { "no" }.to_owned(),
        Value::Number(value) => value.as_f64().map_or_else(|| value.to_string(), number),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(inline).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name} {}", inline(value))).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_well_formed;
    use crate::load::section::Plot;
    use serde_json::json;

    fn section(name: &'static str) -> Section {
        Section {
            name,
            title: "A <title>",
            about: "What & how.",
            settings: json!({"policy": "duet"}),
            n: 7,
            figures: json!({"n": 7, "rows": [{"a": 1, "b": {"c": 0.123456}}, {"a": 2}], "nothing": null}),
            targets: vec![
                Target::at_most("ratio", 1.15, Some(1.05)),
                Target::at_most("worse", 1.15, Some(1.25)),
                Target::at_least("absent", 0.9, None),
            ],
            not_measured: Vec::new(),
            took_s: 1.0,
            plots: vec![Plot { caption: "c".into(), svg: "<svg></svg>".into() }],
        }
        .note_missing()
    }

    #[test]
    fn the_page_is_well_formed_and_has_every_section() {
        let page = page("duet & load", &[section("one"), section("two")]);
        assert_well_formed(&page);
        for part in ["id=\"one\"", "id=\"two\"", "A &lt;title&gt;", "duet &amp; load", "0.1235", "<svg>", "<td>–</td>"]
        {
            assert!(page.contains(part), "{part} in {page}");
        }
        for (word, count) in [(">met<", 2), (">missed<", 2), (">not measured<", 2), ("Not measured: absent", 2)] {
            assert_eq!(page.matches(word).count(), count, "{word}");
        }
    }
}
