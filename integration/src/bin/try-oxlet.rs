//! `try-oxlet`: what `make run` starts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use integration::try_node::{self, StopAfter};

/// Runs the agent with the sample pod on the best runtime of this machine, and shows it.
#[derive(Debug, Parser)]
struct TryArguments {
    /// Ends by itself at this point; otherwise Ctrl-C ends it.
    #[arg(long, value_enum)]
    until: Option<StopPoint>,
    /// Where the node lives; target/try unless named. It is removed at the end.
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StopPoint {
    /// When everything has been shown.
    Shown,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = TryArguments::parse();
    let until = match arguments.until {
        Some(StopPoint::Shown) => StopAfter::Shown,
        None => StopAfter::Interrupted,
    };
    match try_node::run(until, arguments.folder).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("try-oxlet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
