//! `oxctl`: what the operator asks the agent, over its admin socket.

mod agent;
mod console;
mod diagnose;
mod image;
#[cfg(test)]
mod manual;
mod output;
mod show;
mod table;
mod top;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::agent::{AgentClient, AgentError, Method};
use crate::output::{Output, OutputFormat};

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
    #[arg(short, long, global = true, default_value = "table", value_parser = output::format_parser())]
    output: Output,
    #[command(subcommand)]
    command: OxctlCommand,
}

#[derive(Debug, Subcommand)]
enum OxctlCommand {
    /// Shows the node live: tree, plugins, pods with their why and logs, volumes, images, pressure, events
    Console,
    /// Shows every supervisor and actor
    Tree,
    /// Shows the plugins
    Plugins,
    /// Restarts a plugin, or swaps it for another one
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Shows the pods of this node
    Pods,
    /// Shows what the agent, its plugins and the pods use of CPU and memory, again and again in a terminal
    Top(top::TopArguments),
    /// Shows the machine's CPUs and memory, and who has which to itself
    Cpus,
    /// Shows the devices of device plugins and of resource claims, and who has them
    Devices,
    /// Shows the images that are pulled, wait, or back off
    Images,
    /// Lists, pulls, removes, imports and exports images of the runtime
    Image(image::ImageArguments),
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
    /// Writes all that shows how the node does into one archive without secrets, whether or not the agent runs
    Diagnose(diagnose::DiagnoseArguments),
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
        Ok(runtime) => {
            let done = runtime.block_on(run(&arguments));
            // A read that hangs is not waited for.
            runtime.shutdown_background();
            done
        }
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
    let (command, output) = (&arguments.command, arguments.output.format());
    if let OxctlCommand::Events { follow: true } = command {
        return show::follow(&agent, output).await;
    }
    if let OxctlCommand::Console = command {
        return console::run(&agent).await;
    }
    if let OxctlCommand::Image(image) = command {
        return image::run(&agent, image, output).await;
    }
    if let OxctlCommand::Top(top) = command {
        return top::run(&agent, top, output).await;
    }
    if let OxctlCommand::Diagnose(wanted) = command {
        return diagnose::run(&agent, wanted, &arguments.output).await;
    }
    let (method, path) = request(command);
    if let OxctlCommand::Plugin(PluginCommand::Swap { .. }) = command
        && output == OutputFormat::Table
    {
        let plan = agent.ask(Method::GET, &path).await?;
        print(&show::swap_plan(&plan)?)?;
    }
    let answer = match timeout(command) {
        Some(within) => agent.ask_with_timeout(within, method, &path).await?,
        None => agent.ask(method, &path).await?,
    };
    let text = match output {
        OutputFormat::Json => show::json(&answer)?,
        OutputFormat::Table => shown(command, &answer)?,
    };
    print(&text)
}

/// What the agent is asked.
fn request(command: &OxctlCommand) -> (Method, String) {
    let get = |path: &str| (Method::GET, path.to_owned());
    let post = |path: String| (Method::POST, path);
    match command {
        OxctlCommand::Events { .. } => get("/events"),
        // What it asks for depends on what it shows.
        OxctlCommand::Console | OxctlCommand::Tree => get("/tree"),
        OxctlCommand::Plugins => get("/plugins"),
        OxctlCommand::Pods => get("/pods"),
        OxctlCommand::Top(_) => get("/top"),
        OxctlCommand::Cpus => get("/cpus"),
        OxctlCommand::Devices => get("/devices"),
        OxctlCommand::Images => get("/images"),
        // Its runtime is found there.
        OxctlCommand::Image(_) => get("/plugins"),
        OxctlCommand::Volumes => get("/volumes"),
        // An archive begins with it.
        OxctlCommand::Version | OxctlCommand::Diagnose(_) => get("/version"),
        OxctlCommand::Why { pod } => get(&format!("/why/{}", agent::encoded(pod))),
        OxctlCommand::Plugin(PluginCommand::Restart { name }) => {
            post(format!("/plugins/{}/restart", agent::encoded(name)))
        }
        OxctlCommand::Plugin(PluginCommand::Swap {
            kind,
            name,
            end_pods,
        }) => {
            let (kind, name) = (agent::encoded(kind), agent::encoded(name));
            post(format!("/plugins/{kind}/swap?to={name}&endPods={end_pods}"))
        }
        OxctlCommand::Checkpoint {
            pod,
            container,
            timeout,
        } => {
            let (pod, container) = (agent::encoded(pod), agent::encoded(container));
            post(format!("/checkpoint/{pod}/{container}?timeout={timeout}"))
        }
        OxctlCommand::Fault { fault, path } => {
            let fault = match fault {
                FaultArgument::Panic => "panic",
                FaultArgument::Hang => "hang",
            };
            let path = agent::encoded(path);
            post(format!("/faults?fault={fault}&path={path}"))
        }
    }
}

/// How long the answer may take; none for the usual time.
fn timeout(command: &OxctlCommand) -> Option<Duration> {
    match command {
        OxctlCommand::Checkpoint { timeout, .. } => {
            Some(LONG_TIMEOUT + Duration::from_secs((*timeout).into()))
        }
        OxctlCommand::Plugin(PluginCommand::Swap { .. }) => Some(LONG_TIMEOUT),
        OxctlCommand::Plugin(PluginCommand::Restart { .. })
        | OxctlCommand::Console
        | OxctlCommand::Tree
        | OxctlCommand::Plugins
        | OxctlCommand::Pods
        | OxctlCommand::Top(_)
        | OxctlCommand::Cpus
        | OxctlCommand::Devices
        | OxctlCommand::Images
        | OxctlCommand::Image(_)
        | OxctlCommand::Volumes
        | OxctlCommand::Events { .. }
        | OxctlCommand::Why { .. }
        | OxctlCommand::Fault { .. }
        | OxctlCommand::Diagnose(_)
        | OxctlCommand::Version => None,
    }
}

fn print(text: &str) -> Result<(), AgentError> {
    let mut out = io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(AgentError::Output)
}

fn shown(command: &OxctlCommand, answer: &[u8]) -> Result<String, AgentError> {
    let now = show::now();
    match command {
        OxctlCommand::Console | OxctlCommand::Tree => show::tree(answer),
        OxctlCommand::Plugins | OxctlCommand::Image(_) => show::plugins(answer, now),
        OxctlCommand::Plugin(_) => show::generation(answer),
        OxctlCommand::Checkpoint { .. } => show::archives(answer),
        OxctlCommand::Pods => show::pods(answer, now),
        OxctlCommand::Cpus => show::cpus::table(answer),
        OxctlCommand::Devices => show::cpus::devices(answer),
        OxctlCommand::Images => show::images::table(answer, now),
        OxctlCommand::Volumes => show::volumes::table(answer),
        OxctlCommand::Events { .. } => show::events(answer, now),
        OxctlCommand::Why { .. } => show::why(answer, now),
        OxctlCommand::Top(_) => show::json(answer),
        OxctlCommand::Fault { .. } => Ok("done\n".to_owned()),
        OxctlCommand::Version | OxctlCommand::Diagnose(_) => show::version(answer),
    }
}
