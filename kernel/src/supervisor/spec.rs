//! How children are supervised: when each is restarted, with which siblings, and within which deadlines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When a child that ended is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// However it ended.
    Permanent,
    /// When it ended other than by its own choice.
    Transient,
    /// It is never restarted.
    Temporary,
}

/// Which children are restarted with one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// No other child.
    OneForOne,
    /// All children that were spawned after it.
    RestForOne,
    /// All children of the group.
    OneForAll,
}

/// How one actor is supervised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSpec {
    /// Its name among its siblings.
    pub id: String,
    /// When it is restarted.
    pub restart: Restart,
    /// How long its [`stop`](crate::Actor::stop) may take, the message before it included.
    pub shutdown: Duration,
    /// How long one message may take before the actor counts as hung.
    pub answer_within: Duration,
}

impl ChildSpec {
    /// A child that is always restarted.
    pub fn permanent(id: impl Into<String>) -> ChildSpec {
        ChildSpec {
            id: id.into(),
            restart: Restart::Permanent,
            shutdown: Duration::from_secs(5),
            answer_within: Duration::from_secs(30),
        }
    }

    /// A child that may end by its own choice.
    pub fn transient(id: impl Into<String>) -> ChildSpec {
        let restart = Restart::Transient;
        ChildSpec {
            restart,
            ..ChildSpec::permanent(id)
        }
    }

    /// A child that is never restarted.
    pub fn temporary(id: impl Into<String>) -> ChildSpec {
        let restart = Restart::Temporary;
        ChildSpec {
            restart,
            ..ChildSpec::permanent(id)
        }
    }

    /// Sets how long its [`stop`](crate::Actor::stop) may take.
    pub fn shutdown(self, shutdown: Duration) -> ChildSpec {
        ChildSpec { shutdown, ..self }
    }

    /// Sets how long one message may take.
    pub fn answer_within(self, answer_within: Duration) -> ChildSpec {
        ChildSpec {
            answer_within,
            ..self
        }
    }
}
