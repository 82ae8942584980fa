//! The runtime behind the plugin: connected, or absent with a reason; always one loop trying to be connected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{VersionRequest, VersionResponse};
use sdk::error_chain;
use sdk::{Health, Status as HealthStatus};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Status};

use crate::configuration::AdapterConfiguration;
use crate::connection::{ConnectError, RuntimeConnection};
use crate::connection_pool::ConnectionPool;
use crate::creations::Creations;
use crate::events::PendingExits;
use crate::quirks::{EventSource, Quirks, quirks};

/// The attribute of the health report that names the source of container events.
const EVENTS: &str = "container-events";
/// A restarted containerd is found within this much of its being ready; a try costs two system calls.
const MAX_BACKOFF: Duration = Duration::from_millis(250);
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
/// How long a runtime that accepts connections may take to answer Version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name or version in a health report, in bytes: enough for any suffix.
const LONGEST_VERSION: usize = 128;
/// How long Configure waits to learn whether the runtime is there.
const FIRST_TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// A runtime that has answered Version.
#[derive(Clone, Debug)]
pub(crate) struct ConnectedBackend {
    pub(crate) connection: RuntimeConnection,
    pub(crate) quirks: Quirks,
}

#[derive(Clone, Debug)]
enum BackendState {
    Unknown,
    Connected(ConnectedBackend),
    Absent(Arc<str>),
}

#[derive(Debug, thiserror::Error)]
enum BackendError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("it does not say its version")]
    Version(#[source] Status),
    #[error("it accepts connections but has not said its version within {VERSION_TIMEOUT:?}")]
    Silent,
}

/// The runtime; clones see the same one. The loop ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeBackend {
    configuration: Arc<AdapterConfiguration>,
    state: watch::Receiver<BackendState>,
    health: Health,
    unsettled: PendingExits,
    creations: Creations,
    pool: ConnectionPool,
}

impl RuntimeBackend {
    /// Starts to connect, and returns when the first try has ended one way or the other.
    pub(crate) async fn start(configuration: AdapterConfiguration, health: Health) -> Self {
        let configuration = Arc::new(configuration);
        let (sender, mut state) = watch::channel(BackendState::Unknown);
        health.degraded(format!("connecting to {}", place(&configuration)));
        tokio::spawn(keep_connected(
            Arc::clone(&configuration),
            sender,
            health.clone(),
        ));
        // Past this time the plugin is up and degraded; the loop goes on.
        drop(
            tokio::time::timeout(
                FIRST_TRY_TIMEOUT,
                state.wait_for(|state| !matches!(state, BackendState::Unknown)),
            )
            .await,
        );
        Self {
            configuration,
            state,
            health,
            unsettled: PendingExits::default(),
            creations: Creations::default(),
            pool: ConnectionPool::default(),
        }
    }

    pub(crate) fn configuration(&self) -> &AdapterConfiguration {
        &self.configuration
    }

    /// Returns the containers whose end was sent before the runtime shows it.
    pub(crate) fn unsettled(&self) -> &PendingExits {
        &self.unsettled
    }

    /// Returns what is being made through this adapter.
    pub(crate) fn creations(&self) -> &Creations {
        &self.creations
    }

    /// Returns the connections of calls that create.
    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.pool
    }

    /// Returns the connection, or the answer for a caller when there is none.
    pub(crate) fn connected(&self) -> Result<ConnectedBackend, Status> {
        match &*self.state.borrow() {
            BackendState::Connected(connected) => Ok(connected.clone()),
            BackendState::Absent(why) => Err(Status::unavailable(why.as_ref())),
            BackendState::Unknown => Err(Status::unavailable(format!(
                "no answer yet from {}",
                place(&self.configuration)
            ))),
        }
    }

    /// Has the health report show where container events come from: what the runtime's answer tells of it.
    pub(crate) fn report_events(&self, events: EventSource) {
        self.health.attribute(EVENTS, events.name());
    }

    /// Returns the answer for a caller whose call the runtime did not finish.
    pub(crate) fn lost(&self, error: hyper::Error) -> Status {
        lost(&place(&self.configuration), error)
    }

    /// Names the runtime and its socket.
    pub(crate) fn place(&self) -> String {
        place(&self.configuration)
    }
}

/// A reset stream keeps the code that it was reset with; all else is a lost connection.
pub(crate) fn lost(place: &str, error: hyper::Error) -> Status {
    let why = error_chain(&error);
    let status = Status::from_error(Box::new(error));
    if matches!(
        status.code(),
        Code::Cancelled | Code::ResourceExhausted | Code::PermissionDenied
    ) {
        return status;
    }
    Status::unavailable(format!("lost {place} during the call: {why}"))
}

async fn keep_connected(
    configuration: Arc<AdapterConfiguration>,
    state: watch::Sender<BackendState>,
    health: Health,
) {
    let mut pause = INITIAL_BACKOFF;
    loop {
        let why = match open(&configuration).await {
            Ok((connected, ended, attributes)) => {
                pause = INITIAL_BACKOFF;
                tracing::info!(
                    backend = attributes.get("backend"),
                    "connected to {}",
                    place(&configuration)
                );
                state.send_replace(BackendState::Connected(connected));
                health.set(HealthStatus::Healthy, "", attributes);
                let outcome = tokio::select! {
                    ended = ended => ended,
                    () = state.closed() => return,
                };
                match outcome {
                    Ok(Err(error)) => {
                        format!("lost {}: {}", place(&configuration), error_chain(&error))
                    }
                    Ok(Ok(())) | Err(_) => {
                        format!("lost {}: it closed the connection", place(&configuration))
                    }
                }
            }
            Err(error) => format!("no {}: {}", place(&configuration), error_chain(&error)),
        };
        if !matches!(&*state.borrow(), BackendState::Absent(_)) {
            tracing::warn!("{why}");
        }
        health.degraded(why.as_str());
        state.send_replace(BackendState::Absent(why.into()));
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(MAX_BACKOFF),
            () = state.closed() => return,
        }
    }
}

type OpenedBackend = (
    ConnectedBackend,
    JoinHandle<Result<(), hyper::Error>>,
    BTreeMap<String, String>,
);

async fn open(configuration: &AdapterConfiguration) -> Result<OpenedBackend, BackendError> {
    let (connection, ended) = RuntimeConnection::open(&configuration.socket).await?;
    let version = match version(&connection).await {
        Ok(version) => version,
        Err(error) => {
            // The process that listens there may leave the connection open for ever.
            ended.abort();
            return Err(error);
        }
    };
    let quirks = quirks(
        configuration.flavour,
        &version.runtime_name,
        &version.runtime_version,
    );
    let mut backend = format!("{} {}", version.runtime_name, version.runtime_version);
    backend.truncate(backend.floor_char_boundary(LONGEST_VERSION));
    let mut attributes = BTreeMap::from([
        ("backend".to_owned(), backend),
        ("endpoint".to_owned(), configuration.endpoint()),
    ]);
    // A runtime may have its own events switched off: only its answer to the agent's call tells.
    if quirks.events != EventSource::Native {
        attributes.insert(EVENTS.to_owned(), quirks.events.name().to_owned());
    }
    Ok((ConnectedBackend { connection, quirks }, ended, attributes))
}

async fn version(connection: &RuntimeConnection) -> Result<VersionResponse, BackendError> {
    let mut question = Request::new(VersionRequest {
        version: "v1".to_owned(),
    });
    question.set_timeout(VERSION_TIMEOUT);
    // containerd answers everything with an error until its CRI part is up: its version is the sign of that.
    let mut client = RuntimeServiceClient::new(connection.clone());
    match tokio::time::timeout(VERSION_TIMEOUT, client.version(question)).await {
        Ok(answer) => Ok(answer.map_err(BackendError::Version)?.into_inner()),
        Err(_) => Err(BackendError::Silent),
    }
}

fn place(configuration: &AdapterConfiguration) -> String {
    format!(
        "{} at {}",
        configuration.flavour.name(),
        configuration.endpoint()
    )
}
