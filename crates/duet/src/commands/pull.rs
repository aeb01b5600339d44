//! `duet pull`: a model's path on stdout, after downloading it if need be.

use crate::cli::PullArgs;
use crate::failure::print;
use crate::models;

pub(super) fn pull(arguments: &PullArgs) -> anyhow::Result<()> {
    let path = models::locate(&arguments.model)?;
    print(&format!("{}\n", path.display()))
}
