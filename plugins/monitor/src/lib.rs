//! The monitor: parent of one pod's containers (decision 27).
//!
//! `protocol` is what is spoken on a monitor's socket, `client` speaks it for a runtime plugin, and the program
//! `oxlet-monitor` (`src/bin/oxlet-monitor`) serves it: one small process a pod, which outlives the plugin and the
//! agent. Containers are run by an OCI runtime's command line, whichever the caller names.

mod client;
mod identity;
mod protocol;

/// The first argument by which `oxlet-monitor` holds new namespaces: a user namespace, and those that the further
/// arguments name (`net`, `ipc`, `uts`) in it. It writes a byte when it is in the user namespace, reads one when its ids
/// are mapped, writes one when all are made, and ends with its standard input.
pub const NAMESPACES: &str = "namespaces";

pub use client::{
    Events, ExecOutput, Launch, LaunchError, MAX_EXEC_OUTPUT_BYTES, Monitor, MonitorError, Output,
    Place, Session, SessionReader, SessionWriter,
};
pub use identity::{ProcessIdentity, process_state};
pub use protocol::{
    Attach, Call, ContainerStatus, Create, End, Event, Exec, ExecEnd, Exit, Fact, Frame,
    FrameError, Handler, Input, LOCK_NAME, MAX_FRAME_BYTES, PARENT_VARIABLE, Phase, PodStatus,
    RUNTIME_PATH, Refusal, RefusalKind, Reply, Request, SOCKET_NAME, Size, StreamControl, VERSION,
};
