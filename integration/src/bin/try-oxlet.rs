//! `try-oxlet`: what `make run` starts.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use integration::try_node::{self, Until};

/// Runs the agent with the sample pod on the best runtime of this machine, and shows it.
#[derive(Debug, Parser)]
struct Arguments {
    /// Ends by itself at this point; otherwise Ctrl-C ends it.
    #[arg(long, value_enum)]
    until: Option<Point>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Point {
    /// When everything has been shown.
    Shown,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let until = match Arguments::parse().until {
        Some(Point::Shown) => Until::Shown,
        None => Until::Interrupted,
    };
    match try_node::run(until).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("try-oxlet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
