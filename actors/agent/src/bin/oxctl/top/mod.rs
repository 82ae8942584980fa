//! `oxctl top`: what the agent, its plugins and the pods use, once or again and again.
//!
//! The agent tells counters of processes; two views of it make their rates. Pods have the agent's own rates, which are
//! measured anew for the first two views only: after that what others have measured counts, or a figure of ten seconds.

mod screen;
mod table;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::time::Duration;

use agent::endpoints::admin::TopView;
use clap::{Args, ValueEnum};
use serde_json::json;

use self::screen::Screen;
use crate::agent::{AgentClient, AgentError, Method};
use crate::output::OutputFormat;

/// Between the two views that make the first rates: as short as the agent measures again.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Of the pods' figures, in seconds: for the first two views, and for those after them.
const AGE_AT_FIRST: u64 = 1;
const AGE_LATER: u64 = 10;

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Print one table and end, as without a terminal
    #[arg(long)]
    once: bool,
    /// What the rows are sorted by, the largest first
    #[arg(long, value_enum, default_value_t = SortKey::Cpu)]
    sort: SortKey,
    /// Seconds between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Show each container of a pod
    #[arg(long)]
    containers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortKey {
    Cpu,
    Memory,
}

/// What a table shows of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodRows {
    Pods,
    Containers,
}

pub(crate) async fn run(
    agent: &AgentClient,
    arguments: &TopArguments,
    output: OutputFormat,
) -> Result<(), AgentError> {
    let first = view(agent, AGE_AT_FIRST).await?;
    let live = !arguments.once && output == OutputFormat::Table && io::stdout().is_terminal();
    if live {
        return watch(agent, arguments, first).await;
    }
    tokio::time::sleep(FIRST_INTERVAL).await;
    let second = rated(view(agent, AGE_AT_FIRST).await?, &first);
    let text = match output {
        OutputFormat::Json => format!("{:#}\n", json!(sorted(second, arguments.sort))),
        OutputFormat::Table => shown(second, arguments),
    };
    crate::print(&text)
}

/// Draws views until the operator ends it. An agent that does not answer is waited for: it may be restarted.
async fn watch(
    agent: &AgentClient,
    arguments: &TopArguments,
    mut last: TopView,
) -> Result<(), AgentError> {
    let mut screen = Screen::default();
    screen.draw(&shown(last.clone(), arguments))?;
    let (mut pause, mut age) = (FIRST_INTERVAL, AGE_AT_FIRST);
    loop {
        tokio::time::sleep(pause).await;
        let text = match view(agent, age).await {
            Ok(view) => {
                last = rated(view, &last);
                shown(last.clone(), arguments)
            }
            Err(error @ AgentError::Output(_)) => return Err(error),
            Err(error) => format!("{error}\n\n{}", shown(last.clone(), arguments)),
        };
        screen.draw(&text)?;
        (pause, age) = (Duration::from_secs(arguments.interval), AGE_LATER);
    }
}

async fn view(agent: &AgentClient, age: u64) -> Result<TopView, AgentError> {
    let answer = agent.ask(Method::GET, &format!("/top?age={age}")).await?;
    Ok(serde_json::from_slice(&answer)?)
}

/// The table of one view, which has no rates of processes.
pub(crate) fn table_of(answer: &[u8]) -> Result<String, AgentError> {
    let view: TopView = serde_json::from_slice(answer)?;
    Ok(table::text(
        &sorted(view, SortKey::Cpu),
        PodRows::Containers,
    ))
}

fn shown(view: TopView, arguments: &TopArguments) -> String {
    let rows = match arguments.containers {
        true => PodRows::Containers,
        false => PodRows::Pods,
    };
    table::text(&sorted(view, arguments.sort), rows)
}

/// Sets the rates of processes that were in the view before. One that was started since has none yet.
fn rated(mut view: TopView, before: &TopView) -> TopView {
    let passed = view.at.as_nanosecond() - before.at.as_nanosecond();
    let passed = u128::try_from(passed).unwrap_or(0);
    for row in &mut view.processes {
        let same = before.processes.iter().find(|old| {
            old.pid.is_some() && (&old.name, old.pid, old.began) == (&row.name, row.pid, row.began)
        });
        let grown = || row.cpu_nanoseconds?.checked_sub(same?.cpu_nanoseconds?);
        row.nano_cores = grown().and_then(|grown| {
            let rate = (u128::from(grown) * 1_000_000_000).checked_div(passed)?;
            u64::try_from(rate).ok()
        });
    }
    view
}

/// The largest first, and those without figures last; by their names where they are alike. The agent stays first.
fn sorted(mut view: TopView, by: SortKey) -> TopView {
    use std::cmp::Reverse;
    let key = |cpu: Option<u64>, memory: Option<u64>| match by {
        SortKey::Cpu => Reverse(cpu),
        SortKey::Memory => Reverse(memory),
    };
    view.processes.sort_by_key(|row| {
        (
            row.kind != "agent",
            key(row.nano_cores, row.rss_bytes),
            row.name.clone(),
        )
    });
    view.pods.sort_by_key(|pod| {
        (
            key(pod.nano_cores, pod.working_set_bytes),
            pod.namespace.clone(),
            pod.name.clone(),
        )
    });
    for pod in &mut view.pods {
        pod.containers.sort_by_key(|one| {
            let used = key(one.nano_cores, one.working_set_bytes);
            (used, one.name.clone())
        });
    }
    view
}
