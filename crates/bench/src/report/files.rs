//! The two files of a report. That they can be written is found out before anything is run; each is written whole.

use super::ReportError;
use super::page;
use super::row::Row;
use super::section::Section;
use duet_files::WholeFile;
use std::io::Write;
use std::path::{Path, PathBuf};

/// `index.html` and `report.json` in a directory.
#[derive(Debug)]
pub(super) struct Files {
    page: PathBuf,
    rows: PathBuf,
}

impl Files {
    /// Tries both, which leaves nothing; the directory is made if need be.
    pub(super) fn open(directory: &Path) -> Result<Self, ReportError> {
        let out =
            |path: &Path, error: std::io::Error| ReportError::Out { path: path.into(), problem: error.to_string() };
        std::fs::create_dir_all(directory).map_err(|error| out(directory, error))?;
        let tried = |name: &str| {
            let path = directory.join(name);
            // Held until the end, an empty file would be left by who stops the program.
            WholeFile::begin(&path).map_err(|error| out(&path, error)).map(|_| path)
        };
        Ok(Self { page: tried("index.html")?, rows: tried("report.json")? })
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

fn write(path: PathBuf, text: &str) -> Result<(), ReportError> {
    let written = WholeFile::begin(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.commit()
    });
    written.map_err(|error| ReportError::Write { path, problem: error.to_string() })
}
