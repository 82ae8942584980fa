//! Faults that are injected on purpose, by tests and by `oxctl`.

use serde::{Deserialize, Serialize};

/// A way to break an actor on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedFault {
    /// It panics at its next message.
    Panic,
    /// It never finishes its next message.
    Hang,
}
