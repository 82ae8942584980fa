//! What every CRI server of ours needs, whatever runs its containers: the streaming server behind Exec, Attach and
//! PortForward, the filters and pages of its lists, and the writer of container logs.
//!
//! A runtime connects the streaming server to its containers by implementing [`StreamingBackend`].

mod container_log;
pub mod list;
mod streaming;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use container_log::{LogWriter, OutputStream};
pub use streaming::{
    ClientGone, CommandResult, RemoteStreams, StreamReader, StreamWriter, StreamingBackend,
    StreamingRequest, StreamingServer, TerminalSize, TerminalSizeReader, relay,
};
