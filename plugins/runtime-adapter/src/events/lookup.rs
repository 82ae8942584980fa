//! What CRI says about a container after containerd's event: the event is ahead, and is held until CRI agrees.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::happening::{Happening, What};
use crate::connection::Connection;

/// Enough to keep containerd busy; more would only queue there, before the agent's own calls.
const AT_ONCE: usize = 16;
const LONGEST_STEP: Duration = Duration::from_millis(100);
const SHORTEST_STEP: Duration = Duration::from_millis(1);
/// For what a node under load may take: containerd deletes the task before its CRI part says "exited".
const SETTLES_WITHIN: Duration = Duration::from_secs(10);
/// For what may never come: a container that is not CRI's, or whose making failed.
const APPEARS_WITHIN: Duration = Duration::from_millis(500);
/// The reason that containerd's CRI part gives to a container it saw run out of memory.
const OUT_OF_MEMORY: &str = "OOMKilled";

/// Asks CRI. Clones share the limit of questions at once.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    client: RuntimeServiceClient<Connection>,
    permits: Arc<Semaphore>,
}

/// A pod as CRI sees it.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) status: Option<cri::PodSandboxStatus>,
    pub(crate) containers: Vec<cri::ContainerStatus>,
}

impl Lookup {
    pub(crate) fn new(connection: Connection) -> Self {
        let client =
            RuntimeServiceClient::new(connection).max_decoding_message_size(sdk::MESSAGE_LIMIT);
        Self {
            client,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Waits until CRI shows what happened, and returns the sandbox it happened in; nothing if CRI will not.
    pub(crate) async fn settle(
        self,
        happening: Happening,
        known: Option<String>,
    ) -> Result<Option<String>, Status> {
        let id = happening.container.as_str();
        let sandbox = match known {
            Some(sandbox) => sandbox,
            // Nobody knows whose it was: not CRI's, or gone before anybody asked.
            None if happening.what == What::Deleted => return Ok(None),
            None => match self.appears(id).await? {
                Some(sandbox) => sandbox,
                None => return Ok(None),
            },
        };
        let shown = match happening.what {
            What::Created | What::Started => true,
            What::Exited => self.ended(id, &sandbox).await?,
            What::OutOfMemory => self.out_of_memory(id, &sandbox).await?,
            What::Deleted => self.gone(id, &sandbox).await?,
        };
        if !shown && happening.what != What::OutOfMemory {
            tracing::warn!(container = id, what = ?happening.what, "CRI does not show what containerd reported");
        }
        Ok(shown.then_some(sandbox))
    }

    /// Returns the pod's sandbox and its containers, each with its status.
    pub(crate) async fn pod(self, sandbox: String) -> Result<Pod, Status> {
        let (status, ids) = tokio::join!(self.sandbox(&sandbox), self.containers_of(&sandbox));
        let statuses = join_all(ids?.iter().map(|id| self.container(id))).await;
        let containers = statuses
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        Ok(Pod {
            status: status?,
            containers,
        })
    }

    /// Returns every container with its sandbox.
    pub(crate) async fn containers(
        &self,
        filter: Option<cri::ContainerFilter>,
    ) -> Result<Vec<cri::Container>, Status> {
        let _permit = self.permits.acquire().await;
        let answer = self
            .client
            .clone()
            .list_containers(cri::ListContainersRequest { filter })
            .await?;
        Ok(answer.into_inner().containers)
    }

    /// Returns every sandbox.
    pub(crate) async fn sandboxes(&self) -> Result<Vec<cri::PodSandbox>, Status> {
        let _permit = self.permits.acquire().await;
        Ok(self
            .client
            .clone()
            .list_pod_sandbox(cri::ListPodSandboxRequest { filter: None })
            .await?
            .into_inner()
            .items)
    }

    async fn containers_of(&self, sandbox: &str) -> Result<Vec<String>, Status> {
        let filter = cri::ContainerFilter {
            pod_sandbox_id: sandbox.to_owned(),
            ..Default::default()
        };
        Ok(self
            .containers(Some(filter))
            .await?
            .into_iter()
            .map(|container| container.id)
            .collect())
    }

    async fn container(&self, id: &str) -> Result<Option<cri::ContainerStatus>, Status> {
        let _permit = self.permits.acquire().await;
        let question = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = found(self.client.clone().container_status(question).await)?;
        Ok(answer.and_then(|answer| answer.status))
    }

    async fn sandbox(&self, id: &str) -> Result<Option<cri::PodSandboxStatus>, Status> {
        let _permit = self.permits.acquire().await;
        let question = cri::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let answer = found(self.client.clone().pod_sandbox_status(question).await)?;
        Ok(answer.and_then(|answer| answer.status))
    }

    /// containerd makes a container before its CRI part lists it, a sandbox long before.
    async fn appears(&self, id: &str) -> Result<Option<String>, Status> {
        let patience = Patience::new(APPEARS_WITHIN);
        loop {
            let filter = cri::ContainerFilter {
                id: id.to_owned(),
                ..Default::default()
            };
            if let Some(container) = self
                .containers(Some(filter))
                .await?
                .into_iter()
                .find(|found| found.id == id)
            {
                return Ok(Some(container.pod_sandbox_id));
            }
            if self.sandbox(id).await?.is_some() {
                return Ok(Some(id.to_owned()));
            }
            if !patience.step().await {
                return Ok(None);
            }
        }
    }

    async fn ended(&self, id: &str, sandbox: &str) -> Result<bool, Status> {
        let patience = Patience::new(SETTLES_WITHIN);
        loop {
            let ended = if id == sandbox {
                self.sandbox(id)
                    .await?
                    .is_none_or(|status| status.state() == cri::PodSandboxState::SandboxNotready)
            } else {
                self.container(id)
                    .await?
                    .is_none_or(|status| status.state() == cri::ContainerState::ContainerExited)
            };
            if ended || !patience.step().await {
                return Ok(ended);
            }
        }
    }

    /// A container that lives on lost a child, which is no event of CRI's; of one that ended, the reason follows
    /// its end.
    async fn out_of_memory(&self, id: &str, sandbox: &str) -> Result<bool, Status> {
        if id == sandbox {
            return Ok(false);
        }
        let patience = Patience::new(APPEARS_WITHIN);
        loop {
            let Some(status) = self.container(id).await? else {
                return Ok(false);
            };
            if status.state() != cri::ContainerState::ContainerExited {
                return Ok(false);
            }
            if status.reason == OUT_OF_MEMORY {
                return Ok(true);
            }
            if !patience.step().await {
                return Ok(false);
            }
        }
    }

    async fn gone(&self, id: &str, sandbox: &str) -> Result<bool, Status> {
        let patience = Patience::new(SETTLES_WITHIN);
        loop {
            let gone = if id == sandbox {
                self.sandbox(id).await?.is_none()
            } else {
                self.container(id).await?.is_none()
            };
            if gone || !patience.step().await {
                return Ok(gone);
            }
        }
    }
}

fn found<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

/// Waits in steps of a sixteenth of the time waited so far: late by so much at most, and few questions.
#[derive(Debug)]
struct Patience {
    since: Instant,
    within: Duration,
}

impl Patience {
    fn new(within: Duration) -> Self {
        Self {
            since: Instant::now(),
            within,
        }
    }

    /// Waits one step; false when there is no patience left.
    async fn step(&self) -> bool {
        let waited = Instant::now() - self.since;
        if waited >= self.within {
            return false;
        }
        tokio::time::sleep((waited / 16).clamp(SHORTEST_STEP, LONGEST_STEP)).await;
        true
    }
}
