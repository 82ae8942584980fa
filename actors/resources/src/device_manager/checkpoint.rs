//! The checkpoint of the device manager: read at the start, written whenever something is allocated, and a while after a
//! list has changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel::{Context, Reply, TimerId};
use logic_placement::devices::checkpoint::{CheckpointEntry, DeviceCheckpoint, FILE_NAME};
use logic_placement::devices::{
    DeviceAllocation, DeviceAllocations, DeviceCallError, DevicesByNode,
};

use super::{DeviceManager, Msg, plugin};

/// Lists of devices come often where health flaps, and flash wears out: they are written together.
const SAVE_DELAY: Duration = Duration::from_secs(5);
/// How long a write of the checkpoint may take: a disk that takes longer hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// What a damaged file is renamed to.
const SET_ASIDE_SUFFIX: &str = ".damaged";

/// What has come of one write.
#[derive(Debug)]
pub struct CheckpointWrite {
    bytes: Vec<u8>,
    result: Result<(), String>,
}

/// The file, and those who wait until it is written.
#[derive(Debug)]
pub(super) struct CheckpointStore {
    path: PathBuf,
    /// As the file is, if that is known.
    content: Option<Vec<u8>>,
    writing: bool,
    /// Whether something has changed during the write.
    stale: bool,
    /// Those whose change is being written.
    in_flight: Vec<Waiting>,
    /// Those whose change is to be written next.
    waiting: Vec<Waiting>,
    timer: Option<TimerId>,
}

type Waiting = Reply<Result<(), DeviceCallError>>;

/// What the file had.
#[derive(Debug, Default)]
pub(super) struct Restored {
    pub allocations: DeviceAllocations,
    pub resources: Vec<String>,
}

impl CheckpointStore {
    pub(super) fn new(folder: &Path) -> Self {
        CheckpointStore {
            path: folder.join(FILE_NAME),
            content: None,
            writing: false,
            stale: false,
            in_flight: Vec::new(),
            waiting: Vec::new(),
            timer: None,
        }
    }

    /// Reads the file. One that is damaged is kept under another name, and costs what it held.
    pub(super) fn load(&mut self) -> Restored {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Restored::default(),
            Err(error) => {
                let path = self.path.display();
                tracing::error!("{path}: {error}; devices that pods hold are not known");
                return Restored::default();
            }
        };
        match DeviceCheckpoint::decode(&bytes) {
            Ok(found) => {
                self.content = Some(bytes);
                restored(found)
            }
            Err(flaw) => {
                self.set_aside(&flaw);
                Restored::default()
            }
        }
    }

    fn set_aside(&self, flaw: &dyn std::error::Error) {
        let mut aside = self.path.clone().into_os_string();
        aside.push(SET_ASIDE_SUFFIX);
        let text = format!("{}: {}", self.path.display(), kernel::error_chain(flaw));
        match fs::rename(&self.path, &aside) {
            Ok(()) => tracing::error!("{text}; it is kept as {}", Path::new(&aside).display()),
            Err(error) => tracing::error!("{text}; it cannot be set aside: {error}"),
        }
    }
}

/// An allocation whose answer does not read is lost alone, as upstream.
fn restored(found: DeviceCheckpoint) -> Restored {
    let mut allocations = DeviceAllocations::default();
    for entry in found.allocations {
        match plugin::decode_answer(&entry.answer.unwrap_or_default()) {
            Ok(answer) => {
                let devices = DevicesByNode(entry.devices.unwrap_or_default());
                let allocation = DeviceAllocation { devices, answer };
                let (pod, container) = (entry.pod.into(), &entry.container);
                allocations.insert(&pod, container, &entry.resource, allocation);
            }
            Err(error) => tracing::error!(
                "{} of container {} of pod {} is lost: {error}",
                entry.resource,
                entry.container,
                entry.pod
            ),
        }
    }
    let resources = found.registered.into_keys().collect();
    Restored {
        allocations,
        resources,
    }
}

impl DeviceManager {
    /// Writes the checkpoint, and answers once that is done.
    pub(super) fn save_and_answer(&mut self, reply: Waiting, ctx: &mut Context<Msg>) {
        self.checkpoint.waiting.push(reply);
        self.save(ctx);
    }

    /// Writes the checkpoint together with other changes.
    pub(super) fn save_later(&mut self, ctx: &mut Context<Msg>) {
        if self.checkpoint.timer.is_none() {
            self.checkpoint.timer = Some(ctx.after(SAVE_DELAY, Msg::Save));
        }
    }

    /// Writes the checkpoint now, or as soon as it is not being written.
    pub(super) fn save(&mut self, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.checkpoint.timer.take() {
            ctx.cancel(timer);
        }
        if self.checkpoint.writing {
            self.checkpoint.stale = true;
            return;
        }
        let bytes = self.checkpoint_bytes();
        let store = &mut self.checkpoint;
        store.stale = false;
        let waiting = std::mem::take(&mut store.waiting);
        if store.content.as_ref() == Some(&bytes) {
            waiting.into_iter().for_each(|reply| reply.send(Ok(())));
            return;
        }
        (store.writing, store.in_flight, store.content) = (true, waiting, None);
        let path = store.path.clone();
        ctx.run(async move {
            let (result, bytes) = write(path, bytes).await;
            Msg::Saved(CheckpointWrite { bytes, result })
        });
    }

    /// A write that failed fails those who waited for it, and is tried again.
    pub(super) fn saved(&mut self, write: CheckpointWrite, ctx: &mut Context<Msg>) {
        let store = &mut self.checkpoint;
        store.writing = false;
        for reply in std::mem::take(&mut store.in_flight) {
            reply.send(write.result.clone().map_err(DeviceCallError::NotKept));
        }
        match write.result {
            Ok(()) => store.content = Some(write.bytes),
            Err(error) => {
                tracing::error!("{}: {error}; it is tried again", store.path.display());
                self.save_later(ctx);
            }
        }
        if self.checkpoint.stale {
            self.save(ctx);
        }
    }

    fn checkpoint_bytes(&self) -> Vec<u8> {
        let allocations = self.allocations.iter();
        let entry = |(pod, container, resource, allocation): (_, &str, &str, &DeviceAllocation)| {
            let pod: &logic_api::types::PodUid = pod;
            CheckpointEntry {
                pod: pod.to_string(),
                container: container.to_owned(),
                resource: resource.to_owned(),
                devices: Some(allocation.devices.0.clone()),
                answer: Some(plugin::encode_answer(&allocation.answer)),
            }
        };
        let resources = self.inventory.resources();
        let registered = resources.map(|(name, resource)| {
            let ids = resource.healthy().map(|(id, _)| id.to_owned());
            (name.to_owned(), ids.collect())
        });
        let checkpoint = DeviceCheckpoint {
            allocations: allocations.map(entry).collect(),
            registered: registered.collect(),
        };
        checkpoint.encode()
    }
}

/// Writes the file beside and renames it: a power cut leaves the old one or the new one.
async fn write(path: PathBuf, bytes: Vec<u8>) -> (Result<(), String>, Vec<u8>) {
    let copy = bytes.clone();
    let work = kernel::spawn_blocking(move || replace(&path, &copy));
    let written = match tokio::time::timeout(WRITE_TIMEOUT, work).await {
        Ok(Ok(written)) => written,
        Ok(Err(panicked)) => Err(io::Error::other(panicked)),
        Err(_) => Err(ErrorKind::TimedOut.into()),
    };
    (written.map_err(|error| error.to_string()), bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let beside = folder.join(format!(".{FILE_NAME}.tmp"));
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}
