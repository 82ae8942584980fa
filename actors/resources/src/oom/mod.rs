//! Tells when the machine's memory ran out, and which process the kernel killed for it.
//!
//! - **Owns** its place in the kernel's messages, over restarts too: a kill is told once.
//! - **Hears** what the kernel has written.
//! - **Tells** the recorder an event of the node for each kill for want of the machine's memory. A container that ran into its own
//!   limit is told by the reason of its end.
//! - **Never** waits for the kernel, reads faster than it can tell, or ends where a machine keeps its messages to itself: that is
//!   said once.
//!
//! Upstream: pkg/kubelet/oom/oom_watcher_linux.go (1.36), which tells old kills again at each start. Decisions:
//! `logic_resources::oom`.

mod memory;
mod messages;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use host::kmsg;
use kernel::{Actor, Context, Exit};
use logic_resources::oom::{KmsgRecord, OomInstance, OomParser};
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};

use self::memory::KmsgPlace;
use self::messages::KernelMessages;

/// Room for its own results, of which there is one at a time.
pub const MAILBOX: usize = 8;
/// Before the messages are opened again after they could not be read.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
/// The reason of events, as upstream's.
const SYSTEM_OOM: &str = "SystemOOM";

/// Messages of the OOM watcher.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Opens the kernel's messages.
    Open,
    /// Takes in what the kernel has written of memory.
    Read(io::Result<Vec<KmsgRecord>>),
    /// Goes on: its place is on the disk, or is not.
    Placed(Result<(), String>),
}

/// The kills that the kernel has told.
#[derive(Debug, Default, Serialize)]
pub struct Snapshot {
    /// For want of the machine's memory, since the start.
    pub system: u64,
    /// For want of a group's memory, since the start.
    pub groups: u64,
    /// The last one of either.
    pub last: Option<OomInstance>,
    /// Why the kernel's messages are not read.
    pub error: Option<String>,
}

/// The OOM watcher's section of the configuration.
#[derive(Debug, Clone)]
pub struct OomConfig {
    pub node_name: String,
    /// `/dev/kmsg`.
    pub kmsg: PathBuf,
    /// The checkpoint of the place in the messages.
    pub checkpoint: PathBuf,
    /// Tells one boot of the machine from another.
    pub boot_id: String,
}

/// The OOM watcher.
#[derive(Debug)]
pub struct OomWatcher {
    config: OomConfig,
    recorder: Recorder,

    messages: Option<Rc<KernelMessages>>,
    parser: OomParser,
    place: KmsgPlace,
    told: Snapshot,
}

impl Actor for OomWatcher {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.place = KmsgPlace::load(&self.config.checkpoint, &self.config.boot_id);
        self.open(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Open => self.open(ctx),
            Msg::Read(read) => self.read(read, ctx),
            Msg::Placed(placed) => self.placed(placed, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            last: self.told.last.clone(),
            error: self.told.error.clone(),
            ..self.told
        }
    }
}

impl OomWatcher {
    pub fn new(config: OomConfig, recorder: Recorder) -> Self {
        OomWatcher {
            config,
            recorder,
            messages: None,
            parser: OomParser::default(),
            place: KmsgPlace::default(),
            told: Snapshot::default(),
        }
    }

    fn open(&mut self, ctx: &mut Context<Msg>) {
        match kmsg::open(&self.config.kmsg).and_then(KernelMessages::new) {
            Ok(messages) => {
                self.messages = Some(Rc::new(messages));
                self.told.error = None;
                self.read_on(ctx);
            }
            // The machine will not change its mind.
            Err(error) => {
                let path = self.config.kmsg.display();
                tracing::warn!("no kill for want of memory is told: {path}: {error}");
                self.told.error = Some(format!("{path}: {error}"));
            }
        }
    }

    fn read_on(&self, ctx: &mut Context<Msg>) {
        if let Some(messages) = self.messages.clone() {
            ctx.run(async move { Msg::Read(messages.next().await) });
        }
    }

    fn read(&mut self, read: io::Result<Vec<KmsgRecord>>, ctx: &mut Context<Msg>) {
        match read {
            Ok(records) => {
                for record in records {
                    self.record(record, ctx);
                }
                self.read_on(ctx);
            }
            Err(error) => {
                tracing::warn!("the kernel's messages cannot be read: {error}");
                self.told.error = Some(error.to_string());
                self.messages = None;
                ctx.after(RETRY_PERIOD, Msg::Open);
            }
        }
    }

    fn record(&mut self, record: KmsgRecord, ctx: &mut Context<Msg>) {
        let Some(oom) = self.parser.take(&record.message) else {
            return;
        };
        if !self.place.advance(record.sequence) {
            return;
        }
        self.keep_place(ctx);
        match oom.is_of_system() {
            true => {
                self.told.system += 1;
                let node = InvolvedObject::node(&self.config.node_name);
                let (now, message) = (ctx.timestamp(), oom.message());
                self.recorder
                    .record(now, EventType::Warning, node, SYSTEM_OOM, message);
            }
            false => {
                self.told.groups += 1;
                let (group, process, pid) = (&oom.victim, &oom.process, oom.pid);
                tracing::info!(group, process, pid, "a group's memory ran out");
            }
        }
        self.told.last = Some(oom);
    }

    fn keep_place(&mut self, ctx: &mut Context<Msg>) {
        if let Some(write) = self.place.write() {
            ctx.run(async move { Msg::Placed(write.await) });
        }
    }

    fn placed(&mut self, placed: Result<(), String>, ctx: &mut Context<Msg>) {
        if let Err(why) = placed {
            tracing::warn!("kills may be told again after a restart: {why}");
        }
        self.place.written();
        self.keep_place(ctx);
    }
}
