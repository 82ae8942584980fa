//! The tree of actors as metrics: ours (`oxlet_...`), and upstream's gauges of pods.
//!
//! All values come from the actors' snapshots at a scrape; no counter is kept twice.
//! Workers are summed into one series: a label per pod would grow without a bound.

mod pods;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kernel::TreeNode;
use kernel::observe::{TreeNodeKind, TreeNodeState};
use metrics::exposition::{Exposition, MetricKind};
use serde_json::Value;

pub use self::pods::count;

/// The supervisor whose children are summed.
const WORKERS: &str = "workers";
/// The supervisor of the plugins' hosts.
const PLUGINS: &str = "plugins";

/// The numbers of one actor, or the sums of many.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct ActorTotals {
    restarts: u64,
    handled: u64,
    overloaded: u64,
    /// Messages in the fullest mailbox.
    waiting: usize,
    capacity: usize,
}

impl ActorTotals {
    fn add(&mut self, node: &TreeNode) {
        self.restarts += node.restarts;
        self.handled += node.handled;
        self.overloaded += node.mailbox.overloaded;
        self.waiting = self.waiting.max(node.mailbox.len);
        self.capacity = self.capacity.max(node.mailbox.capacity);
    }
}

type TotalsByLabel = BTreeMap<String, ActorTotals>;
/// One metric of an actor: kind, name, help text, and how it is read.
type ActorMetric = (
    MetricKind,
    &'static str,
    &'static str,
    fn(&ActorTotals) -> f64,
);

const ACTOR_METRICS: [ActorMetric; 5] = [
    (
        MetricKind::Counter,
        "oxlet_actor_restarts_total",
        "Restarts of an actor since it was spawned.",
        |sum| sum.restarts as f64,
    ),
    (
        MetricKind::Counter,
        "oxlet_actor_messages_total",
        "Messages that an actor has handled.",
        |sum| sum.handled as f64,
    ),
    (
        MetricKind::Gauge,
        "oxlet_mailbox_messages",
        "Messages that wait in an actor's mailbox; of many actors told together the most.",
        |sum| sum.waiting as f64,
    ),
    (
        MetricKind::Gauge,
        "oxlet_mailbox_capacity",
        "Messages that fit into an actor's mailbox.",
        |sum| sum.capacity as f64,
    ),
    (
        MetricKind::Counter,
        "oxlet_mailbox_overloads_total",
        "Messages handed back because an actor's mailbox was full.",
        |sum| sum.overloaded as f64,
    ),
];

/// Returns the tree in the text format 0.0.4.
pub fn text(tree: &TreeNode) -> String {
    let mut all = Vec::new();
    collect(tree, &mut all);
    let mut text = Exposition::default();
    let sums = sums(tree, &all);
    for (family, name, help, figure) in ACTOR_METRICS {
        text.family(family, name, help);
        for (actor, sum) in &sums {
            text.sample(&[("actor", actor)], figure(sum));
        }
    }
    states(&all, &mut text);
    checkpoints(tree, &all, &mut text);
    plugins(&all, &mut text);
    text.into_text()
}

fn collect<'a>(node: &'a TreeNode, all: &mut Vec<&'a TreeNode>) {
    all.push(node);
    for child in &node.children {
        collect(child, all);
    }
}

/// An actor's path below the root; one label for all workers.
fn label(tree: &TreeNode, node: &TreeNode) -> String {
    let root = format!("{}/", tree.path);
    let path = node.path.strip_prefix(&root).unwrap_or(&node.path);
    match path.rsplit_once('/') {
        Some((above, _)) if above.rsplit('/').next() == Some(WORKERS) => format!("{above}/*"),
        Some(_) | None => path.to_owned(),
    }
}

fn sums(tree: &TreeNode, all: &[&TreeNode]) -> TotalsByLabel {
    let mut sums = TotalsByLabel::new();
    for node in all.iter().filter(|node| node.kind == TreeNodeKind::Actor) {
        sums.entry(label(tree, node)).or_default().add(node);
    }
    sums
}

fn states(all: &[&TreeNode], text: &mut Exposition) {
    text.family(
        MetricKind::Gauge,
        "oxlet_actors",
        "Actors by where in their life they stand.",
    );
    let states = [
        (TreeNodeState::Starting, "starting"),
        (TreeNodeState::Running, "running"),
        (TreeNodeState::BackingOff, "backing-off"),
        (TreeNodeState::Degraded, "degraded"),
        (TreeNodeState::Stopped, "stopped"),
    ];
    for (state, word) in states {
        let of_state = |node: &&&TreeNode| node.kind == TreeNodeKind::Actor && node.state == state;
        let count = all.iter().filter(of_state).count();
        text.sample(&[("state", word)], count as f64);
    }
}

/// The writes and bytes of every actor that shows a checkpoint.
fn checkpoints(tree: &TreeNode, all: &[&TreeNode], text: &mut Exposition) {
    let number = |node: &TreeNode, name: &str| node.snapshot.get(name).and_then(Value::as_f64);
    let both = |node: &&TreeNode| Some((number(node, "writes")?, number(node, "bytes")?));
    let keepers: Vec<_> = all
        .iter()
        .filter_map(|node| Some((label(tree, node), both(node)?)))
        .collect();
    text.family(
        MetricKind::Counter,
        "oxlet_checkpoint_writes_total",
        "Checkpoint files written since the start.",
    );
    for (actor, (writes, _)) in &keepers {
        text.sample(&[("actor", actor)], *writes);
    }
    text.family(
        MetricKind::Counter,
        "oxlet_checkpoint_written_bytes_total",
        "Bytes of checkpoint files written since the start: flash wears out.",
    );
    for (actor, (_, bytes)) in &keepers {
        text.sample(&[("actor", actor)], *bytes);
    }
}

/// The metrics of each plugin, from its host's snapshot.
fn plugins(all: &[&TreeNode], text: &mut Exposition) {
    let hosts = all
        .iter()
        .filter(|node| node.kind == TreeNodeKind::Supervisor && node.id == PLUGINS)
        .flat_map(|group| &group.children);
    let hosts: Vec<&TreeNode> = hosts.collect();
    text.family(
        MetricKind::Gauge,
        "oxlet_plugin_state",
        "Where in its life a plugin stands.",
    );
    for host in &hosts {
        let state = host.snapshot.get("state").and_then(Value::as_str);
        let state = state.unwrap_or("unknown").to_lowercase();
        text.sample(&[("plugin", &host.id), ("state", &state)], 1.0);
    }
    text.family(
        MetricKind::Counter,
        "oxlet_plugin_restarts_total",
        "Restarts of a plugin's process that nobody asked for.",
    );
    for host in &hosts {
        if let Some(restarts) = host.snapshot.get("restarts").and_then(Value::as_f64) {
            text.sample(&[("plugin", &host.id)], restarts);
        }
    }
    text.family(
        MetricKind::Gauge,
        "oxlet_plugin_abandoned_processes",
        "Processes of a plugin that were killed, do not end, and were given up.",
    );
    for host in &hosts {
        if let Some(abandoned) = host.snapshot.get("abandoned").and_then(Value::as_array) {
            text.sample(&[("plugin", &host.id)], abandoned.len() as f64);
        }
    }
}
