//! `oxctl`: what the operator asks the agent, over its admin socket.

mod agent;
mod show;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::agent::{AgentClient, AgentError, Method};

/// Looks into a running Oxlet, and tells it what to do.
#[derive(Debug, Parser)]
#[command(name = "oxctl", version)]
struct OxctlArguments {
    /// The agent's admin socket
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/oxlet/admin.sock"
    )]
    socket: PathBuf,
    /// A table for people, or JSON for programs
    #[arg(short, long, global = true, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(subcommand)]
    command: OxctlCommand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
enum OxctlCommand {
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
        fault: FaultArgument,
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
    ///
    /// Another runtime doesn't know the pods that run: the command tells which of them would end first, and does nothing more
    /// unless --end-pods is given. Then it waits until they may start in the new one.
    Swap {
        kind: String,
        name: String,
        /// End the pods in the old runtime, each within its grace period, if the new one doesn't know them
        #[arg(long)]
        end_pods: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FaultArgument {
    Panic,
    Hang,
}

/// Only the agent knows how long a checkpoint may take, or the end of all pods; this is certainly longer.
const LONG_TIMEOUT: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let arguments = OxctlArguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => Err(AgentError::Output(error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe: it has read enough.
        Err(AgentError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            drop(writeln!(io::stderr(), "oxctl: {trouble}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &OxctlArguments) -> Result<(), AgentError> {
    let agent = AgentClient::at(&arguments.socket);
    let output = arguments.output;
    let (method, path) = match &arguments.command {
        OxctlCommand::Events { follow: true } => return show::follow(&agent, output).await,
        OxctlCommand::Events { follow: false } => (Method::GET, "/events".to_owned()),
        OxctlCommand::Tree => (Method::GET, "/tree".to_owned()),
        OxctlCommand::Plugins => (Method::GET, "/plugins".to_owned()),
        OxctlCommand::Pods => (Method::GET, "/pods".to_owned()),
        OxctlCommand::Images => (Method::GET, "/images".to_owned()),
        OxctlCommand::Volumes => (Method::GET, "/volumes".to_owned()),
        OxctlCommand::Version => (Method::GET, "/version".to_owned()),
        OxctlCommand::Why { pod } => (Method::GET, format!("/why/{}", agent::encoded(pod))),
        OxctlCommand::Plugin(PluginCommand::Restart { name }) => (
            Method::POST,
            format!("/plugins/{}/restart", agent::encoded(name)),
        ),
        OxctlCommand::Plugin(PluginCommand::Swap {
            kind,
            name,
            end_pods,
        }) => {
            let (kind, name) = (agent::encoded(kind), agent::encoded(name));
            let path = format!("/plugins/{kind}/swap?to={name}");
            let plan = agent.ask(Method::GET, &path).await?;
            if output == OutputFormat::Table {
                print(&show::swap_plan(&plan)?)?;
            }
            (Method::POST, format!("{path}&endPods={end_pods}"))
        }
        OxctlCommand::Checkpoint {
            pod,
            container,
            timeout,
        } => {
            let (pod, container) = (agent::encoded(pod), agent::encoded(container));
            let path = format!("/checkpoint/{pod}/{container}?timeout={timeout}");
            (Method::POST, path)
        }
        OxctlCommand::Fault { fault, path } => {
            let fault = match fault {
                FaultArgument::Panic => "panic",
                FaultArgument::Hang => "hang",
            };
            (
                Method::POST,
                format!("/faults?fault={fault}&path={}", agent::encoded(path)),
            )
        }
    };
    let answer = match arguments.command {
        OxctlCommand::Checkpoint { timeout, .. } => {
            let within = LONG_TIMEOUT + Duration::from_secs(timeout.into());
            agent.ask_with_timeout(within, method, &path).await?
        }
        OxctlCommand::Plugin(PluginCommand::Swap { .. }) => {
            agent.ask_with_timeout(LONG_TIMEOUT, method, &path).await?
        }
        _ => agent.ask(method, &path).await?,
    };
    let text = match output {
        OutputFormat::Json => show::json(&answer)?,
        OutputFormat::Table => shown(&arguments.command, &answer)?,
    };
    print(&text)
}

fn print(text: &str) -> Result<(), AgentError> {
    let mut out = io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(AgentError::Output)
}

fn shown(command: &OxctlCommand, answer: &[u8]) -> Result<String, AgentError> {
    let now = show::now();
    match command {
        OxctlCommand::Tree => show::tree(answer),
        OxctlCommand::Plugins => show::plugins(answer, now),
        OxctlCommand::Plugin(_) => show::generation(answer),
        OxctlCommand::Checkpoint { .. } => show::archives(answer),
        OxctlCommand::Pods => show::pods(answer, now),
        OxctlCommand::Images => show::images::table(answer, now),
        OxctlCommand::Volumes => show::volumes::table(answer),
        OxctlCommand::Events { .. } => show::events(answer, now),
        OxctlCommand::Why { .. } => show::why(answer, now),
        OxctlCommand::Fault { .. } => Ok("done\n".to_owned()),
        OxctlCommand::Version => show::version(answer),
    }
}
