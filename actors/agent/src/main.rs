//! `oxlet`: the node agent.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use agent::settings::AgentSettings;
use agent::{logging, tree};
use config::{HostFacts, Invocation, NodeConfig};
use kernel::error_chain;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    match config::load(arguments, &HostFacts::detect()) {
        Ok(Invocation::Run(config)) => run(config),
        Ok(Invocation::Print(text)) => {
            // The reader closed the pipe: it has read enough.
            drop(std::io::stdout().write_all(text.as_bytes()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            drop(writeln!(
                std::io::stderr(),
                "oxlet: {}",
                error_chain(&error)
            ));
            ExitCode::FAILURE
        }
    }
}

fn run(config: Box<NodeConfig>) -> ExitCode {
    if let Err(error) = logging::start(&config.kubelet.logging) {
        drop(writeln!(std::io::stderr(), "oxlet: no log: {error}"));
        return ExitCode::FAILURE;
    }
    let settings = AgentSettings::new(config);
    if let Err(why) = settings.check() {
        return failed(format_args!("cannot run with these settings: {why}"));
    }
    match kernel::system::run(tree::run(settings)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failed(format_args!("{error:#}")),
        Err(error) => failed(format_args!("{}", error_chain(&error))),
    }
}

fn failed(error: fmt::Arguments<'_>) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::FAILURE
}
