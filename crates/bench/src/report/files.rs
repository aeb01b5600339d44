//! The two files of a report. They are opened before anything is run.

use super::ReportError;
use super::page;
use super::row::Row;
use super::section::Section;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// `index.html` and `report.json` in a directory, open.
#[derive(Debug)]
pub(super) struct Files {
    page: (PathBuf, File),
    rows: (PathBuf, File),
}

impl Files {
    /// Opens both; the directory is made if need be.
    pub(super) fn open(directory: &Path) -> Result<Self, ReportError> {
        let out =
            |path: &Path, error: std::io::Error| ReportError::Out { path: path.into(), problem: error.to_string() };
        std::fs::create_dir_all(directory).map_err(|error| out(directory, error))?;
        let open = |name: &str| {
            let path = directory.join(name);
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            file.map_err(|error| out(&path, error)).map(|file| (path, file))
        };
        Ok(Self { page: open("index.html")?, rows: open("report.json")? })
    }

    /// Writes a page of some sections, and their rows, which it returns.
    pub(super) fn write(self, title: &str, lead: &[String], sections: &[Section]) -> Result<Vec<Row>, ReportError> {
        let rows: Vec<Row> = sections.iter().flat_map(|section| section.rows.clone()).collect();
        write(self.page, &page::page(title, lead, sections))?;
        write(self.rows, &lines(&rows))?;
        Ok(rows)
    }
}

/// The rows as an array, one a line.
fn lines(rows: &[Row]) -> String {
    let lines: Vec<String> = rows.iter().map(|row| row.json().to_string()).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn write((path, mut file): (PathBuf, File), text: &str) -> Result<(), ReportError> {
    let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
    written.map_err(|error| ReportError::Write { path, problem: error.to_string() })
}
