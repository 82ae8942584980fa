//! The handler of one type of plugins (upstream's pluginmanager/cache.PluginHandler, 1.36).

use std::fmt::Debug;
use std::time::Duration;

use proto::registration::PluginInfo;

use crate::RegistrationEvent;

/// A registered plugin, as its handler keeps it.
pub trait Plugin: Clone + Debug + Send + Sync + 'static {
    /// The version that decides between two sockets that give the same name.
    type Version: Send + Sync;

    /// Why the socket of this plugin is refused once another one with a higher version has taken its name.
    const REPLACED: &'static str;

    /// Returns the name that it registered.
    fn name(&self) -> &str;

    /// Returns the version that it registered.
    fn version(&self) -> &Self::Version;

    /// Tells whether another socket with `version` may take this plugin's name.
    ///
    /// # Errors
    /// A sentence for the other socket: why it may not.
    fn yield_to(&self, version: &Self::Version) -> Result<(), String>;
}

/// Validates and registers the plugins of one type.
pub trait PluginHandler: Send + Sync + 'static {
    /// The handler's type of a registered plugin.
    type Plugin: Plugin;

    /// The type that the handled plugins give in their PluginInfo, "CSIPlugin".
    const TYPE: &'static str;

    /// The plugins' name in logs, in the plural.
    const NOUN: &'static str;

    /// Checks what a plugin says of itself (ValidatePlugin). `may_register` tells whether the plugin's socket may have
    /// that name with that version.
    ///
    /// # Errors
    /// A sentence for the plugin.
    fn validate(
        &self,
        info: &PluginInfo,
        may_register: impl FnOnce(&str, &Version<Self>) -> Result<(), String>,
    ) -> Result<Version<Self>, String>;

    /// Asks the plugin itself what the handler needs of it (RegisterPlugin).
    ///
    /// # Errors
    /// A sentence for the plugin.
    fn register(
        &self,
        info: &PluginInfo,
        version: Version<Self>,
    ) -> impl Future<Output = Result<Self::Plugin, String>> + Send;

    /// Takes it that a plugin that was registered by that name has gone (DeRegisterPlugin), before subscribers hear of
    /// it. Must not wait.
    fn deregister(&self, _name: &str) {}

    /// Takes the names of all registered plugins, after every change and before its events.
    fn names_changed(&self, names: &[&str]);

    /// Logs an event, before subscribers get it.
    fn log(&self, event: &RegistrationEvent<Self::Plugin>);
}

/// Threads for work that may block.
pub trait BlockingCalls: Send + 'static {
    /// Does `work` on a thread and returns what it returns, or a sentence that says that `what` has not been done
    /// within that time.
    ///
    /// # Errors
    /// What `work` returns, or that it was not done.
    fn run<T: Send + 'static>(
        &self,
        what: &str,
        within: Duration,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send;
}

/// The version type of a handler's plugins.
pub type Version<H> = <<H as PluginHandler>::Plugin as Plugin>::Version;
