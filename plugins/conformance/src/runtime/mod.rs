//! The suite of runtimes: what an agent relies on of whatever speaks CRI v1.

mod case;
mod containers;
mod events;
mod execution;
mod images;
mod node;
mod sandboxes;
mod streams;

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use tonic::transport::Channel;

use self::case::RuntimeCase;
use super::{CheckResult, Report, check};

/// The CRI endpoint under test, and what it has.
#[derive(Clone, Debug)]
pub struct Target {
    /// A connection to it, see [`sdk::testing::connect`].
    pub channel: Channel,
    /// An image that it has, with a shell, `sleep` and `echo` in it, or one that is treated so.
    pub image: String,
    /// A folder for the logs of containers, which the runtime can write to.
    pub logs: PathBuf,
    /// The network of sandboxes.
    pub network: Network,
    /// Whether it must report container events.
    pub events: Events,
    /// The cgroup that every sandbox goes under; the runtime's own choice if it is empty.
    pub cgroup_parent: String,
}

/// The network of the suite's sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// One of their own: pod networking is set up behind the runtime.
    Pod,
    /// The node's: nothing needs to be set up.
    Node,
}

/// Whether a runtime must report container events (`GetContainerEvents`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// It must report them.
    Reported,
    /// It is a real runtime of an older version, with no plugin of ours before it.
    Absent,
}

type RuntimeCheck = for<'a> fn(&'a mut RuntimeCase) -> BoxFuture<'a, CheckResult>;

/// Checks every law against `target`, one after the other.
pub async fn run(target: Target) -> Report {
    let groups = [
        node::LAWS,
        sandboxes::LAWS,
        containers::LAWS,
        execution::LAWS,
        streams::LAWS,
        images::LAWS,
        events::LAWS,
    ];
    let mut laws = Vec::new();
    for (words, body) in groups.into_iter().flatten() {
        let mut case = RuntimeCase::new(target.clone());
        laws.push(check(words, body(&mut case)).await);
        case.clean_up().await;
    }
    Report { laws }
}
