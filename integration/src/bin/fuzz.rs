//! `fuzz SECONDS`: every fuzz target for so many seconds; what is found is kept under target/fuzz.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::Parser;
use integration::fuzz::{self, Outcome, Run, Target};

/// Feeds the agent's readers with broken input and looks for panics, deaths and hangs.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long each target runs, in seconds.
    #[arg(default_value_t = 20)]
    seconds: u64,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// Repeats the run that printed this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs the target in this process.
    #[arg(long, hide = true, requires = "target")]
    here: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let run = Run {
        lasting: Duration::from_secs(arguments.seconds),
        seed: arguments.seed.unwrap_or_else(any_seed),
        folder: folder()?,
    };
    let wanted = |target: &Target| {
        arguments
            .target
            .as_deref()
            .is_none_or(|name| name == target.name)
    };
    let targets: Vec<Target> = fuzz::all().into_iter().filter(wanted).collect();
    anyhow::ensure!(!targets.is_empty(), "no such target");
    let outcomes = match arguments.here {
        true => targets
            .iter()
            .map(|target| target.run(&run))
            .collect::<Result<Vec<_>>>()?,
        false => watched(&targets, &run)?,
    };
    let sound = outcomes.iter().all(|outcome| outcome.found.is_empty());
    if arguments.here {
        show(&outcomes)?;
    }
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(fuzz::FOUND)
    })
}

#[tokio::main(flavor = "current_thread")]
async fn watched(targets: &[Target], run: &Run) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for target in targets {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command
            .arg(run.lasting.as_secs().to_string())
            .args(["--here", "--target", target.name]);
        command.arg(format!("--seed={}", run.seed));
        let outcome = fuzz::watch(target, run, command).await?;
        show(std::slice::from_ref(&outcome))?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn show(outcomes: &[Outcome]) -> Result<()> {
    let mut out = std::io::stdout();
    for outcome in outcomes {
        writeln!(out, "{}", outcome.said)?;
        for (path, why) in &outcome.found {
            writeln!(out, "  FOUND {}: {why}", path.display())?;
        }
    }
    Ok(())
}

fn any_seed() -> u64 {
    let since = kernel::wall()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}

/// `target/fuzz`, beside the folder of this program.
fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(|profile| profile.parent());
    Ok(target.context("a program without a folder")?.join("fuzz"))
}
