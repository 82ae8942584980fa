//! The life of one generation of a plugin, from its start to its proven end, with an update at each step.

mod external;
mod handshake;
pub(crate) mod update;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernel::Addr;
use kernel::watch;
use proto::plugin::DrainRequest;
use proto::plugin::plugin_client::PluginClient as BaseClient;
use tokio::time::timeout;
use tonic::transport::Channel;

use self::update::{GenerationCommand, GenerationEvent, GenerationExit, GenerationUpdate};
use crate::client::PluginClient;
use crate::confinement::{Confiner, LaunchSpec};
use crate::connection::own;
use crate::declaration::{Declaration, LaunchMethod};
use crate::message::Msg;
use crate::process::pid_file::{PidFile, is_stuck};
use crate::process::socket::{PluginSocket, private_folder};
use crate::process::termination::PREDECESSOR_GENERATION;
use crate::process::{PluginProcess, SpawnSpec};

/// Beyond the deadline that a plugin was given for its drain.
const DRAIN_SLACK: Duration = Duration::from_millis(500);

/// The task of one generation, and everything that it needs.
pub(super) struct GenerationTask {
    pub(super) generation: u64,
    pub(super) declaration: Arc<Declaration>,
    pub(super) line: PluginClient,
    pub(super) folder: Arc<Path>,
    pub(super) confiner: Option<Arc<Confiner>>,
    /// The socket to serve, for a process of ours; or why there is none.
    pub(super) socket: Result<Option<Arc<PluginSocket>>, String>,
    /// A process that an earlier incarnation of the host has started.
    pub(super) inherited: Option<PluginProcess>,
    pub(super) orders: watch::Receiver<GenerationCommand>,
    pub(super) host: Addr<Msg>,
}

impl GenerationTask {
    /// Runs the generation, and returns the message of its end.
    pub(super) async fn live(self) -> Msg {
        let end = match (&self.declaration.start, self.socket.clone()) {
            (LaunchMethod::External { endpoint }, _) => self.external(endpoint).await,
            (LaunchMethod::Managed { command, .. }, Ok(Some(socket))) => {
                self.managed(command, socket).await
            }
            (LaunchMethod::Managed { .. }, Ok(None)) => failed("it has no socket"),
            (LaunchMethod::Managed { .. }, Err(why)) => failed(why),
        };
        Msg::Generation(GenerationUpdate {
            generation: self.generation,
            event: GenerationEvent::Ended(end),
        })
    }

    async fn managed(&self, program: &Path, socket: Arc<PluginSocket>) -> GenerationExit {
        let control = own(&socket.path());
        let process = match self.process(program, socket).await {
            Ok(process) => process,
            Err(why) => return failed(why),
        };
        self.tell(GenerationEvent::Started { pid: process.pid() })
            .await;
        // Each arm only waits; what the losing ones have received is of no use any more.
        let end = tokio::select! {
            biased;
            exit = process.dead() => {
                GenerationExit::Failed { why: format!("plugin {} ended: {exit}", self.declaration.name), exit: Some(exit) }
            }
            () = self.ordered() => GenerationExit::Finished { exit: Some(self.finish(&process, &control).await) },
            error = self.attend(&control) => {
                tracing::warn!(plugin = self.declaration.name, pid = process.pid(), "{error}; ending it");
                let exit = self.terminate(&process).await;
                GenerationExit::Failed { why: error.to_string(), exit: Some(exit) }
            }
        };
        self.line.forget(self.generation);
        end
    }

    /// Returns the process of this generation: inherited, or started after its predecessor's end.
    async fn process(
        &self,
        program: &Path,
        socket: Arc<PluginSocket>,
    ) -> Result<PluginProcess, String> {
        if let Some(process) = &self.inherited {
            return Ok(process.clone());
        }
        let name = &self.declaration.name;
        let dir = self.folder.join(name);
        let record = PidFile::new(self.folder.join(format!("{name}.pid")));
        // While a swap runs, the process written down is the one that still serves.
        if self.line.persistent().processes.is_empty() {
            let ended = self.end_predecessors(&record).await;
            ended
                .map_err(|error| format!("cannot end the predecessor of plugin {name}: {error}"))?;
        }
        let mut birth = SpawnSpec {
            declaration: self.declaration.clone(),
            generation: self.generation,
            socket,
            dir,
            confined: None,
        };
        let line = self.line.clone();
        let (confiner, folder) = (self.confiner.clone(), self.folder.clone());
        let spawning = self.line.spawning().await;
        let spawned = kernel::spawn_blocking(move || {
            private_folder(&birth.dir)?;
            let others: Vec<u64> = line.persistent().processes.keys().copied().collect();
            birth.confined = confiner.map(|confiner| {
                confiner.prepare(&LaunchSpec {
                    declaration: &birth.declaration,
                    generation: birth.generation,
                    folder: &folder,
                    others: &others,
                })
            });
            let process = PluginProcess::spawn(&birth)?;
            record.write(process.pid());
            // Here and not by the waiting task, which may be aborted: no process goes unnoticed.
            line.persistent()
                .processes
                .insert(birth.generation, process.clone());
            drop(spawning);
            Ok::<_, std::io::Error>(process)
        });
        let process = spawned.await.map_err(std::io::Error::other).flatten();
        let cannot =
            |why: String| format!("cannot start plugin {name}: {}: {why}", program.display());
        let process = process.map_err(|error| cannot(error.to_string()))?;
        match self.executed(&process).await {
            Ok(()) => Ok(process),
            Err(why) => {
                self.terminate(&process).await;
                Err(cannot(why))
            }
        }
    }

    /// Waits until the process has confined itself and runs its program.
    async fn executed(&self, process: &PluginProcess) -> Result<(), String> {
        let within = self.declaration.start_within;
        match timeout(within, process.executed()).await {
            Ok(executed) => executed,
            Err(_) => Err(format!("it has not confined itself within {within:?}")),
        }
    }

    /// Ends the processes of earlier agents. Those of this agent that are abandoned were ended before.
    async fn end_predecessors(&self, record: &PidFile) -> std::io::Result<()> {
        let mut living = record.living()?;
        let known = self.line.abandonments();
        living.retain(|process| {
            !known
                .borrow()
                .iter()
                .any(|other| other.pid == process.pid())
        });
        let ends = living.iter().map(|process| {
            tracing::warn!(
                pid = process.pid(),
                "ending the plugin process of an earlier agent"
            );
            let timeouts = self.declaration.termination_timeouts();
            let timeouts = match is_stuck(process.pid()) {
                true => timeouts.none(),
                false => timeouts,
            };
            self.line
                .terminate(PREDECESSOR_GENERATION, process, timeouts)
        });
        futures_util::future::join_all(ends).await;
        Ok(())
    }

    /// Lets a process finish what it has begun, then ends it; returns how it ended.
    async fn finish(&self, process: &PluginProcess, control: &Channel) -> String {
        let declaration = &self.declaration;
        let within = declaration.drain_within;
        let deadline_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        let mut client = BaseClient::new(control.clone());
        let drain = timeout(
            within + DRAIN_SLACK,
            client.drain(DrainRequest { deadline_ms }),
        );
        tokio::select! {
            exit = process.dead() => return exit,
            drained = drain => match drained {
                Ok(Ok(answer)) if answer.get_ref().abandoned == 0 => {}
                Ok(Ok(answer)) => {
                    let abandoned = answer.get_ref().abandoned;
                    tracing::warn!(plugin = declaration.name, abandoned, "calls were still in flight at the deadline");
                }
                Ok(Err(status)) => tracing::warn!(plugin = declaration.name, %status, "cannot drain"),
                Err(_) => tracing::warn!(plugin = declaration.name, "no answer to Drain"),
            }
        }
        self.terminate(process).await
    }

    async fn terminate(&self, process: &PluginProcess) -> String {
        let timeouts = self.declaration.termination_timeouts();
        self.line
            .terminate(self.generation, process, timeouts)
            .await
    }

    async fn ordered(&self) {
        let mut orders = self.orders.clone();
        // A host that is gone gives no orders; this task ends with it.
        if orders
            .wait_for(|order| *order == GenerationCommand::Finish)
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }

    async fn tell(&self, event: GenerationEvent) {
        let generation = self.generation;
        self.host
            .deliver(Msg::Generation(GenerationUpdate { generation, event }))
            .await;
    }
}

fn failed(why: impl Into<String>) -> GenerationExit {
    GenerationExit::Failed {
        why: why.into(),
        exit: None,
    }
}
