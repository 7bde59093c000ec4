//! The bars that this project has set itself, and where a run stands: from the JSON lines of the measurements.

mod plot;
mod results;
mod rows;
mod table;

use crate::cli::ReportArgs;
use anyhow::Context as _;
use results::Results;
use std::{fs, path::Path};

/// Prints the table, and writes it and the plots where they are wanted.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let results = Results::read(&args.file)?;
    let rows = rows::all(&results);
    println!("{}", table::text(&results, &rows));
    if let Some(path) = &args.markdown {
        write(path, &table::markdown(&results, &rows))?;
    }
    if let Some(directory) = &args.plots {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        for (name, svg) in plot::all(&results) {
            write(&directory.join(name), &svg)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    println!("written: {}", path.display());
    Ok(())
}
