//! The life of one generation of a plugin, from its start to its proven end, told as it goes.

mod external;
mod handshake;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::plugin::DrainRequest;
use proto::plugin::plugin_client::PluginClient;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::transport::Channel;

use super::abandoned::EARLIER;
use super::channel::Line;
use super::connection::direct;
use super::declaration::{Declaration, Start};
use super::health::Report;
use super::host::Msg;
use super::predecessor::{Record, is_stuck};
use super::process::{Birth, Process};
use super::socket::{Socket, private_folder};
use crate::mailbox::Addr;

/// Beyond the deadline that a plugin was given for its drain.
const DRAIN_SLACK: Duration = Duration::from_millis(500);

/// What a generation of a plugin tells its host.
#[derive(Debug)]
pub struct News {
    pub(super) generation: u64,
    pub(super) event: Event,
}

#[derive(Debug)]
pub(super) enum Event {
    /// It has a process.
    Started { pid: u32 },
    /// It said who it is.
    Introduced(Introduction),
    /// It said how it is. The first report makes it ready.
    Reported(Report),
    /// It cannot be reached yet.
    Unreachable { why: String },
    /// It is no more.
    Ended(End),
}

/// Who a plugin says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) program: String,
    pub(super) capabilities: Vec<String>,
}

/// How a generation ended.
#[derive(Debug)]
pub(super) enum End {
    /// As it was ordered to.
    Finished { exit: Option<String> },
    /// By itself, or because it was of no use.
    Failed { why: String, exit: Option<String> },
}

/// What a host orders a generation to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Serve,
    Finish,
}

/// Everything that a generation lives on.
pub(super) struct Life {
    pub(super) generation: u64,
    pub(super) declaration: Arc<Declaration>,
    pub(super) line: Line,
    pub(super) folder: Arc<Path>,
    /// The socket to serve, for a process of ours; or why there is none.
    pub(super) socket: Result<Option<Arc<Socket>>, String>,
    /// A process that an earlier incarnation of the host has started.
    pub(super) inherited: Option<Process>,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) host: Addr<Msg>,
}

impl Life {
    /// Lives, and brings the news of the end.
    pub(super) async fn live(self) -> Msg {
        let end = match (&self.declaration.start, self.socket.clone()) {
            (Start::External { endpoint }, _) => self.external(endpoint).await,
            (Start::Managed { command, .. }, Ok(Some(socket))) => {
                self.managed(command, socket).await
            }
            (Start::Managed { .. }, Ok(None)) => failed("it has no socket"),
            (Start::Managed { .. }, Err(why)) => failed(why),
        };
        Msg::News(News {
            generation: self.generation,
            event: Event::Ended(end),
        })
    }

    async fn managed(&self, program: &Path, socket: Arc<Socket>) -> End {
        let control = direct(&socket.path());
        let process = match self.process(program, socket).await {
            Ok(process) => process,
            Err(why) => return failed(why),
        };
        self.tell(Event::Started { pid: process.pid() }).await;
        // Each arm only waits; what the losing ones have heard is of no use any more.
        let end = tokio::select! {
            biased;
            exit = process.dead() => {
                End::Failed { why: format!("plugin {} ended: {exit}", self.declaration.name), exit: Some(exit) }
            }
            () = self.ordered() => End::Finished { exit: Some(self.finish(&process, &control).await) },
            trouble = self.attend(&control) => {
                tracing::warn!(plugin = self.declaration.name, pid = process.pid(), "{trouble}; ending it");
                let exit = self.terminate(&process).await;
                End::Failed { why: trouble.to_string(), exit: Some(exit) }
            }
        };
        self.line.forget(self.generation);
        end
    }

    /// Returns the process of this generation: inherited, or started after its predecessor's end.
    async fn process(&self, program: &Path, socket: Arc<Socket>) -> Result<Process, String> {
        if let Some(process) = &self.inherited {
            return Ok(process.clone());
        }
        let name = &self.declaration.name;
        let dir = self.folder.join(name);
        let record = Record::new(self.folder.join(format!("{name}.pid")));
        // While a swap runs, the process written down is the one that still serves.
        if self.line.estate().processes.is_empty() {
            let ended = self.end_predecessors(&record).await;
            ended
                .map_err(|error| format!("cannot end the predecessor of plugin {name}: {error}"))?;
        }
        let birth = Birth {
            declaration: self.declaration.clone(),
            generation: self.generation,
            socket,
            dir,
        };
        let line = self.line.clone();
        let spawning = self.line.spawning().await;
        let spawned = tokio::task::spawn_blocking(move || {
            private_folder(&birth.dir)?;
            let process = Process::spawn(&birth)?;
            record.write(process.pid());
            // Here and not by the waiting task, which may be aborted: no process goes unnoticed.
            line.estate()
                .processes
                .insert(birth.generation, process.clone());
            drop(spawning);
            Ok::<_, std::io::Error>(process)
        });
        let process = spawned.await.map_err(std::io::Error::other).flatten();
        process
            .map_err(|error| format!("cannot start plugin {name}: {}: {error}", program.display()))
    }

    /// Ends the processes of earlier agents. Those of this agent that are abandoned were ended before.
    async fn end_predecessors(&self, record: &Record) -> std::io::Result<()> {
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
            let patience = self.declaration.patience();
            let patience = match is_stuck(process.pid()) {
                true => patience.none(),
                false => patience,
            };
            self.line.terminate(EARLIER, process, patience)
        });
        futures_util::future::join_all(ends).await;
        Ok(())
    }

    /// Lets a process finish what it has begun, then ends it; returns how it ended.
    async fn finish(&self, process: &Process, control: &Channel) -> String {
        let declaration = &self.declaration;
        let within = declaration.drain_within;
        let deadline_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        let mut client = PluginClient::new(control.clone());
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

    async fn terminate(&self, process: &Process) -> String {
        let patience = self.declaration.patience();
        self.line
            .terminate(self.generation, process, patience)
            .await
    }

    async fn ordered(&self) {
        let mut orders = self.orders.clone();
        // A host that is gone gives no orders; this task ends with it.
        if orders
            .wait_for(|order| *order == Order::Finish)
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }

    async fn tell(&self, event: Event) {
        let generation = self.generation;
        self.host
            .deliver(Msg::News(News { generation, event }))
            .await;
    }
}

fn failed(why: impl Into<String>) -> End {
    End::Failed {
        why: why.into(),
        exit: None,
    }
}
