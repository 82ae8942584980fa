//! What a generation reports to its host, and what the host commands.

use crate::health::PluginHealth;

/// What a generation of a plugin tells its host.
#[derive(Debug)]
pub struct GenerationUpdate {
    pub(crate) generation: u64,
    pub(crate) event: GenerationEvent,
}

#[derive(Debug)]
pub(crate) enum GenerationEvent {
    /// It has a process.
    Started { pid: u32 },
    /// It said who it is.
    Introduced(PluginIdentity),
    /// It said how it is. The first report makes it ready.
    Reported(PluginHealth),
    /// It cannot be reached yet.
    Unreachable { why: String },
    /// It is no more.
    Ended(GenerationExit),
}

/// Who a plugin says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginIdentity {
    pub(crate) program: String,
    pub(crate) capabilities: Vec<String>,
}

/// How a generation ended.
#[derive(Debug)]
pub(crate) enum GenerationExit {
    /// As it was ordered to.
    Finished { exit: Option<String> },
    /// By itself, or because it was of no use.
    Failed { why: String, exit: Option<String> },
}

/// What a host orders a generation to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationCommand {
    Serve,
    Finish,
}
