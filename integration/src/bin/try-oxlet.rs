//! `try-oxlet`: what `make run` starts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use integration::try_node::{self, Until};

/// Runs the agent with the sample pod on the best runtime of this machine, and shows it.
#[derive(Debug, Parser)]
struct Arguments {
    /// Ends by itself at this point; otherwise Ctrl-C ends it.
    #[arg(long, value_enum)]
    until: Option<Point>,
    /// Where the node lives; target/try unless named. It is removed at the end.
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Point {
    /// When everything has been shown.
    Shown,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let until = match arguments.until {
        Some(Point::Shown) => Until::Shown,
        None => Until::Interrupted,
    };
    match try_node::run(until, arguments.folder).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("try-oxlet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
