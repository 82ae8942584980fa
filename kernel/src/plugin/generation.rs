//! The life of one generation of a plugin, from its start to its proven end, told as it goes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::plugin::plugin_client::PluginClient;
use proto::plugin::{ConfigureRequest, DrainRequest, InfoRequest, InfoResponse};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::channel::{self, Line, chain};
use super::declaration::{Declaration, Kind, Start};
use super::health::{Pulse, Report, patience};
use super::host::Msg;
use super::predecessor::Record;
use super::process::{Birth, Process};
use super::socket::Socket;
use crate::mailbox::Addr;

/// Between attempts to be answered by a process that has just been started.
const HANDSHAKE_PAUSE: Duration = Duration::from_millis(10);
/// Between attempts to reach an endpoint that is somebody else's.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_secs(1);
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

/// Why a plugin that runs is of no use.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("plugin {program} speaks contract {theirs}, this agent speaks {ours}")]
    Contract {
        program: String,
        theirs: u32,
        ours: u32,
    },
    #[error("plugin {program} is for {theirs}, but {name} is declared for {ours}")]
    Kind {
        program: String,
        theirs: String,
        name: String,
        ours: Kind,
    },
    #[error("plugin {name} does not accept its configuration: {why}")]
    Configuration { name: String, why: String },
    #[error("plugin {name} did not get ready within {within:?}: {why}")]
    Late {
        name: String,
        within: Duration,
        why: String,
    },
    #[error("plugin {name} has been silent for {silence:?}")]
    Silent { name: String, silence: Duration },
}

/// Everything that a generation lives on.
pub(super) struct Life {
    pub(super) generation: u64,
    pub(super) declaration: Arc<Declaration>,
    pub(super) line: Line,
    pub(super) folder: Arc<Path>,
    /// The socket to serve, for a process of ours.
    pub(super) socket: Option<Arc<Socket>>,
    /// A process that an earlier incarnation of the host has started.
    pub(super) inherited: Option<Process>,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) host: Addr<Msg>,
}

impl Life {
    /// Lives, and brings the news of the end.
    pub(super) async fn live(self) -> Msg {
        let end = match (&self.declaration.start, self.socket.clone()) {
            (Start::Managed { .. }, Some(socket)) => self.managed(socket).await,
            (Start::Managed { .. }, None) => End::Failed {
                why: "it has no socket".to_owned(),
                exit: None,
            },
            (Start::External { endpoint }, _) => self.external(endpoint).await,
        };
        Msg::News(News {
            generation: self.generation,
            event: Event::Ended(end),
        })
    }

    async fn managed(&self, socket: Arc<Socket>) -> End {
        let control = channel::direct(&socket.path());
        let process = match self.process(socket).await {
            Ok(process) => process,
            Err(why) => return End::Failed { why, exit: None },
        };
        self.tell(Event::Started { pid: process.pid() }).await;
        // Each arm only waits; what the losing ones have heard is of no use any more.
        let end = tokio::select! {
            biased;
            exit = process.dead() => {
                End::Failed { why: format!("plugin {} ended: {exit}", self.declaration.name), exit: Some(exit) }
            }
            () = self.ordered() => End::Finished { exit: Some(finish(&process, &control, &self.declaration).await) },
            trouble = self.attend(&control) => {
                tracing::warn!(plugin = self.declaration.name, pid = process.pid(), "{trouble}; ending it");
                let exit = process.terminate(self.declaration.term_within).await;
                End::Failed { why: trouble.to_string(), exit: Some(exit) }
            }
        };
        self.line.estate().processes.remove(&self.generation);
        end
    }

    /// Returns the process of this generation: inherited, or started after its predecessor's end.
    async fn process(&self, socket: Arc<Socket>) -> Result<Process, String> {
        if let Some(process) = &self.inherited {
            return Ok(process.clone());
        }
        let Declaration { name, start: Start::Managed { command: program, .. }, .. } = &*self.declaration else {
            return Err("it is not declared with a command".to_owned());
        };
        let dir = self.folder.join(name);
        let record = Record::new(self.folder.join(format!("{name}.pid")));
        // While a swap runs, the process written down is the one that still serves.
        if self.line.estate().processes.is_empty() {
            let ended = record.end(self.declaration.term_within).await;
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
            super::socket::private_folder(&birth.dir)?;
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
        process.map_err(|error| format!("cannot start plugin {name}: {}: {error}", program.display()))
    }

    async fn external(&self, endpoint: &Path) -> End {
        let name = &self.declaration.name;
        let control = channel::direct(endpoint);
        tokio::select! {
            biased;
            () = self.ordered() => End::Finished { exit: None },
            trouble = self.attend_external(endpoint, &control) => {
                tracing::warn!(plugin = name, endpoint = %endpoint.display(), "{trouble}; connecting again");
                End::Failed { why: trouble.to_string(), exit: None }
            }
        }
    }

    /// Accompanies a plugin for as long as it is of use.
    async fn attend(&self, control: &Channel) -> Trouble {
        let Declaration {
            name,
            start_within,
            health_interval,
            ..
        } = &*self.declaration;
        let mut pulse = Pulse::new(control.clone(), *health_interval);
        let mut said = String::from("no answer");
        let ready = async {
            let info = self.introduced(control, &mut said).await;
            self.accept(info).await?;
            said = "it does not answer Configure".to_owned();
            self.configure(control).await?;
            said = "it reports no health".to_owned();
            Ok(pulse.next().await)
        };
        let mut report = match timeout(*start_within, ready).await {
            Ok(Ok(report)) => report,
            Ok(Err(trouble)) => return trouble,
            Err(_) => {
                return Trouble::Late {
                    name: name.clone(),
                    within: *start_within,
                    why: said,
                };
            }
        };
        loop {
            self.tell(Event::Reported(report.clone())).await;
            // A report that repeats the last one is a sign of life, but no news.
            loop {
                match pulse.beat().await {
                    Some(next) if next == report => {}
                    Some(next) => break report = next,
                    None => {
                        return Trouble::Silent {
                            name: name.clone(),
                            silence: patience(*health_interval),
                        };
                    }
                }
            }
        }
    }

    /// Asks a process of ours who it is until it answers; `said` keeps why it did not.
    async fn introduced(&self, control: &Channel, said: &mut String) -> InfoResponse {
        loop {
            match info(control).await {
                Ok(info) => return info,
                Err(status) => *said = chain(&status),
            }
            sleep(HANDSHAKE_PAUSE).await;
        }
    }

    async fn accept(&self, info: InfoResponse) -> Result<(), Trouble> {
        let ours = self.declaration.kind;
        if info.contract != proto::PLUGIN_CONTRACT {
            let (program, theirs) = (named(&info), info.contract);
            return Err(Trouble::Contract {
                program,
                theirs,
                ours: proto::PLUGIN_CONTRACT,
            });
        }
        if info.kind() != wire(ours) {
            let theirs = kind_words(info.kind());
            return Err(Trouble::Kind {
                program: named(&info),
                theirs,
                name: self.declaration.name.clone(),
                ours,
            });
        }
        let program = format!("{} {}", info.name, info.version);
        self.tell(Event::Introduced(Introduction {
            program,
            capabilities: info.capabilities,
        }))
        .await;
        Ok(())
    }

    async fn configure(&self, control: &Channel) -> Result<(), Trouble> {
        let request = ConfigureRequest {
            configuration_json: self.declaration.configuration_json(),
        };
        loop {
            let answer = PluginClient::new(control.clone())
                .configure(request.clone())
                .await;
            match answer {
                Ok(_) => return Ok(()),
                // A broken connection: the process may live, and its end is seen elsewhere.
                Err(status) if std::error::Error::source(&status).is_some() => {
                    sleep(HANDSHAKE_PAUSE).await
                }
                Err(status) => {
                    let (name, why) = (self.declaration.name.clone(), status.message().to_owned());
                    return Err(Trouble::Configuration { name, why });
                }
            }
        }
    }

    /// As `attend`, for an endpoint that may be down for long, and may be no plugin of ours at all.
    async fn attend_external(&self, endpoint: &Path, control: &Channel) -> Trouble {
        let pause = self.declaration.health_interval.min(LONGEST_PROBE_PAUSE);
        loop {
            let asked = timeout(self.declaration.start_within, info(control)).await;
            match asked {
                Ok(Ok(_)) => return self.attend(control).await,
                Ok(Err(status)) if status.code() == Code::Unimplemented => break,
                Ok(Err(status)) => {
                    let why = format!("cannot talk to {}: {}", endpoint.display(), chain(&status));
                    self.tell(Event::Unreachable { why }).await;
                }
                Err(_) => {
                    let why = format!("{} does not answer", endpoint.display());
                    self.tell(Event::Unreachable { why }).await;
                }
            }
            sleep(pause).await;
        }
        self.probe(endpoint).await
    }

    /// Watches an endpoint that is no plugin of ours: it is well as long as it accepts connections.
    async fn probe(&self, endpoint: &Path) -> ! {
        let mut last = None;
        loop {
            let report = match UnixStream::connect(endpoint).await {
                Ok(stream) => reachable(&stream),
                Err(error) => Report {
                    healthy: false,
                    reason: format!("cannot connect to {}: {error}", endpoint.display()),
                    attributes: [].into(),
                },
            };
            if last.as_ref() != Some(&report) {
                last = Some(report.clone());
                self.tell(Event::Reported(report)).await;
            }
            sleep(self.declaration.health_interval).await;
        }
    }

    async fn ordered(&self) {
        // A host that is gone gives no orders; its children end with it.
        if self
            .orders
            .clone()
            .wait_for(|order| *order == Order::Finish)
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }

    async fn tell(&self, event: Event) {
        self.host
            .deliver(Msg::News(News {
                generation: self.generation,
                event,
            }))
            .await;
    }
}

/// Lets a process finish what it has begun, then ends it; returns how it ended.
pub(super) async fn finish(
    process: &Process,
    control: &Channel,
    declaration: &Declaration,
) -> String {
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
    process.terminate(declaration.term_within).await
}

async fn info(control: &Channel) -> Result<InfoResponse, Status> {
    let request = InfoRequest {
        contract: proto::PLUGIN_CONTRACT,
    };
    Ok(PluginClient::new(control.clone())
        .info(request)
        .await?
        .into_inner())
}

fn reachable(stream: &UnixStream) -> Report {
    // Here the credentials are worth something: the listener is the endpoint's own.
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let attributes = pid
        .map(|pid| ("pid".to_owned(), pid.to_string()))
        .into_iter()
        .collect();
    Report {
        healthy: true,
        reason: String::new(),
        attributes,
    }
}

fn named(info: &InfoResponse) -> String {
    if info.name.is_empty() {
        "without a name".to_owned()
    } else {
        info.name.clone()
    }
}

fn wire(kind: Kind) -> proto::plugin::Kind {
    match kind {
        Kind::Runtime => proto::plugin::Kind::Runtime,
        Kind::Network => proto::plugin::Kind::Network,
        Kind::Storage => proto::plugin::Kind::Storage,
    }
}

fn kind_words(kind: proto::plugin::Kind) -> String {
    match kind {
        proto::plugin::Kind::Runtime => "runtime",
        proto::plugin::Kind::Network => "network",
        proto::plugin::Kind::Storage => "storage",
        proto::plugin::Kind::Unspecified => "nothing that this agent knows",
    }
    .to_owned()
}
