//! Lookups of a container through CRI after containerd's event, which is ahead of CRI.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tokio::sync::Semaphore;
use tonic::{Code, Response, Status};

use super::containerd_event::{ContainerdEvent, ContainerdEventKind};
use super::pod::PodStatuses;
use super::poll::{PollPace, Polls};
use crate::connection::RuntimeConnection;
use crate::creations::Creations;

/// Enough to keep containerd busy; more would only queue there, before the agent's own calls.
const MAX_CONCURRENT_CALLS: usize = 16;
/// containerd answers within a few ms. One stuck container must not hold up its pod's events for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// As long as an exit's telling waits for CRI when what was sent before would do.
const QUICK_STATUS_TIMEOUT: Duration = Duration::from_millis(5);
/// For what a node under load may take: containerd deletes the task before its CRI part says "exited".
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// For what may never come: a container that is not CRI's, or whose making failed.
const APPEARANCE_TIMEOUT: Duration = Duration::from_millis(500);
/// The reason that containerd's CRI part gives to a container it saw run out of memory.
const OUT_OF_MEMORY: &str = "OOMKilled";

/// Asks CRI. Clones share the limit of questions at once, and how many polls run.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    client: RuntimeServiceClient<RuntimeConnection>,
    permits: Arc<Semaphore>,
    polls: Polls,
    creations: Creations,
}

/// What a first look at a container that has just exited shows; it may still be shown as running.
#[derive(Debug)]
pub(crate) struct QuickStatus {
    pub(crate) sandbox: String,
    pub(crate) status: Option<cri::PodSandboxStatus>,
    /// Nothing if it is a sandbox, or gone.
    pub(crate) container: Option<cri::ContainerStatus>,
}

/// What CRI has shown of what an event is about, by the time that it shows what happened.
#[derive(Debug)]
pub(crate) enum Shown {
    Sandbox(Box<cri::PodSandboxStatus>),
    Container(Box<cri::ContainerStatus>),
    Gone,
    /// It was not asked for its status yet.
    Unread,
}

impl From<Option<cri::ContainerStatus>> for Shown {
    fn from(status: Option<cri::ContainerStatus>) -> Self {
        status.map_or(Self::Gone, |status| Self::Container(Box::new(status)))
    }
}

impl From<Option<cri::PodSandboxStatus>> for Shown {
    fn from(status: Option<cri::PodSandboxStatus>) -> Self {
        status.map_or(Self::Gone, |status| Self::Sandbox(Box::new(status)))
    }
}

impl Lookup {
    pub(crate) fn new(connection: RuntimeConnection, creations: Creations) -> Self {
        let client =
            RuntimeServiceClient::new(connection).max_decoding_message_size(sdk::MESSAGE_LIMIT);
        Self {
            client,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
            polls: Polls::default(),
            creations,
        }
    }

    /// Returns one with limits of its own.
    pub(crate) fn beside(&self, connection: RuntimeConnection) -> Self {
        Self::new(connection, self.creations.clone())
    }

    /// Looks once at a container that has exited; what was sent of its pod stands in for answers that tarry.
    pub(crate) async fn quick_status(
        self,
        id: String,
        known: Option<String>,
        sent: Option<PodStatuses>,
    ) -> Result<Option<Box<QuickStatus>>, Status> {
        let sandbox = match known {
            Some(sandbox) => sandbox,
            None => match self.appears(&id).await? {
                Some(sandbox) => sandbox,
                None => return Ok(None),
            },
        };
        if sandbox == id {
            return Ok(Some(Box::new(QuickStatus {
                sandbox,
                status: None,
                container: None,
            })));
        }
        let before = sent.as_ref().and_then(|sent| sent.container(&id)).cloned();
        let container = async {
            let Some(before) = before else {
                return self.container(&id).await;
            };
            let answer = tokio::time::timeout(QUICK_STATUS_TIMEOUT, self.container(&id)).await;
            Ok(match answer {
                Ok(Ok(Some(now))) => Some(now),
                Ok(Ok(None) | Err(_)) | Err(_) => Some(before),
            })
        };
        let status = async {
            match sent.and_then(|sent| sent.status) {
                Some(status) => Ok(Some(status)),
                None => self.sandbox(&sandbox).await,
            }
        };
        let (container, status) = tokio::join!(container, status);
        Ok(Some(Box::new(QuickStatus {
            container: container?,
            status: status?,
            sandbox,
        })))
    }

    /// Waits until CRI shows what happened, and returns the sandbox it happened in and what CRI shows of it; nothing if
    /// CRI will not.
    pub(crate) async fn settle(
        self,
        event: ContainerdEvent,
        known: Option<String>,
        pace: PollPace,
    ) -> Result<Option<(String, Shown)>, Status> {
        let id = event.container.as_str();
        let sandbox = match known {
            Some(sandbox) => sandbox,
            // Its sandbox is unknown: it is not CRI's, or was gone before the first call.
            None if event.what == ContainerdEventKind::Deleted => return Ok(None),
            None => match self.appears(id).await? {
                Some(sandbox) => sandbox,
                None => return Ok(None),
            },
        };
        let shown = match event.what {
            ContainerdEventKind::Created => Some(Shown::Unread),
            ContainerdEventKind::Started => self.started(id, &sandbox).await?,
            ContainerdEventKind::Exited(_) => self.ended(id, &sandbox, pace).await?,
            ContainerdEventKind::OutOfMemory => self.out_of_memory(id, &sandbox).await?,
            ContainerdEventKind::Deleted => self.gone(id, &sandbox).await?,
        };
        if shown.is_none() && event.what != ContainerdEventKind::OutOfMemory {
            tracing::warn!(container = id, what = ?event.what, "CRI does not show what containerd reported");
        }
        Ok(shown.map(|shown| (sandbox, shown)))
    }

    /// Returns the pod's sandbox and its containers, each with its status, after an event about `subject`. Of a pod that
    /// was sent before as a whole (`sent`) only what may have changed since is asked for: containers that have not ended.
    pub(crate) async fn pod(
        self,
        sandbox: String,
        sent: Option<PodStatuses>,
        subject: String,
        shown: Shown,
    ) -> Result<PodStatuses, Status> {
        let Some(mut sent) = sent.filter(|sent| sent.status.is_some()) else {
            return self.whole_pod(sandbox).await;
        };
        let is_ready =
            |status: &cri::PodSandboxStatus| status.state() == cri::PodSandboxState::SandboxReady;
        let shown = match shown {
            // A sandbox that was read as ready is not more so by its start, which containerd reports beside its creation.
            Shown::Unread if subject == sandbox && sent.status.as_ref().is_some_and(is_ready) => {
                sent.status.clone().into()
            }
            Shown::Unread if subject == sandbox => return self.whole_pod(sandbox).await,
            Shown::Unread => self.container(&subject).await?.into(),
            shown @ (Shown::Container(_) | Shown::Sandbox(_) | Shown::Gone) => shown,
        };
        let others = sent.containers.iter().filter(|one| one.id != subject);
        let (over, alive): (Vec<_>, Vec<_>) =
            others.partition(|one| one.state() == cri::ContainerState::ContainerExited);
        let now = join_all(alive.iter().map(|one| self.container(&one.id))).await;
        let now = now.into_iter().filter_map(Result::transpose);
        let mut containers: Vec<_> = now.collect::<Result<_, _>>()?;
        containers.extend(over.into_iter().cloned());
        match shown {
            Shown::Container(status) => containers.push(*status),
            Shown::Sandbox(status) => sent.status = Some(*status),
            Shown::Gone if subject == sandbox => sent.status = None,
            Shown::Gone | Shown::Unread => {}
        }
        Ok(PodStatuses::new(sent.status, containers))
    }

    async fn whole_pod(&self, sandbox: String) -> Result<PodStatuses, Status> {
        let (status, ids) = tokio::join!(self.sandbox(&sandbox), self.containers_of(&sandbox));
        let statuses = join_all(ids?.iter().map(|id| self.container(id))).await;
        let containers = statuses
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        Ok(PodStatuses::new(status?, containers))
    }

    /// Returns every container with its sandbox.
    pub(crate) async fn containers(
        &self,
        filter: Option<cri::ContainerFilter>,
    ) -> Result<Vec<cri::Container>, Status> {
        let mut client = self.client.clone();
        let question = cri::ListContainersRequest { filter };
        let answer = self.ask("ListContainers", client.list_containers(question));
        Ok(answer.await?.containers)
    }

    /// Returns every sandbox.
    pub(crate) async fn sandboxes(&self) -> Result<Vec<cri::PodSandbox>, Status> {
        let mut client = self.client.clone();
        let question = cri::ListPodSandboxRequest { filter: None };
        let answer = self.ask("ListPodSandbox", client.list_pod_sandbox(question));
        Ok(answer.await?.items)
    }

    /// Waits for an answer, but not for ever.
    async fn ask<T>(
        &self,
        method: &str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        let _permit = self.permits.acquire().await;
        match tokio::time::timeout(ANSWER_TIMEOUT, call).await {
            Ok(answer) => answer.map(Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "{method} was not answered within {ANSWER_TIMEOUT:?}"
            ))),
        }
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
        let mut client = self.client.clone();
        let question = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.ask("ContainerStatus", client.container_status(question));
        Ok(found(answer.await)?.and_then(|answer| answer.status))
    }

    async fn sandbox(&self, id: &str) -> Result<Option<cri::PodSandboxStatus>, Status> {
        let mut client = self.client.clone();
        let question = cri::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.ask("PodSandboxStatus", client.pod_sandbox_status(question));
        Ok(found(answer.await)?.and_then(|answer| answer.status))
    }

    /// containerd makes a container before its CRI part lists it, a sandbox long before. What this adapter's own calls make
    /// is known by their answers; CRI is asked over and over only for what others have made.
    async fn appears(&self, id: &str) -> Result<Option<String>, Status> {
        if let Some(sandbox) = self.creations.sandbox_of(id).await {
            return Ok(Some(sandbox));
        }
        let timer = self.polls.begin(APPEARANCE_TIMEOUT);
        loop {
            let filter = cri::ContainerFilter {
                id: id.to_owned(),
                ..Default::default()
            };
            if let Some(container) = self
                .containers(Some(filter))
                .await?
                .into_iter()
                .find(|found| found.id == id && !found.pod_sandbox_id.is_empty())
            {
                return Ok(Some(container.pod_sandbox_id));
            }
            if self.sandbox(id).await?.is_some() {
                return Ok(Some(id.to_owned()));
            }
            if !timer.step().await {
                return Ok(None);
            }
        }
    }

    /// containerd starts a task before its CRI part reports "running". A start that it never reports is sent all the
    /// same: the container's later events follow.
    async fn started(&self, id: &str, sandbox: &str) -> Result<Option<Shown>, Status> {
        if id == sandbox {
            return Ok(Some(Shown::Unread));
        }
        let timer = self.polls.begin(APPEARANCE_TIMEOUT);
        loop {
            let status = self.container(id).await?;
            let started = status
                .as_ref()
                .is_none_or(|status| status.state() != cri::ContainerState::ContainerCreated);
            if started || !timer.step().await {
                return Ok(Some(status.into()));
            }
        }
    }

    async fn ended(
        &self,
        id: &str,
        sandbox: &str,
        pace: PollPace,
    ) -> Result<Option<Shown>, Status> {
        let timer = self.polls.begin_at(pace, SETTLE_TIMEOUT);
        if pace == PollPace::Unhurried {
            timer.step().await;
        }
        loop {
            let shown = if id == sandbox {
                Shown::from(self.sandbox(id).await?)
            } else {
                Shown::from(self.container(id).await?)
            };
            let ended = match &shown {
                Shown::Sandbox(status) => status.state() == cri::PodSandboxState::SandboxNotready,
                Shown::Container(status) => status.state() == cri::ContainerState::ContainerExited,
                Shown::Gone => true,
                Shown::Unread => false,
            };
            if ended || !timer.step().await {
                return Ok(ended.then_some(shown));
            }
        }
    }

    /// A container that lives on lost a child, which is no event of CRI's; of one that ended, the reason follows
    /// its end.
    async fn out_of_memory(&self, id: &str, sandbox: &str) -> Result<Option<Shown>, Status> {
        if id == sandbox {
            return Ok(None);
        }
        let timer = self.polls.begin(APPEARANCE_TIMEOUT);
        loop {
            let Some(status) = self.container(id).await? else {
                return Ok(None);
            };
            if status.state() != cri::ContainerState::ContainerExited {
                return Ok(None);
            }
            if status.reason == OUT_OF_MEMORY {
                return Ok(Some(Some(status).into()));
            }
            if !timer.step().await {
                return Ok(None);
            }
        }
    }

    async fn gone(&self, id: &str, sandbox: &str) -> Result<Option<Shown>, Status> {
        let timer = self.polls.begin(SETTLE_TIMEOUT);
        loop {
            let gone = if id == sandbox {
                self.sandbox(id).await?.is_none()
            } else {
                self.container(id).await?.is_none()
            };
            if gone || !timer.step().await {
                return Ok(gone.then_some(Shown::Gone));
            }
        }
    }
}

fn found<T>(answer: Result<T, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
