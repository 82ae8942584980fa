//! A double of systemd for slices: a D-Bus of its own, with a service that makes and removes folders as systemd does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use zbus::connection::{Builder, Connection};
use zbus::object_server::SignalEmitter;
use zbus::{OwnedObjectPath, OwnedVariant};

use super::bus::PrivateBus;

const PATH: &str = "/org/freedesktop/systemd1";

/// The slices by name, each with its properties as text.
pub type Slices = BTreeMap<String, BTreeMap<String, String>>;

/// A D-Bus daemon, and the double of systemd on it.
#[derive(Debug)]
pub struct SystemdDouble {
    bus: PrivateBus,
    _connection: Connection,
    state: Arc<Mutex<SystemdState>>,
}

#[derive(Debug, Default)]
struct SystemdState {
    /// The mount point of the unified tree.
    top: PathBuf,
    slices: Slices,
    jobs: u32,
    /// What the next job ends with; `done` where it is none.
    fault: Option<String>,
}

struct Manager(Arc<Mutex<SystemdState>>);

type UnitProperties = Vec<(String, OwnedVariant)>;

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: UnitProperties,
        _aux: Vec<(String, UnitProperties)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, SystemdRefusal> {
        let job = {
            let mut state = self.0.lock().expect("no holder panics");
            if mode != "replace" || !name.ends_with(".slice") {
                return Err(SystemdRefusal::InvalidName(name));
            }
            if state.slices.contains_key(&name) {
                return Err(SystemdRefusal::UnitExists(name));
            }
            if state.fault.is_none() {
                let folder = folder(&state.top, &name);
                fs::create_dir_all(folder).map_err(|e| SystemdRefusal::Failed(e.to_string()))?;
                state.slices.insert(name.clone(), texts(&properties));
            }
            state.job()
        };
        end(&emitter, job, &name).await
    }

    async fn stop_unit(
        &self,
        name: String,
        _mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, SystemdRefusal> {
        let job = {
            let mut state = self.0.lock().expect("no holder panics");
            if state.slices.remove(&name).is_none() {
                return Err(SystemdRefusal::NoSuchUnit(name));
            }
            remove_group(&folder(&state.top, &name));
            state.job()
        };
        end(&emitter, job, &name).await
    }

    fn reset_failed_unit(&self, name: String) -> Result<(), SystemdRefusal> {
        Err(SystemdRefusal::NoSuchUnit(name))
    }

    fn set_unit_properties(
        &self,
        name: String,
        runtime: bool,
        properties: UnitProperties,
    ) -> Result<(), SystemdRefusal> {
        let mut state = self.0.lock().expect("no holder panics");
        match state.slices.get_mut(&name) {
            Some(slice) if runtime => {
                slice.extend(texts(&properties));
                Ok(())
            }
            Some(_) | None => Err(SystemdRefusal::NoSuchUnit(name)),
        }
    }

    #[zbus(property)]
    fn version(&self) -> String {
        "252.38-1~deb12u1".to_owned()
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;
}

/// systemd's own errors.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum SystemdRefusal {
    #[zbus(error)]
    ZBus(zbus::Error),
    UnitExists(String),
    NoSuchUnit(String),
    InvalidName(String),
    Failed(String),
}

impl SystemdState {
    fn job(&mut self) -> (u32, String) {
        self.jobs += 1;
        let result = self.fault.take().unwrap_or_else(|| "done".to_owned());
        (self.jobs, result)
    }
}

/// Ends a job before its caller knows its path, as a fast systemd does.
async fn end(
    emitter: &SignalEmitter<'_>,
    (id, result): (u32, String),
    unit: &str,
) -> Result<OwnedObjectPath, SystemdRefusal> {
    let path = OwnedObjectPath::try_from(format!("{PATH}/job/{id}"))
        .map_err(|error| SystemdRefusal::Failed(error.to_string()))?;
    Manager::job_removed(emitter, id, path.clone(), unit, &result).await?;
    Ok(path)
}

/// Numbers without their type.
fn text(value: &OwnedVariant) -> String {
    let text = value.to_string();
    let bare = text.strip_prefix("uint64 ").map(str::to_owned);
    bare.unwrap_or(text)
}

fn texts(properties: &UnitProperties) -> BTreeMap<String, String> {
    let texts = properties
        .iter()
        .map(|(name, value)| (name.clone(), text(value)));
    texts.collect()
}

/// systemd removes a group without processes, and the kernel its files with it; one with processes or groups stays.
fn remove_group(folder: &Path) {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    if !processes.is_empty() || paths.iter().any(|path| path.is_dir()) {
        return;
    }
    // A group that is gone is as good as one that is removed.
    paths.iter().for_each(|path| drop(fs::remove_file(path)));
    drop(fs::remove_dir(folder));
}

/// Where a slice's group is: each prefix of its name is a folder.
fn folder(top: &Path, unit: &str) -> PathBuf {
    let name = unit.trim_end_matches(".slice");
    let ends = name
        .match_indices('-')
        .map(|(at, _)| at)
        .chain([name.len()]);
    let parts = ends.map(|end| format!("{}.slice", &name[..end]));
    parts.fold(top.to_owned(), |above, part| above.join(part))
}

impl SystemdDouble {
    /// Starts a bus, and a systemd on it whose groups are folders below `top`.
    pub async fn start(top: &Path) -> Result<SystemdDouble> {
        let bus = PrivateBus::start()?;
        let state = Arc::new(Mutex::new(SystemdState {
            top: top.to_owned(),
            ..SystemdState::default()
        }));
        let connection = Builder::address(bus.address())
            .name("org.freedesktop.systemd1")
            .serve_at(PATH, Manager(state.clone()))
            .build()
            .await?;
        Ok(SystemdDouble {
            bus,
            _connection: connection,
            state,
        })
    }

    /// Returns where the bus listens, as `DBUS_SYSTEM_BUS_ADDRESS` has it.
    pub fn address(&self) -> &str {
        self.bus.address()
    }

    /// The slices that were made and not stopped.
    pub fn slices(&self) -> Slices {
        self.state.lock().expect("no holder panics").slices.clone()
    }

    /// Has the next job end with this result, without an effect.
    pub fn fail_next(&self, result: &str) {
        self.state.lock().expect("no holder panics").fault = Some(result.to_owned());
    }
}
