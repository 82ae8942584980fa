//! What is spoken on a monitor's socket.
//!
//! One connection is one call: the client sends a [`Call`], the monitor answers with a [`Reply`] and closes. `Exec`,
//! `Attach` and `Events` answer first with a reply that says that they stand, and then stream on the same
//! connection. Each message is a frame (`frame.rs`). Within a version messages grow by optional fields only; a
//! call of a version that the monitor does not speak is refused by name.

mod frame;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use frame::{Frame, FrameError, MAX_FRAME_BYTES};

/// The version that this build speaks.
pub const VERSION: u32 = 1;
/// Where an OCI runtime finds the programs that it calls, as `$PATH`.
pub const RUNTIME_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The name of the socket in the monitor's folder.
pub const SOCKET_NAME: &str = "monitor.sock";
/// The name of the file in the monitor's folder that it has locked, and in which it says which process it is.
pub const LOCK_NAME: &str = "monitor.lock";

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The version that the client speaks; it stands first in every version.
    pub version: u32,
    /// What the monitor shall do.
    pub request: Request,
}

/// What a monitor is asked. Containers are named by the id that they were created with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Tells of every container; answered by `Reply::Pod`.
    Status,
    /// Makes a container by the runtime's `create`; answered by `Reply::Container` in phase `Created`.
    Create(Box<Create>),
    /// Starts a created container; answered by `Reply::Container` in phase `Running`, or `Exited` when it was short.
    Start { container: String },
    /// Runs a process in a container; answered by `Reply::Streaming`, streams, and ends with `Reply::ExecEnded`.
    Exec(Box<Exec>),
    /// Joins a container's streams from now on; answered by `Reply::Streaming`, ends with `Reply::Container`.
    Attach(Attach),
    /// Sets the size of a container's terminal; answered by `Reply::Done`.
    Resize { container: String, size: Size },
    /// Sends a signal to a container's init by the runtime's `kill`; one that has ended already is `Reply::Done`.
    Kill { container: String, signal: i32 },
    /// Opens a container's log anew at its path, after a rotation; answered by `Reply::Done`.
    ReopenLog { container: String },
    /// Ends a container's standard input once what was sent is written; answered by `Reply::Done`.
    CloseStdin { container: String },
    /// Waits for a container's end; answered by `Reply::Container` in phase `Exited`.
    Wait { container: String },
    /// Streams facts; answered by `Reply::Pod` (the state that they start from) and then `Reply::Event` each.
    Events,
    /// Changes a container's limits by the runtime's `update`; `resources` is an OCI `linux.resources` object.
    Update {
        container: String,
        resources: serde_json::Value,
    },
    /// Writes a running container's state into the folder `images` by the runtime's `checkpoint`, and lets it run on; logs
    /// go to the folder `work`. Both are there, absolute. Answered by `Reply::Done`.
    Checkpoint {
        container: String,
        images: PathBuf,
        work: PathBuf,
    },
    /// Lists the process ids in a container, as the host counts them; answered by `Reply::Processes`.
    Processes { container: String },
    /// Removes a container that isn't running, and what the monitor kept of it; an unknown one is `Reply::Done`.
    Delete { container: String },
    /// Ends the monitor, which has no container left; answered by `Reply::Done`.
    Shutdown,
}

impl Request {
    /// Returns the id of the container that it is about, if it is about one.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        match self {
            Request::Create(create) => Some(&create.container),
            Request::Exec(exec) => Some(&exec.container),
            Request::Attach(attach) => Some(&attach.container),
            Request::Start { container }
            | Request::Resize { container, .. }
            | Request::Kill { container, .. }
            | Request::ReopenLog { container }
            | Request::CloseStdin { container }
            | Request::Wait { container }
            | Request::Update { container, .. }
            | Request::Checkpoint { container, .. }
            | Request::Processes { container }
            | Request::Delete { container } => Some(container),
            Request::Status | Request::Events | Request::Shutdown => None,
        }
    }

    /// Returns the name of the request, for errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Request::Status => "Status",
            Request::Create(_) => "Create",
            Request::Start { .. } => "Start",
            Request::Exec(_) => "Exec",
            Request::Attach(_) => "Attach",
            Request::Resize { .. } => "Resize",
            Request::Kill { .. } => "Kill",
            Request::ReopenLog { .. } => "ReopenLog",
            Request::CloseStdin { .. } => "CloseStdin",
            Request::Wait { .. } => "Wait",
            Request::Events => "Events",
            Request::Update { .. } => "Update",
            Request::Checkpoint { .. } => "Checkpoint",
            Request::Processes { .. } => "Processes",
            Request::Delete { .. } => "Delete",
            Request::Shutdown => "Shutdown",
        }
    }
}

/// The variable in which `oxlet-oci` is given its caller's process id: it dies with that process.
pub const PARENT_VARIABLE: &str = "OXLET_OCI_PARENT";

/// The OCI runtime that runs a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handler {
    /// The absolute path of a program with the OCI command line: `oxlet-oci`, `runc`, `crun`, ...
    pub program: PathBuf,
    /// Its state folder (`--root`), absolute.
    pub root: PathBuf,
    /// Whether cgroup paths are systemd's (`--systemd-cgroup`).
    #[serde(default)]
    pub systemd_cgroup: bool,
    /// Whether it is the `oxlet-oci` that the monitor came with. That one dies with its caller by itself
    /// ([`PARENT_VARIABLE`]), and its record says which containers are started without a command.
    #[serde(default)]
    pub is_own: bool,
    /// How long one call of the runtime may take, in milliseconds, before it is killed.
    #[serde(default = "default_deadline")]
    pub deadline_ms: u64,
}

fn default_deadline() -> u64 {
    120_000
}

/// What becomes of a container's standard input (CRI's `stdin` and `stdin_once`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Empty: `/dev/null`.
    #[default]
    Closed,
    /// Open until `CloseStdin`, whoever attaches and leaves.
    Open,
    /// Ends when the first client that attached with input leaves.
    Once,
}

/// A container to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Create {
    /// Its id: letters, digits, `_`, `-`, `.` and `+`, at most 128 of them.
    pub container: String,
    /// Who runs it.
    pub handler: Handler,
    /// The OCI bundle: an absolute folder with `config.json`.
    pub bundle: PathBuf,
    /// The CRI log; none keeps no log.
    #[serde(default)]
    pub log: Option<PathBuf>,
    /// A folder that the log is below, somewhere: from there on no link is followed. The log's own folder, if none.
    #[serde(default)]
    pub log_folder: Option<PathBuf>,
    /// Its standard input.
    #[serde(default)]
    pub stdin: Input,
    /// Whether it has a terminal: must equal `process.terminal` in `config.json`.
    #[serde(default)]
    pub terminal: bool,
}

/// A process to be run in a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// In which container.
    pub container: String,
    /// An OCI `process` object; its `terminal` says whether it gets one.
    pub process: serde_json::Value,
    /// Whether the client will send input; otherwise it is `/dev/null`.
    #[serde(default)]
    pub stdin: bool,
    /// How long it may run, in milliseconds, before it is killed; none is for ever.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The first size of its terminal.
    #[serde(default)]
    pub size: Option<Size>,
    /// How much of each of its outputs is wanted, in bytes; what follows is read and dropped. All of it, if none.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
}

/// A client that joins a container's streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Which container.
    pub container: String,
    /// Whether the client sends input; refused where the container's is closed.
    #[serde(default)]
    pub stdin: bool,
    /// Whether it hears standard output (and the terminal).
    #[serde(default)]
    pub stdout: bool,
    /// Whether it hears standard error.
    #[serde(default)]
    pub stderr: bool,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// What the client says on a stream beside its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamControl {
    /// The terminal has a new size.
    Resize(Size),
    /// No input will follow.
    CloseStdin,
}

/// What a monitor answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// It was not done, and why.
    Refused(Refusal),
    /// The container's state after what was asked.
    Container(Box<ContainerStatus>),
    /// Every container.
    Pod(PodStatus),
    /// The stream stands; data frames follow.
    Streaming,
    /// A process that was run in a container is over, and so is its stream.
    ExecEnded(ExecEnd),
    /// A fact of the subscription.
    Event(Event),
    /// Process ids.
    Processes(Vec<i32>),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of no it is.
    pub kind: RefusalKind,
    /// The reason, for people.
    pub message: String,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// The call's version is not spoken here.
    Version,
    /// The call cannot be read, or a value in it is out of its range.
    Invalid,
    /// There is no such container.
    NotFound,
    /// A container of that id is there already.
    AlreadyExists,
    /// Not in the container's present phase.
    WrongPhase,
    /// A bound of the monitor is reached.
    Full,
    /// The runtime refused or failed; the message is its own.
    Runtime,
    /// The runtime did not end within its deadline and was killed.
    Deadline,
    /// A system call of the monitor failed, or somebody else killed the runtime.
    System,
}

/// The state of a monitor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodStatus {
    /// The version of the protocol that it prefers.
    pub version: u32,
    /// The program's version.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// Its containers, by id.
    pub containers: Vec<ContainerStatus>,
}

/// The state of one container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub container: String,
    pub phase: Phase,
    /// The process id of its init, as the host counts; none before it is created.
    pub pid: Option<i32>,
    /// When it was created, in nanoseconds since 1970; 0 before.
    pub created_at: i64,
    /// When it was started, in nanoseconds since 1970; 0 before.
    pub started_at: i64,
    /// Its end; in phase `Exited`.
    pub end: Option<End>,
    /// Whether the kernel has killed a process in its cgroup for memory, so far.
    pub oom_killed: bool,
    /// What does not work: the log that cannot be written, the removal that failed. Empty when all is well.
    pub problems: Vec<String>,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// The runtime makes it.
    Creating,
    /// It is made and waits for its start.
    Created,
    /// The runtime starts it.
    Starting,
    /// Its process runs.
    Running,
    /// Its init is over.
    Exited,
    /// The runtime removes it.
    Deleting,
}

/// The end of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub exit: Exit,
    /// Whether the kernel killed a process in its cgroup for memory.
    pub oom_killed: bool,
    /// When the monitor saw it, in nanoseconds since 1970.
    pub finished_at: i64,
    /// Whether it is on disk; false only while the disk refuses it, which `problems` tells.
    pub recorded: bool,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal; shells and CRI runtimes say 128 more.
    Signal(i32),
    /// Nobody can know, and why: it ended while no monitor was its parent.
    Unknown(String),
}

impl Exit {
    /// Returns the code as CRI runtimes tell it, 128 more than the signal; none where nobody can know.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(*code),
            Exit::Signal(signal) => Some(128 + signal),
            Exit::Unknown(_) => None,
        }
    }
}

/// The end of a process that was run in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecEnd {
    pub exit: Exit,
    /// Whether it was killed for its timeout.
    pub timed_out: bool,
    /// Whether it wrote more than `max_output_bytes`.
    #[serde(default)]
    pub truncated: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub container: String,
    /// When, in nanoseconds since 1970.
    pub at: i64,
    pub fact: Fact,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    Created {
        pid: i32,
    },
    Started {
        pid: i32,
    },
    Exited(End),
    Deleted,
    /// Something of the container does not work; the container goes on.
    Problem(String),
}
