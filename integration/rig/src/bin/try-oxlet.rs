//! `try-oxlet`: what `make run` starts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use rig::try_node::{self, RuntimeChoice, StopAfter};

/// Runs the agent with the sample pod on the best runtime of this machine, and shows it.
#[derive(Debug, Parser)]
struct TryArguments {
    /// Ends by itself at this point; otherwise Ctrl-C ends it.
    #[arg(long, value_enum)]
    until: Option<StopPoint>,
    /// Where the node lives; target/try unless named. It is removed at the end.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The runtime; the best one of this machine unless named.
    #[arg(long, value_enum)]
    runtime: Option<NamedRuntime>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NamedRuntime {
    /// Ours, without a daemon.
    Native,
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
    let choice = match arguments.runtime {
        Some(NamedRuntime::Native) => RuntimeChoice::Native,
        None => RuntimeChoice::Best,
    };
    match try_node::run(until, arguments.folder, choice).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("try-oxlet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
