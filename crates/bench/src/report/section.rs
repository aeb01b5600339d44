//! A section of the report: what was asked, what came out, and what it means.

use super::row::Row;

/// A part of the page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// Its name, short.
    pub(crate) id: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// Paragraphs: definitions, and where a prediction differs and why.
    pub(crate) prose: Vec<String>,
    /// The figures that go to `report.json`.
    pub(crate) rows: Vec<Row>,
    /// What else there is to see.
    pub(crate) tables: Vec<Table>,
    /// Curves and bars.
    pub(crate) plots: Vec<Plot>,
}

/// A table of the page alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// What it shows.
    pub(crate) caption: String,
    /// Names of its columns.
    pub(crate) head: Vec<String>,
    /// As many entries in each as there are columns.
    pub(crate) rows: Vec<Vec<Entry>>,
}

/// A place in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// As any other.
    Plain(String),
    /// To be seen: a conclusion that does not hold.
    Flagged(String),
    /// To be seen: the one that was chosen.
    Chosen(String),
}

/// A drawing.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// What it shows.
    pub(crate) caption: String,
    /// The drawing.
    pub(crate) svg: String,
}

impl Table {
    /// With these columns.
    pub(crate) fn new(caption: impl Into<String>, head: &[&str]) -> Self {
        Self { caption: caption.into(), head: head.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// A row more.
    pub(crate) fn push(&mut self, row: Vec<Entry>) {
        self.rows.push(row);
    }
}

impl Entry {
    /// A number with `decimals` decimals; a dash if there is none.
    pub(crate) fn number(value: Option<f64>, decimals: usize) -> Self {
        Self::Plain(value.map_or("–".to_owned(), |value| format!("{value:.decimals$}")))
    }

    /// The same, as the one that was chosen.
    pub(crate) fn chosen(self) -> Self {
        match self {
            Self::Plain(text) | Self::Flagged(text) | Self::Chosen(text) => Self::Chosen(text),
        }
    }

    /// The same, as one that does not hold.
    pub(crate) fn flagged(self) -> Self {
        match self {
            Self::Plain(text) | Self::Flagged(text) | Self::Chosen(text) => Self::Flagged(text),
        }
    }

    /// Some words.
    pub(crate) fn text(text: impl ToString) -> Self {
        Self::Plain(text.to_string())
    }
}

impl Plot {
    /// A drawing, if there is anything to draw.
    pub(crate) fn of(caption: impl Into<String>, svg: Option<String>) -> Option<Self> {
        Some(Self { caption: caption.into(), svg: svg? })
    }
}
