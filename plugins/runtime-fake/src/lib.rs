//! A full CRI v1 server with simulated containers.
//!
//! It stands where containerd stands: tests and benches of the agent run against it, in process or as
//! a plugin of its own. Its whole state outlives a kill -9 of its process; containers "run on"
//! meanwhile: one whose time ended while the process was down is found ended, at its right time.
//!
//! # What a container does
//!
//! Its command line (`command` and `args`; else the image's command) says:
//!
//! | command | what happens |
//! |---|---|
//! | none, or one not named here | runs until it is stopped, as a server does |
//! | `sleep N` (also `0.5`, `2m`, `infinity`) | exits 0 after that time |
//! | `exit N`, `true`, `false` | exits at once |
//! | `echo TEXT` | writes a line to its log, exits 0 |
//! | `cat FILE`, `touch FILE`, `rm FILE`, `test -f FILE` | work on mounted files of the host, else on small files of the container's own |
//! | `kill -9 1` | hits the container itself |
//! | `sh -c SCRIPT` | a sequence of these, with `;` `&` (the same) `&&` `\|\|`, quotes, `$VAR` of its environment, `> FILE` `>> FILE` `>&2`, `while true; do …; done`, `exec`, and `trap '' TERM` or `trap 'COMMANDS' TERM` |
//!
//! An unknown command that is not the last of a script does nothing, with success. A script that uses more of a
//! shell than this is a server. SIGTERM ends a container at once with 143, unless a trap says otherwise; SIGKILL with
//! 137. A trap's commands end the container. The same commands run by ExecSync, where unknown ones succeed.
//!
//! # Annotations
//!
//! On a container's config; on a sandbox's config for all its containers, or for the container NAME as
//! `NAME.fake.oxlet.dev/…`. Durations are Go's (`1.5s`).
//!
//! | `fake.oxlet.dev/…` | effect |
//! |---|---|
//! | `run-for` | runs so long in place of its command, then exits (0) |
//! | `exit-code` | the code of its own end; a server without `run-for` ends at once |
//! | `exit-reason` | the reason of its own end, such as `OOMKilled` |
//! | `attempts` | all of these count only for so many attempts; later ones just run their command |
//! | `log-lines`, `log-interval` | writes `line 1`, `line 2` … before anything else, that far apart |
//! | `termination-message` | is written where the container's termination message is mounted |
//! | `ignore-term` | `true`: only SIGKILL ends it |
//! | `stop-delay`, `term-exit-code` | how long it takes to end of a signal, and with which code |
//! | `create-delay`, `start-delay` | how much longer CreateContainer, StartContainer take |
//! | `create-error`, `start-error` | these calls fail with this text; a failed start ends the container with 128, StartError |
//! | `exec-exit-code` | the code of every ExecSync, and of every Exec of a command of the table above |
//! | `memory-bytes`, `cpu-millis` | what its stats show |
//! | `sandbox-delay`, `sandbox-error` | (pod only) RunPodSandbox takes longer, or fails |
//! | `sandbox-stays` | (pod only) `true`: StopPodSandbox answers as ever, and the sandbox stays ready |
//! | `sandbox-addressless` | (pod only) `true`: the sandbox is made and ready, and has no address |
//! | `ports` | (pod only) what is behind its ports: `80=127.0.0.1:8080,81=refused`; every other one echoes |
//!
//! # Streams
//!
//! Exec, Attach and PortForward answer a URL on a loopback address, good once and for a minute, where CRI's streaming
//! protocols are spoken: SPDY/3.1 (`v4.channel.k8s.io` and before, `portforward.k8s.io`), and WebSockets
//! (`v5.channel.k8s.io` and before, SPDY through a tunnel). Commands are those of the table above, each output in its
//! time; and with a stdin `cat`, which echoes its input, `sh` without a script, which runs each line and
//! prompts on a terminal, and `tar` as `kubectl cp` calls it, for small files. `stty size` prints the terminal's size.
//! An attached client sees what the container writes from then on; a container with `stdin` says back each line, and
//! one with `stdin_once` ends with the first client's.
//!
//! # Scripted faults
//!
//! The plugin's configuration, all of it optional:
//!
//! ```json
//! {
//!   "images": ["localhost/pause", {"name": "localhost/web:1", "uid": 1000, "command": ["sleep", "9"]}],
//!   "ip_range": "10.88.0.0/16",
//!   "runtime_handlers": ["fake"],
//!   "unpullable": ["absent"], "private": {"localhost/secret": "user:password"}, "pull_time": "200ms",
//!   "delays": {"RunPodSandbox": "50ms"},
//!   "faults": [
//!     {"call": "CreateContainer", "nth": 3, "code": "Unavailable", "message": "no"},
//!     {"call": "StartContainer", "every": 10, "hang": true},
//!     {"call": "RunPodSandbox", "subject": "default/web", "times": 1, "exit": true, "after_effect": true},
//!     {"call": "*", "delay": "5ms"}
//!   ],
//!   "runtime_ready": true, "network_ready": true, "cgroup_driver": "cgroupfs",
//!   "supplemental_groups_policy": true
//! }
//! ```
//!
//! A fault answers with an error (`code`, `message`), never answers (`hang`), ends the process (`exit`), or only
//! slows the call (`delay` alone); before the work is done, or `after_effect`. `subject` is a part of
//! `namespace/pod/container` or of an image's name. Counts begin anew with each process and each change of
//! the script. All but the first three lines and `private` may also stand in `faults.json` in the plugin's folder,
//! which takes effect at the next call after it has changed.
//!
//! # Limits
//!
//! Checkpoints of pods and metrics are answered Unimplemented. The checkpoint of a container
//! is a description of it, and cannot be restored. A GetContainerEvents stream that
//! falls 4096 events behind ends with DataLoss. A kill -9 may repeat a log line of a running script.
//! Nothing is synced to disk: state outlives the process, not the machine.

mod clock;
mod faults;
mod node;
mod program;
mod rpc;
mod service;
mod settings;
mod shared;
mod state;
mod streaming;

use std::path::PathBuf;
use std::sync::Arc;

pub use clock::Clock;
use proto::cri::image_service_server::ImageServiceServer;
use proto::cri::runtime_service_server::RuntimeServiceServer;
pub use rpc::{Calls, Rpc};
pub use service::{ImageCalls, RuntimeCalls};
pub use settings::annotations::AnnotationError;
pub use settings::duration::{DurationSetting, DurationSettingError};
pub use settings::{
    CgroupDriverSetting, FakeSettings, FaultCode, FaultScript, ImageSetting, ScriptedFault,
    SettingsError,
};
pub use state::address::{AddressRange, AddressRangeError};
pub use state::journal::{JournalError, Recovery};

/// Why a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum FakeOpenError {
    /// Its state cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no tokio runtime for its task.
    #[error("a simulated node needs a tokio runtime")]
    NoRuntime,
}

/// A simulated node. Clones are the same node; it ends, and its folder is free, when the last of
/// them and of its services is dropped.
#[derive(Clone, Debug)]
pub struct Fake {
    shared: Arc<shared::SharedNode>,
}

impl Fake {
    /// Opens the node that the folder holds, or makes a new one there.
    pub fn open(dir: PathBuf, settings: FakeSettings) -> Result<Fake, FakeOpenError> {
        Fake::open_at(dir, settings, Clock::start())
    }

    /// Opens a node with a clock of the caller's: a later generation goes on in the time of an earlier one.
    pub fn open_at(
        dir: PathBuf,
        settings: FakeSettings,
        clock: Clock,
    ) -> Result<Fake, FakeOpenError> {
        tokio::runtime::Handle::try_current().map_err(|_| FakeOpenError::NoRuntime)?;
        Ok(Fake {
            shared: shared::SharedNode::open(&dir, settings, clock)?,
        })
    }

    /// Returns CRI's RuntimeService of this node.
    pub fn runtime(&self) -> RuntimeServiceServer<RuntimeCalls> {
        let calls = RuntimeCalls::new(self.shared.clone());
        RuntimeServiceServer::new(calls).max_decoding_message_size(sdk::MESSAGE_LIMIT)
    }

    /// Returns CRI's ImageService of this node.
    pub fn images(&self) -> ImageServiceServer<ImageCalls> {
        let calls = ImageCalls::new(self.shared.clone());
        ImageServiceServer::new(calls).max_decoding_message_size(sdk::MESSAGE_LIMIT)
    }

    /// Returns both services as a plugin serves them.
    pub fn routes(&self) -> sdk::Routes {
        sdk::Routes::new(self.runtime()).add_service(self.images())
    }

    /// Returns what was found when the folder was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.shared.recovery
    }

    /// Follows this script from now on, in place of an earlier one. The script in `faults.json`, when it changes,
    /// replaces it.
    pub fn follow(&self, script: FaultScript) {
        self.shared.faults().follow(script);
    }

    /// Returns how often a call was made since the node was opened.
    pub fn calls(&self, rpc: Rpc) -> u64 {
        self.shared.faults().calls(rpc)
    }

    /// Has `observer` hear of each call and of its end, as lines.
    pub fn observe(&self, observer: impl FnMut(String) + Send + 'static) {
        self.shared.observe(Box::new(observer));
    }

    /// Kills a container, as SIGKILL to its process would; returns whether it ran.
    pub fn kill(&self, container_id: &str) -> bool {
        let mut node = self.shared.node();
        let found = node
            .container(container_id)
            .ok()
            .filter(|(_, container)| container.running())
            .map(|(seq, _)| seq);
        found.map(|seq| node.kill(seq)).is_some()
    }
}

/// Makes the plugin: `sdk::serve` calls this when the agent has configured it.
pub async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    let settings: FakeSettings = setup.parse()?;
    let fake = Fake::open(setup.dir.clone(), settings)?;
    setup.health.attribute(
        "backend",
        concat!("simulated containers ", env!("CARGO_PKG_VERSION")),
    );
    setup
        .health
        .attribute("records read", fake.recovery().records.to_string());
    setup.health.healthy();
    Ok(fake.routes())
}

/// Returns the plugin's answer to `Info`.
pub fn info() -> sdk::Info {
    sdk::Info {
        name: "runtime-fake",
        version: env!("CARGO_PKG_VERSION"),
        kind: sdk::Kind::Runtime,
        // Its journal has one writer: a successor starts when it has ended.
        capabilities: vec!["container-events", "alone"],
    }
}
