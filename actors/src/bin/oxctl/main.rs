//! `oxctl`: what the operator asks the agent, over its admin socket.

mod agent;
mod show;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::agent::{Agent, Method, Trouble};

/// Looks into a running Oxlet, and tells it what to do.
#[derive(Debug, Parser)]
#[command(name = "oxctl", version)]
struct Arguments {
    /// The agent's admin socket
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/oxlet/admin.sock"
    )]
    socket: PathBuf,
    /// A table for people, or JSON for programs
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows every supervisor and actor
    Tree,
    /// Shows the plugins
    Plugins,
    /// Restarts a plugin, or swaps it for another one
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Shows the pods of this node
    Pods,
    /// Shows the images that are pulled, wait, or back off
    Images,
    /// Shows the volumes of this node's pods, and what hangs
    Volumes,
    /// Shows what happened
    Events {
        /// And what happens from now on
        #[arg(short, long)]
        follow: bool,
    },
    /// Explains what was done about a pod, and what it waits for
    Why {
        /// Its UID, name or namespace/name
        pod: String,
    },
    /// Writes a running container's state into an archive on the node, and prints its path
    Checkpoint {
        /// Its pod's UID, name or namespace/name
        pod: String,
        container: String,
        /// Seconds that it may take, where the runtime's usual time is too short
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        timeout: u32,
    },
    /// Breaks an actor on purpose
    #[command(hide = true)]
    Fault {
        fault: Fault,
        /// As `oxctl tree -o json` spells it
        path: String,
    },
    /// Shows the versions of agent and oxctl
    Version,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Drains a plugin, ends it and starts it again
    Restart { name: String },
    /// Replaces the plugin of a kind (runtime) by another declared one
    Swap { kind: String, name: String },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Fault {
    Panic,
    Hang,
}

/// The runtime's usual time is the agent's to know; this is surely longer.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => Err(Trouble::Output(error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads us has read enough.
        Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            drop(writeln!(io::stderr(), "oxctl: {trouble}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Trouble> {
    let agent = Agent::at(&arguments.socket);
    let output = arguments.output;
    let (method, path) = match &arguments.command {
        Command::Events { follow: true } => return show::follow(&agent, output).await,
        Command::Events { follow: false } => (Method::GET, "/events".to_owned()),
        Command::Tree => (Method::GET, "/tree".to_owned()),
        Command::Plugins => (Method::GET, "/plugins".to_owned()),
        Command::Pods => (Method::GET, "/pods".to_owned()),
        Command::Images => (Method::GET, "/images".to_owned()),
        Command::Volumes => (Method::GET, "/volumes".to_owned()),
        Command::Version => (Method::GET, "/version".to_owned()),
        Command::Why { pod } => (Method::GET, format!("/why/{}", agent::encoded(pod))),
        Command::Plugin(PluginCommand::Restart { name }) => (
            Method::POST,
            format!("/plugins/{}/restart", agent::encoded(name)),
        ),
        Command::Plugin(PluginCommand::Swap { kind, name }) => {
            let (kind, name) = (agent::encoded(kind), agent::encoded(name));
            (Method::POST, format!("/plugins/{kind}/swap?to={name}"))
        }
        Command::Checkpoint {
            pod,
            container,
            timeout,
        } => {
            let (pod, container) = (agent::encoded(pod), agent::encoded(container));
            let path = format!("/checkpoint/{pod}/{container}?timeout={timeout}");
            (Method::POST, path)
        }
        Command::Fault { fault, path } => {
            let fault = match fault {
                Fault::Panic => "panic",
                Fault::Hang => "hang",
            };
            (
                Method::POST,
                format!("/faults?fault={fault}&path={}", agent::encoded(path)),
            )
        }
    };
    let answer = if let Command::Checkpoint { timeout, .. } = arguments.command {
        let within = CHECKPOINT_WITHIN + Duration::from_secs(timeout.into());
        agent.ask_within(within, method, &path).await?
    } else {
        agent.ask(method, &path).await?
    };
    let text = match output {
        Output::Json => show::json(&answer)?,
        Output::Table => shown(&arguments.command, &answer)?,
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(Trouble::Output)
}

fn shown(command: &Command, answer: &[u8]) -> Result<String, Trouble> {
    let now = show::now();
    match command {
        Command::Tree => show::tree(answer),
        Command::Plugins => show::plugins(answer, now),
        Command::Plugin(_) => show::generation(answer),
        Command::Checkpoint { .. } => show::archives(answer),
        Command::Pods => show::pods(answer, now),
        Command::Images => show::images::table(answer, now),
        Command::Volumes => show::volumes::table(answer),
        Command::Events { .. } => show::events(answer, now),
        Command::Why { .. } => show::why(answer, now),
        Command::Fault { .. } => Ok("done\n".to_owned()),
        Command::Version => show::version(answer),
    }
}
