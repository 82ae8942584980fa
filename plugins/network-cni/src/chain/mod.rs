//! The verbs of CNI, each over the chain of a network: what libcni does (`libcni/api.go`, 1.3), with bounds.

mod error;
mod process;
mod stdin;
mod step;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blocking_pool::BlockingPool;
use rustix::fs::{Access, access};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use self::error::Cause;
pub(crate) use self::error::ChainError;
pub use self::error::CniError;
use self::process::{Invocation, Output};
pub use self::step::{Call, Preparation, Programs, Step, Steps, Sweep, Work};
use crate::attachments::{Attachment, AttachmentId};
use crate::conflist::{Network, PluginConf};
use crate::result::{CniResult, ResultError};
use crate::version::Version;

/// Marks the processes of a plugin with its folder: a successor finds those that outlived it, and `oxlet-cni` refuses
/// to call the plugin from within.
pub(crate) const MARK: &str = "OXLET_NETWORK_DIR";

/// Processes at once: enough for a node that starts with all its pods, few enough for a small board.
const PROCESSES_MAX: usize = 64;
/// Looking for a program touches the disk.
const FIND_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs chains. Clones share the bound of processes.
#[derive(Clone, Debug)]
pub(crate) struct Chains {
    bin_dirs: Arc<[PathBuf]>,
    mark: Arc<str>,
    pool: BlockingPool,
    steps: Arc<dyn Steps>,
    /// Where steps that are built in are done: one that waits for a lock keeps no look at a file waiting.
    threads: BlockingPool,
    processes: Arc<Semaphore>,
}

/// Where the steps of chains are done.
#[derive(Debug)]
pub(crate) struct Doers {
    pub(crate) bin_dirs: Vec<PathBuf>,
    pub(crate) mark: String,
    pub(crate) pool: BlockingPool,
    pub(crate) steps: Arc<dyn Steps>,
    pub(crate) threads: BlockingPool,
}

/// A verb of CNI about one attachment, or about a network.
#[derive(Clone, Copy, Debug)]
struct Verb<'a> {
    name: &'static str,
    network: &'a Network,
    attachment: Option<&'a Attachment>,
    /// What is put into the configuration of each plugin beside its name and version.
    more: &'a Map<String, Value>,
    end: Instant,
}

impl Chains {
    pub(crate) fn new(doers: Doers) -> Self {
        Self {
            bin_dirs: doers.bin_dirs.into(),
            mark: doers.mark.into(),
            pool: doers.pool,
            steps: doers.steps,
            threads: doers.threads,
            processes: Arc::new(Semaphore::new(PROCESSES_MAX)),
        }
    }

    /// Makes an attachment: every plugin in order, each given the result of the one before.
    pub(crate) async fn add(&self, of: &Attachment, end: Instant) -> Result<CniResult, ChainError> {
        let verb = Verb::about("ADD", of, end);
        let mut result = None;
        for plugin in &of.network.plugins {
            let answer = self.call(verb, plugin, result.as_ref()).await?;
            let read = answer.read(of.network.version);
            result = Some(read.map_err(|error| verb.failed(plugin, Cause::Result(error)))?);
        }
        Ok(result.unwrap_or_default())
    }

    /// Takes an attachment away: every plugin in reverse order, each given the result of ADD where it is known.
    pub(crate) async fn del(&self, of: &Attachment, end: Instant) -> Result<(), ChainError> {
        let verb = Verb::about("DEL", of, end);
        let result = of.result.as_ref();
        let result = result.filter(|_| of.network.version.has_check());
        for plugin in of.network.plugins.iter().rev() {
            self.call(verb, plugin, result).await?;
        }
        Ok(())
    }

    /// Checks an attachment that is there.
    pub(crate) async fn check(&self, of: &Attachment, end: Instant) -> Result<(), ChainError> {
        if of.network.disable_check || !of.network.version.has_check() {
            return Ok(());
        }
        let verb = Verb::about("CHECK", of, end);
        for plugin in &of.network.plugins {
            self.call(verb, plugin, of.result.as_ref()).await?;
        }
        Ok(())
    }

    /// Tells whether a network takes an ADD now: its programs are there and, since 1.1.0, say so.
    pub(crate) async fn status(&self, network: &Network, end: Instant) -> Result<(), ChainError> {
        let none = Map::new();
        let verb = Verb {
            name: "STATUS",
            network,
            attachment: None,
            more: &none,
            end,
        };
        for plugin in &network.plugins {
            if let Step::Program { why, .. } = self.steps.step(Call::new(verb, plugin, None)) {
                self.find(verb, plugin, &why).await?;
            }
        }
        if network.version.has_gc_and_status() {
            for plugin in &network.plugins {
                self.call(verb, plugin, None).await?;
            }
        }
        Ok(())
    }

    /// Has every plugin drop what belongs to none of the valid attachments. All are asked, whoever fails.
    pub(crate) async fn gc(
        &self,
        network: &Network,
        valid: &[AttachmentId],
        end: Instant,
    ) -> Vec<ChainError> {
        if network.disable_gc || !network.version.has_gc_and_status() {
            return Vec::new();
        }
        let more = stdin::valid_attachments(valid);
        let verb = Verb {
            name: "GC",
            network,
            attachment: None,
            more: &more,
            end,
        };
        let mut failed = Vec::new();
        for plugin in &network.plugins {
            failed.extend(self.call(verb, plugin, None).await.err());
        }
        failed
    }

    async fn call(
        &self,
        verb: Verb<'_>,
        plugin: &PluginConf,
        result: Option<&CniResult>,
    ) -> Result<Answer, ChainError> {
        match self.steps.step(Call::new(verb, plugin, result)) {
            Step::BuiltIn(work) => {
                let done = self.on_thread(verb, plugin, work).await;
                done.map(Answer::Result)
            }
            Step::Program { why, first, then } => {
                if let Some(prepare) = first {
                    self.on_thread(verb, plugin, prepare).await?;
                }
                let said = self.program(verb, plugin, (result, &why)).await;
                let Some(sweep) = then else {
                    return said.map(Answer::Output);
                };
                match (self.on_thread(verb, plugin, sweep).await?, said) {
                    (true, Err(error)) => {
                        tracing::info!("what was made without programs is taken away: {error}");
                        Ok(Answer::Result(CniResult::default()))
                    }
                    (_, said) => said.map(Answer::Output),
                }
            }
        }
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        verb: Verb<'_>,
        plugin: &PluginConf,
        work: impl FnOnce() -> Result<T, CniError> + Send + 'static,
    ) -> Result<T, ChainError> {
        let what = format!("{} of plugin {}", verb.name, plugin.plugin_type);
        let within = verb.end.saturating_duration_since(Instant::now());
        let done = self.threads.run(&what, within, move || Ok(work()));
        let done = done.await;
        let done = done.map_err(|status| verb.failed(plugin, Cause::Files(status)))?;
        done.map_err(|error| verb.failed(plugin, Cause::Said(error)))
    }

    async fn program(
        &self,
        verb: Verb<'_>,
        plugin: &PluginConf,
        (result, why): (Option<&CniResult>, &str),
    ) -> Result<Output, ChainError> {
        let program = self.find(verb, plugin, why).await?;
        let place = timeout_at(verb.end, self.processes.acquire()).await;
        let place = place.map_err(|_| verb.failed(plugin, Cause::Busy))?;
        let invocation = Invocation {
            program,
            environment: self.environment(verb),
            input: Value::Object(stdin::configuration(verb, plugin, result))
                .to_string()
                .into_bytes(),
        };
        let output = process::run(invocation, verb.end).await;
        drop(place);
        let output = output.map_err(|error| verb.failed(plugin, Cause::Process(error)))?;
        match output.status.success() {
            true => Ok(output),
            false => Err(verb.failed(plugin, Cause::Said(words(&output)))),
        }
    }

    /// Finds a plugin's program as libcni does: the first folder that has it.
    async fn find(
        &self,
        verb: Verb<'_>,
        plugin: &PluginConf,
        why: &str,
    ) -> Result<PathBuf, ChainError> {
        let (dirs, name) = (self.bin_dirs.clone(), plugin.plugin_type.clone());
        let what = format!("looking for plugin {name}");
        let within = FIND_TIMEOUT.min(verb.end.saturating_duration_since(Instant::now()));
        let found = self.pool.run(&what, within, move || {
            let mut paths = dirs.iter().map(|dir| dir.join(&name));
            Ok(paths.find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok()))
        });
        match found.await {
            Ok(Some(path)) => Ok(path),
            Ok(None) => Err(verb.failed(
                plugin,
                Cause::Missing {
                    plugin: plugin.plugin_type.clone(),
                    path: self.path(" "),
                    why: why.to_owned(),
                },
            )),
            Err(status) => Err(verb.failed(plugin, Cause::Files(status))),
        }
    }

    fn path(&self, separator: &str) -> String {
        let dirs: Vec<_> = self
            .bin_dirs
            .iter()
            .map(|dir| dir.to_string_lossy())
            .collect();
        dirs.join(separator)
    }

    fn environment(&self, verb: Verb<'_>) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            (MARK, self.mark.to_string()),
            ("CNI_COMMAND", verb.name.to_owned()),
            ("CNI_PATH", self.path(":")),
        ];
        // The folder that is this plugin's alone is its CNI plugins' as well.
        environment.extend(
            std::env::var("TMPDIR")
                .ok()
                .map(|folder| ("TMPDIR", folder)),
        );
        if let Some(of) = verb.attachment {
            environment.extend([
                ("CNI_CONTAINERID", of.id.sandbox.clone()),
                ("CNI_NETNS", of.netns.clone()),
                ("CNI_IFNAME", of.id.interface.clone()),
                ("CNI_ARGS", of.arguments()),
            ]);
        }
        environment
    }
}

impl<'a> Verb<'a> {
    fn about(name: &'static str, of: &'a Attachment, end: Instant) -> Self {
        Self {
            name,
            network: &of.network,
            attachment: Some(of),
            more: &of.capabilities,
            end,
        }
    }

    fn failed(&self, plugin: &PluginConf, cause: Cause) -> ChainError {
        ChainError {
            network: self.network.name.clone(),
            plugin: plugin.plugin_type.clone(),
            verb: self.name,
            cause,
        }
    }
}

/// What a step of a chain came to.
#[derive(Debug)]
enum Answer {
    Result(CniResult),
    Output(Output),
}

impl Answer {
    fn read(self, version: Version) -> Result<CniResult, ResultError> {
        match self {
            Self::Result(result) => Ok(result),
            Self::Output(output) => CniResult::parse(&output.stdout, version),
        }
    }
}

/// A plugin's error: its JSON, or what else it said, as libcni takes it.
fn words(output: &Output) -> CniError {
    if let Ok(error) = serde_json::from_slice::<CniError>(&output.stdout)
        && !error.msg.is_empty()
    {
        return error;
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let msg = match (output.stderr.as_str(), stdout.trim()) {
        ("", "") => format!("no error message, {}", output.status),
        ("", said) | (said, _) => format!("{}: {said}", output.status),
    };
    CniError {
        msg,
        ..CniError::default()
    }
}
