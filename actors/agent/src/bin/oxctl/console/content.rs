//! What is seen at a place: the tables of the other commands, with where their rows lead.

use std::time::Duration;

use agent::endpoints::admin::PodRow;
use hyper::body::Bytes;
use kernel::TreeNode;
use pods::worker::Explanation;
use serde_json::Value;

use super::place::{Place, Tab};
use crate::agent::{AgentClient, AgentError, Method, encoded};
use crate::show;
use crate::table::TextTable;

/// Lines of a log that are shown.
const LOG_LINES: usize = 500;

/// What is shown at a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Where this is; none before anything was seen.
    pub(super) place: Option<Place>,
    /// The heads of the columns; empty where each table has its own.
    pub(super) head: String,
    pub(super) lines: Vec<Line>,
}

/// A line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) leads_to: Option<Place>,
}

impl Content {
    pub(super) fn is_log(&self) -> bool {
        matches!(self.place, Some(Place::Log { .. }))
    }

    /// A table whose first line are its heads.
    fn table(text: &str) -> Content {
        let (head, rows) = text.split_once('\n').unwrap_or((text, ""));
        let head = head.to_owned();
        Content {
            head,
            ..Content::text(rows)
        }
    }

    fn text(text: &str) -> Content {
        let line = |text: &str| Line {
            text: printable(text),
            leads_to: None,
        };
        Content {
            lines: text.lines().map(line).collect(),
            ..Content::default()
        }
    }

    /// The lines from this one on lead to these places.
    fn leading(mut self, from: usize, to: impl IntoIterator<Item = Place>) -> Content {
        for (line, place) in self.lines.iter_mut().skip(from).zip(to) {
            line.leads_to = Some(place);
        }
        self
    }
}

/// What a container writes is no command to the terminal.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '·',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Asks the agent for what is seen at a place.
pub(super) async fn of(
    agent: &AgentClient,
    within: Duration,
    place: &Place,
) -> Result<Content, AgentError> {
    let seen = match place {
        Place::Tab(Tab::Pressure) => {
            // With CPU and memory alone it would lack the stalls of input and output.
            let usage = ask(agent, within, "/stats/summary").await?;
            let tree = ask(agent, within, "/tree").await?;
            pressure(&usage, &tree)?
        }
        Place::Tab(Tab::Images) => {
            let pulls = ask(agent, within, "/images").await?;
            images(&pulls, ask(agent, within, "/images/present").await)?
        }
        Place::Tab(tab) => {
            let answer = ask(agent, within, path(*tab)).await?;
            tab_content(*tab, &answer)?
        }
        Place::Pod { namespace, name } => {
            let path = format!("/why/{}/{}", encoded(namespace), encoded(name));
            pod(&ask(agent, within, &path).await?, (namespace, name))?
        }
        Place::Log {
            namespace,
            name,
            container,
        } => {
            let [namespace, name, container] =
                [namespace, name, container].map(|part| encoded(part));
            let path =
                format!("/containerLogs/{namespace}/{name}/{container}?tailLines={LOG_LINES}");
            Content::text(&String::from_utf8_lossy(&ask(agent, within, &path).await?))
        }
    };
    let place = Some(place.clone());
    Ok(Content { place, ..seen })
}

async fn ask(agent: &AgentClient, within: Duration, path: &str) -> Result<Bytes, AgentError> {
    agent.ask_with_timeout(within, Method::GET, path).await
}

/// Of the answer that is all of a tab, or its first.
fn path(tab: Tab) -> &'static str {
    match tab {
        Tab::Pods => "/pods",
        Tab::Plugins => "/plugins",
        Tab::Tree | Tab::Pressure => "/tree",
        Tab::Volumes => "/volumes",
        Tab::Images => "/images",
        Tab::Events => "/events",
    }
}

fn tab_content(tab: Tab, answer: &[u8]) -> Result<Content, AgentError> {
    let now = show::now();
    let text = match tab {
        Tab::Pods => show::pods(answer, now)?,
        Tab::Plugins => show::plugins(answer, now)?,
        Tab::Tree | Tab::Pressure => show::tree(answer)?,
        Tab::Volumes => show::volumes::table(answer)?,
        Tab::Images => show::images::table(answer, now)?,
        Tab::Events => show::events(answer, now)?,
    };
    let table = Content::table(&text);
    if tab != Tab::Pods {
        return Ok(table);
    }
    let pods: Vec<PodRow> = serde_json::from_slice(answer)?;
    let places = pods.into_iter().map(|pod| Place::Pod {
        namespace: pod.namespace,
        name: pod.name,
    });
    Ok(table.leading(0, places))
}

/// The pulls, and the images that are there; a runtime that does not list them hides no pull.
pub(super) fn images(
    pulls: &[u8],
    present: Result<Bytes, AgentError>,
) -> Result<Content, AgentError> {
    let present = match present {
        Ok(answer) => show::images::present(&answer)?,
        Err(AgentError::Refused { sentence }) => format!("{sentence}\n"),
        Err(trouble) => return Err(trouble),
    };
    let pulls = match show::images::table(pulls, show::now())? {
        heads if heads.lines().count() < 2 => "no image is pulled or waits\n".to_owned(),
        pulls => pulls,
    };
    Ok(Content::text(&format!("{pulls}\n{present}")))
}

/// A pod's explanation; the rows of its containers lead to their logs.
fn pod(answer: &[u8], (namespace, name): (&str, &str)) -> Result<Content, AgentError> {
    let text = show::why(answer, show::now())?;
    let why: Explanation = serde_json::from_slice(answer)?;
    let logs = why.containers.into_iter().map(|(container, _)| Place::Log {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        container,
    });
    let first = text.lines().position(|line| line.starts_with("CONTAINER"));
    let first = first.map_or(usize::MAX, |heads| heads + 1);
    Ok(Content::text(&text).leading(first, logs))
}

/// What the node is short of, who uses what, and how long it stalls.
fn pressure(summary: &[u8], tree: &[u8]) -> Result<Content, AgentError> {
    let summary: Value = serde_json::from_slice(summary)?;
    let root: TreeNode = serde_json::from_slice(tree)?;
    let node = &summary["node"];
    let eviction = named(&root, "eviction").map(|found| &found.snapshot);
    let under = eviction.and_then(|seen| seen["pressures"].as_array());
    let under: Vec<&str> = under
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut text = match under.is_empty() {
        true => "under no pressure\n\n".to_owned(),
        false => format!("under pressure: {}\n\n", under.join(", ")),
    };
    let mut used = TextTable::new(&["USED BY", "CORES", "MEMORY", "AVAILABLE"]);
    let groups = node["systemContainers"].as_array();
    let groups = groups.into_iter().flatten();
    for (name, group) in [(&node["nodeName"], node)]
        .into_iter()
        .chain(groups.map(|group| (&group["name"], group)))
    {
        let cores = group["cpu"]["usageNanoCores"].as_u64();
        let memory = |key: &str| group["memory"][key].as_u64().map(show::volumes::bytes);
        used.row([
            name.as_str().unwrap_or_default().to_owned(),
            cores.map(thousandths).unwrap_or_default(),
            memory("workingSetBytes").unwrap_or_default(),
            memory("availableBytes").unwrap_or_default(),
        ]);
    }
    text.push_str(&used.take());
    text.push('\n');
    text.push_str(&stalls(node));
    Ok(Content::text(&text))
}

/// How long tasks of the node waited; a resource whose stalls have not begun to count is not measured.
fn stalls(node: &Value) -> String {
    let mut table = TextTable::new(&["STALLS OF", "WHOSE", "10s %", "60s %", "300s %"]);
    let mut is_measured = false;
    for resource in ["cpu", "memory", "io"] {
        let psi = &node[resource]["psi"];
        let counts = |whose: &str| psi[whose]["total"].as_u64().is_some_and(|total| total > 0);
        if !counts("some") && !counts("full") {
            continue;
        }
        is_measured = true;
        for whose in ["some", "full"] {
            let shares = ["avg10", "avg60", "avg300"].map(|key| psi[whose][key].to_string());
            let [short, middle, long] = shares;
            table.row([resource.into(), whose.into(), short, middle, long]);
        }
    }
    match is_measured {
        true => table.take(),
        false => "no stalls are measured: that takes cgroups of version 2\n".to_owned(),
    }
}

/// Nanocores as cores with three places.
fn thousandths(nanocores: u64) -> String {
    let thousandths = nanocores / 1_000_000;
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

fn named<'a>(node: &'a TreeNode, id: &str) -> Option<&'a TreeNode> {
    match node.id == id {
        true => Some(node),
        false => node.children.iter().find_map(|child| named(child, id)),
    }
}
