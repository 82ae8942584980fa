//! A plugin watcher: the plugins of one type that register by a socket in the agent's `plugins_registry`.
//!
//! - **Owns** the watcher of the folder.
//! - **Hears** that the manager of the plugins has started again: the one of dynamic resources, or the device manager.
//! - **Asks** the manager to take a plugin in, and tells it of one that has gone.
//! - **Never** touches plugins of other types: CSI drivers are registered by the storage plugin's process.
//!
//! Upstream: pkg/kubelet/pluginmanager, and cm/dra/plugin/registration.go for what registering means (1.36).

use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel::{Actor, Addr, Context, Exit};
use logic_placement::claims::{DriverName, validate_driver};
use proto::registration::PluginInfo;
use registration::{BlockingCalls, Plugin, PluginHandler, PluginRegistry, RegistrationEvent};
use serde::Serialize;

use super::Msg as Manager;

/// Room for the manager's restarts.
pub const MAILBOX: usize = 8;
/// The manager, which starts before, tells that it has.
const BEGIN_AFTER: Duration = Duration::from_secs(1);
/// The manager takes a driver in without waiting for it.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// Between a driver's name and its socket: neither has it.
const SEPARATOR: char = '\0';

/// The folder of the plugins' registration sockets, below the agent's root folder.
pub fn registration_folder(root_dir: &Path) -> PathBuf {
    root_dir.join("plugins_registry")
}

/// Messages of the plugin watcher.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Registers every plugin again: the manager has started, and knows none.
    Resync,
    /// Begins, unless a manager that has just started had it begin already.
    Begin,
}

/// Where plugins register.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub folder: PathBuf,
}

/// The plugin watcher.
#[derive(Debug)]
pub struct PluginWatcher<H: PluginHandler> {
    folder: PathBuf,

    handler: H,

    /// Ends with its watcher when it is dropped.
    registry: Option<PluginRegistry<H>>,
}

impl<H: PluginHandler + Clone> Actor for PluginWatcher<H> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        ctx.after(BEGIN_AFTER, Msg::Begin);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Resync => self.watch(),
            Msg::Begin if self.registry.is_none() => self.watch(),
            Msg::Begin => {}
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            folder: self.folder.clone(),
        }
    }
}

impl<H: PluginHandler + Clone> PluginWatcher<H> {
    /// A watcher below the agent's root folder.
    pub fn new(root_dir: &Path, handler: H) -> Self {
        PluginWatcher {
            folder: registration_folder(root_dir),
            handler,
            registry: None,
        }
    }

    /// Begins anew: every socket that is there is asked again.
    fn watch(&mut self) {
        let handler = self.handler.clone();
        let registry = PluginRegistry::start(self.folder.clone(), BlockingThreads, handler);
        self.registry = Some(registry);
    }
}

/// The threads of blocking work, for scans.
struct BlockingThreads;

impl BlockingCalls for BlockingThreads {
    async fn run<T: Send + 'static>(
        &self,
        what: &str,
        within: Duration,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        match tokio::time::timeout(within, kernel::spawn_blocking(work)).await {
            Ok(Ok(done)) => done,
            Ok(Err(failed)) => Err(format!("{what}: {failed}")),
            Err(_) => Err(format!("{what} did not end within {within:?}")),
        }
    }
}

/// A driver's socket. Several of one driver may be registered at once, while one instance takes over from another.
#[derive(Debug, Clone)]
pub struct DraPlugin {
    /// The driver's name and its socket.
    key: String,
}

impl Plugin for DraPlugin {
    /// Nothing decides between two sockets: both are registered.
    type Version = ();

    const REPLACED: &'static str = "another registration socket stands for this endpoint";

    fn name(&self) -> &str {
        &self.key
    }

    fn version(&self) -> &() {
        &()
    }

    fn yield_to(&self, (): &()) -> Result<(), String> {
        let (driver, socket) = parts(&self.key);
        let socket = socket.display();
        Err(format!(
            "endpoint {socket} already registered for DRA driver plugin {driver}"
        ))
    }
}

/// Registers drivers with the manager of dynamic resources.
#[derive(Debug, Clone)]
pub struct DraHandler {
    manager: Addr<Manager>,
}

impl DraHandler {
    pub fn new(manager: Addr<Manager>) -> Self {
        DraHandler { manager }
    }

    fn forget(&self, driver: DriverName, socket: PathBuf) -> Result<(), String> {
        let gone = Manager::Deregistered { driver, socket };
        self.manager.tell(gone).map_err(|full| full.to_string())
    }
}

impl PluginHandler for DraHandler {
    type Plugin = DraPlugin;

    const TYPE: &'static str = "DRAPlugin";
    const NOUN: &'static str = "DRA drivers";

    fn validate(
        &self,
        info: &PluginInfo,
        may_register: impl FnOnce(&str, &()) -> Result<(), String>,
    ) -> Result<(), String> {
        let (driver, socket) = (info.name.as_str().into(), Path::new(&info.endpoint));
        let service = validate_driver(&driver, socket, &info.supported_versions);
        service.map_err(|error| error.to_string())?;
        may_register(&key(info), &())
    }

    /// One that registers anew at the same socket is another instance, to which the connection is made anew.
    async fn register(&self, info: &PluginInfo, (): ()) -> Result<DraPlugin, String> {
        let (driver, socket) = (info.name.as_str(), PathBuf::from(&info.endpoint));
        self.forget(driver.into(), socket.clone())?;
        let registered = self
            .manager
            .ask(REGISTER_TIMEOUT, |reply| Manager::Registered {
                driver: driver.into(),
                socket,
                versions: info.supported_versions.clone(),
                reply,
            });
        let registered = registered.await.map_err(|error| error.to_string())?;
        registered.map_err(|error| error.to_string())?;
        Ok(DraPlugin { key: key(info) })
    }

    fn deregister(&self, name: &str) {
        let (driver, socket) = parts(name);
        if let Err(full) = self.forget(driver.clone(), socket) {
            tracing::warn!("DRA driver {driver} is gone, and the manager has not heard: {full}");
        }
    }

    fn names_changed(&self, _: &[&str]) {}

    fn log(&self, event: &RegistrationEvent<DraPlugin>) {
        match event {
            RegistrationEvent::Refused { socket, name, why } => {
                tracing::warn!(driver = name, "{socket}: {why}");
            }
            // The manager tells of them.
            RegistrationEvent::Registered(_)
            | RegistrationEvent::Gone(_)
            | RegistrationEvent::Synced => {}
        }
    }
}

fn key(info: &PluginInfo) -> String {
    format!("{}{SEPARATOR}{}", info.name, info.endpoint)
}

fn parts(key: &str) -> (DriverName, PathBuf) {
    let (driver, socket) = key.split_once(SEPARATOR).unwrap_or((key, ""));
    (driver.into(), socket.into())
}
