//! What can be seen of the tree from outside, for `oxctl`, health endpoints and tests alike.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mailbox::gauge::MailboxView;

/// One supervisor or actor, and everything beneath it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeNode {
    /// Its name among its siblings.
    pub id: String,
    /// Its name in the whole tree, from the root, with slashes.
    pub path: String,
    /// Whether it supervises or acts.
    pub kind: TreeNodeKind,
    /// Where in its life it stands.
    pub state: TreeNodeState,
    /// Restarts since it was spawned.
    pub restarts: u64,
    /// How full its mailbox is; empty for a supervisor.
    pub mailbox: MailboxView,
    /// Messages taken out of its mailbox since it was spawned.
    pub handled: u64,
    /// The message that it is handling, if it does.
    pub busy_with: Option<String>,
    /// How its last incarnation ended, if one did.
    pub last_exit: Option<String>,
    /// Its own view of itself; null when it did not answer in time.
    pub snapshot: Value,
    /// The supervised children, in the order of their spawning.
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// Returns the node with this path, here or beneath.
    pub fn find(&self, path: &str) -> Option<&TreeNode> {
        if self.path == path {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(path))
    }
}

/// The two kinds of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeNodeKind {
    /// It restarts its children.
    Supervisor,
    /// It handles messages.
    Actor,
}

/// Where in its life a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeNodeState {
    /// Rebuilding its state.
    Starting,
    /// Handling messages.
    Running,
    /// Ended, to be restarted after a pause.
    BackingOff,
    /// Its restarts are exhausted; tried again at the longest pause.
    Degraded,
    /// Ended, or ending, for good.
    Stopped,
}

/// An actor that has been pinged and has not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateActor {
    /// Its path in the tree.
    pub path: String,
    /// The message that it is in; none between two messages.
    pub busy_with: Option<&'static str>,
}

/// A child of the root whose restarts are exhausted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DegradedChild {
    /// The path of the child.
    pub id: String,
    /// When its budget ran out.
    pub since: SystemTime,
    /// How it ended last.
    pub why: String,
}
