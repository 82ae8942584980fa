//! What a generation reports to its host, and what the host commands.

use crate::health::PluginHealth;

/// An event of a generation, for its host.
#[derive(Debug)]
pub struct GenerationUpdate {
    pub(crate) generation: u64,
    pub(crate) event: GenerationEvent,
}

#[derive(Debug)]
pub(crate) enum GenerationEvent {
    /// It has a process.
    Started { pid: u32 },
    /// It answered `Info`.
    Introduced(PluginIdentity),
    /// It reported its health. The first report makes it ready.
    Reported(PluginHealth),
    /// It cannot be reached yet.
    Unreachable { why: String },
    /// It is no more.
    Ended(GenerationExit),
}

/// A plugin's answer to `Info`: its program and capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginIdentity {
    pub(crate) program: String,
    pub(crate) capabilities: Vec<String>,
}

/// How a generation ended.
#[derive(Debug)]
pub(crate) enum GenerationExit {
    /// On command of its host.
    Finished { exit: Option<String> },
    /// By itself, or because it did not get ready.
    Failed { why: String, exit: Option<String> },
}

/// A host's command to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationCommand {
    Serve,
    Finish,
}
