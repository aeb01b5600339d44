//! A row as people read it: on the page and on a terminal.

use super::row::{Aim, Paper, Row, Unit};
use crate::html::number;
use std::fmt;

/// What the paper says.
pub(crate) fn paper(row: &Row) -> Option<String> {
    let suffix = row.unit().suffix();
    Some(match row.told()? {
        Paper::Is(value) => number(value) + suffix,
        Paper::Between(low, high) => format!("{} to {}{suffix}", number(low), number(high)),
        Paper::AtMost(value) => format!("≤ {}{suffix}", number(value)),
        Paper::AtLeast(value) => format!("≥ {}{suffix}", number(value)),
    })
}

/// What is aimed for.
pub(crate) fn aim(row: &Row) -> Option<String> {
    let sign = match row.aimed()? {
        Aim::AtMost(_) => "≤",
        Aim::Below(_) => "<",
    };
    Some(format!("aim {sign} {}{}", number(row.aimed()?.limit()), row.unit().suffix()))
}

/// What the paper says, or else what is aimed for.
pub(crate) fn expected(row: &Row) -> String {
    paper(row).or_else(|| aim(row)).unwrap_or("–".to_owned())
}

/// What was predicted.
pub(crate) fn predicted(row: &Row) -> String {
    row.estimate().map_or("–".to_owned(), |estimate| number(estimate.value) + row.unit().suffix())
}

/// How far from the paper.
pub(crate) fn deviation(row: &Row) -> Option<String> {
    let unit = if row.unit() == Unit::Percent { " points" } else { row.unit().suffix() };
    row.deviation().map(|deviation| match deviation {
        0.0 => "none".to_owned(),
        deviation => format!("{}{}{unit}", if deviation > 0.0 { "+" } else { "" }, number(deviation)),
    })
}

/// Whether what is aimed for was met.
pub(crate) fn met(row: &Row) -> Option<bool> {
    row.aimed().zip(row.estimate()).map(|(aim, estimate)| aim.met(estimate.value))
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}, {}: {}", self.figure(), self.setting(), self.quantity());
        write!(f, "{name}: {}", predicted(self))?;
        if let Some(paper) = paper(self) {
            write!(f, " (paper {paper}, deviation {})", deviation(self).as_deref().unwrap_or("–"))?;
        }
        match aim(self).zip(met(self)) {
            Some((aim, true)) => write!(f, " ({aim}: met)"),
            Some((aim, false)) => write!(f, " ({aim}: missed)"),
            None => Ok(()),
        }
    }
}
