//! The agent's answers as tables for people and JSON for programs.

mod confinement;
pub(crate) mod cpus;
pub(crate) mod images;
pub(crate) mod volumes;

use std::io::{self, Write};

use agent::endpoints::admin::{AgentVersion, Archives, PodRow};
use jiff::Timestamp;
use kernel::TreeNode;
use plugin_host::Snapshot;
use pods::runtime::handover::SwapPlan;
use pods::worker::Explanation;
use serde::Deserialize;
use serde_json::Value;
use state::events::{Event, EventType, InvolvedObject};

use crate::agent::{AgentClient, AgentError, Method, ResponseLines};
use crate::output::OutputFormat;
use crate::table::TextTable;

pub(crate) fn now() -> Timestamp {
    kernel::timestamp()
}

/// The answer as indented JSON.
pub(crate) fn json(answer: &[u8]) -> Result<String, AgentError> {
    let value: Value = serde_json::from_slice(answer)?;
    Ok(format!("{value:#}\n"))
}

pub(crate) fn version(answer: &[u8]) -> Result<String, AgentError> {
    let agent: AgentVersion = serde_json::from_slice(answer)?;
    let ours = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "oxlet {} (pid {})\noxctl {ours}\n",
        agent.version, agent.pid
    ))
}

/// What a swap would do, as sentences.
pub(crate) fn swap_plan(answer: &[u8]) -> Result<String, AgentError> {
    let plan: SwapPlan = serde_json::from_slice(answer)?;
    let (from, to) = (&plan.from, &plan.to);
    if !plan.is_handover {
        return Ok(format!(
            "{to} has the same pods as {from}: they run on meanwhile\n"
        ));
    }
    let mut table = TextTable::new(&["POD", "GRACE", "THEN"]);
    for ending in &plan.pods {
        let then = match ending.goes_on {
            true => format!("starts on {to}"),
            false => "does not start again".to_owned(),
        };
        table.row([ending.pod.clone(), format!("{}s", ending.grace), then]);
    }
    Ok(format!(
        "{to} doesn't know the pods of {from}: {} of them run, and end first\n{}",
        plan.pods.len(),
        table.take()
    ))
}

pub(crate) fn generation(answer: &[u8]) -> Result<String, AgentError> {
    #[derive(Deserialize)]
    struct PluginGeneration {
        plugin: String,
        generation: u64,
    }
    let done: PluginGeneration = serde_json::from_slice(answer)?;
    Ok(format!(
        "plugin {} serves, generation {}\n",
        done.plugin, done.generation
    ))
}

pub(crate) fn archives(answer: &[u8]) -> Result<String, AgentError> {
    let archives: Archives = serde_json::from_slice(answer)?;
    let lines = archives
        .items
        .iter()
        .map(|path| format!("{}\n", path.display()));
    Ok(lines.collect())
}

pub(crate) fn tree(answer: &[u8]) -> Result<String, AgentError> {
    let root: TreeNode = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&[
        "NAME",
        "STATE",
        "RESTARTS",
        "HANDLED",
        "MAILBOX",
        "REFUSED",
        "BUSY WITH",
        "LAST EXIT",
    ]);
    branch(&root, "", "", &mut table);
    Ok(table.take())
}

/// One node of the tree: `before` is drawn before its name, `beneath` before its children's.
fn branch(node: &TreeNode, before: &str, beneath: &str, table: &mut TextTable) {
    let mailbox = match node.mailbox.capacity {
        0 => String::new(),
        capacity => format!("{}/{capacity}", node.mailbox.len),
    };
    table.row([
        format!("{before}{}", node.id),
        format!("{:?}", node.state).to_lowercase(),
        node.restarts.to_string(),
        node.handled.to_string(),
        mailbox,
        node.mailbox.overloaded.to_string(),
        node.busy_with.clone().unwrap_or_default(),
        node.last_exit.clone().unwrap_or_default(),
    ]);
    for (index, child) in node.children.iter().enumerate() {
        let (own, rest) = if index + 1 == node.children.len() {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        branch(
            child,
            &format!("{beneath}{own}"),
            &format!("{beneath}{rest}"),
            table,
        );
    }
}

/// Why a plugin is not ready, or what the operator should know although it is.
fn reason(plugin: &Snapshot) -> String {
    let given_up = match plugin.abandoned.len() {
        0 => String::new(),
        1 => "1 process is stuck and given up".to_owned(),
        many => format!("{many} processes are stuck and given up"),
    };
    let parts = [plugin.reason.clone(), plugin.warning.clone(), given_up];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

fn handover(shown: &Value) -> String {
    let text = |key: &str| shown[key].as_str().unwrap_or_default();
    let waits_for = shown["waits_for"].as_array().into_iter().flatten();
    let waits_for: Vec<&str> = waits_for.filter_map(Value::as_str).collect();
    let (from, to, step) = (text("runtime"), text("to"), text("step"));
    let told = format!("the pods are handed over from {from} to {to}: {step}");
    match waits_for.is_empty() {
        true => told,
        false => format!("{told} ({})", waits_for.join(", ")),
    }
}

pub(crate) fn plugins(answer: &[u8], now: Timestamp) -> Result<String, AgentError> {
    let plugins: Vec<Value> = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&[
        "NAME",
        "KIND",
        "STATE",
        "SINCE",
        "GENERATION",
        "PID",
        "RESTARTS",
        "PROGRAM",
        "REASON",
    ]);
    let mut shown = Vec::new();
    for plugin in plugins {
        let handover = plugin.get("handover").map(handover);
        let row = match Snapshot::deserialize(&plugin) {
            Ok(plugin) => {
                shown.extend(confinement::row(&plugin));
                let since = Timestamp::try_from(plugin.since).unwrap_or(now);
                let pid = plugin.pid.map(|pid| pid.to_string()).unwrap_or_default();
                let numbers = [
                    plugin.generation.to_string(),
                    pid,
                    plugin.restarts.to_string(),
                ];
                let [generation, pid, restarts] = numbers;
                let reason = handover.unwrap_or_else(|| reason(&plugin));
                let (kind, state) = (plugin.kind.to_string(), plugin.state.to_string());
                [
                    plugin.name,
                    kind,
                    state,
                    age(since, now),
                    generation,
                    pid,
                    restarts,
                    plugin.program,
                    reason,
                ]
            }
            // A host that did not show itself: only its declaration is known.
            Err(_) => {
                let text = |key: &str| plugin[key].as_str().unwrap_or_default().to_owned();
                let mut row = <[String; 9]>::default();
                (row[0], row[2], row[8]) =
                    (text("name"), text("state").to_lowercase(), text("reason"));
                row
            }
        };
        table.row(row);
    }
    Ok(format!("{}{}", table.take(), confinement::table(&shown)))
}

pub(crate) fn pods(answer: &[u8], now: Timestamp) -> Result<String, AgentError> {
    let pods: Vec<PodRow> = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&[
        "NAMESPACE",
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "STAGE",
    ]);
    for pod in pods {
        table.row([
            pod.namespace,
            pod.name,
            format!("{}/{}", pod.ready, pod.containers),
            pod.status,
            pod.restarts.to_string(),
            pod.started
                .map(|started| age(started, now))
                .unwrap_or_default(),
            pod.ip,
            pod.stage,
        ]);
    }
    Ok(table.take())
}

pub(crate) fn events(answer: &[u8], now: Timestamp) -> Result<String, AgentError> {
    let events: Vec<Event> = serde_json::from_slice(answer)?;
    let mut table = event_table();
    for event in &events {
        table.row(event_row(event, now));
    }
    Ok(table.take())
}

fn event_table() -> TextTable {
    TextTable::new(&["LAST SEEN", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"])
}

fn event_row(event: &Event, now: Timestamp) -> [String; 6] {
    let r#type = match event.r#type {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    [
        age(event.last_seen, now),
        event.count.to_string(),
        r#type.to_owned(),
        event.reason.clone(),
        object(&event.object),
        event.message.clone(),
    ]
}

fn object(object: &InvolvedObject) -> String {
    let mut text = object.kind.to_lowercase();
    for part in [&object.namespace, &object.name] {
        if !part.is_empty() {
            text.push('/');
            text.push_str(part);
        }
    }
    // `spec.containers{web}`: only the container's name is shown.
    if let Some((_, name)) = object.field_path.split_once('{') {
        text.push(' ');
        text.push_str(name.trim_end_matches('}'));
    }
    text
}

/// Shows the stored events, then each new one, until the agent ends or the output is closed.
pub(crate) async fn follow(agent: &AgentClient, output: OutputFormat) -> Result<(), AgentError> {
    // The stream is opened first: an event in between is in the stream, in the list, or in both.
    let mut lines = agent.follow("/events?follow=true").await?;
    let listed: Vec<Value> = serde_json::from_slice(&agent.ask(Method::GET, "/events").await?)?;
    let mut table = event_table();
    for event in &listed {
        show_event(event, output, &mut table)?;
    }
    write(&table.take())?;
    let mut overlap = true;
    while let Some(event) = next_event(&mut lines).await? {
        overlap = overlap && listed.contains(&event);
        if !overlap {
            show_event(&event, output, &mut table)?;
            write(&table.take())?;
        }
    }
    Ok(())
}

async fn next_event(lines: &mut ResponseLines<'_>) -> Result<Option<Value>, AgentError> {
    let line = lines.next().await?;
    Ok(line.map(|line| serde_json::from_slice(&line)).transpose()?)
}

fn show_event(
    event: &Value,
    output: OutputFormat,
    table: &mut TextTable,
) -> Result<(), AgentError> {
    match (output, Event::deserialize(event)) {
        (OutputFormat::Json, _) => write(&format!("{event}\n"))?,
        (OutputFormat::Table, Ok(event)) => table.row(event_row(&event, now())),
        (OutputFormat::Table, Err(error)) => match event["missed"].as_u64() {
            Some(missed) => write(&format!(
                "... {missed} events came too fast and are missed here\n"
            ))?,
            None => return Err(error.into()),
        },
    }
    Ok(())
}

fn write(text: &str) -> Result<(), AgentError> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(AgentError::Output)
}

pub(crate) fn why(answer: &[u8], now: Timestamp) -> Result<String, AgentError> {
    let why: Explanation = serde_json::from_slice(answer)?;
    let mut head = TextTable::new(&["POD", "STAGE", "PHASE", "RUNTIME"]);
    head.row([why.pod, why.stage, why.phase, why.runtime]);
    let mut containers = TextTable::new(&["CONTAINER", "STATE"]);
    for (name, state) in why.containers {
        containers.row([name, state]);
    }
    let mut lines = TextTable::new(&["FIRST", "LAST", "COUNT", "CONTAINER", "REASON", "MESSAGE"]);
    for line in why.lines {
        let (first, last) = (age(line.first, now), age(line.last, now));
        let container = line.why.object.unwrap_or_default();
        lines.row([
            first,
            last,
            line.count.to_string(),
            container,
            line.why.reason,
            line.why.message,
        ]);
    }
    Ok(format!(
        "{}\n{}\n{}",
        head.take(),
        containers.take(),
        lines.take()
    ))
}

/// The age as kubectl prints it: the two greatest units.
fn age(then: Timestamp, now: Timestamp) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = now.duration_since(then).as_secs().max(0);
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match seconds % big / small {
        0 => format!("{}{big_unit}", seconds / big),
        rest => format!("{}{big_unit}{rest}{small_unit}", seconds / big),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests;
