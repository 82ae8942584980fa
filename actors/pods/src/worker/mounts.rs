//! The pod's volumes: mounted before its containers start, released when nothing of it runs any more.
//!
//! Upstream: kubelet.go (SyncPod, SyncTerminatedPod) and volume_manager.go (WaitForAttachAndMount), 1.36.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kernel::{AskError, Context};
use logic_api::pod::PodView;
use logic_api::text::env_file::{self, EnvFiles};
use logic_api::types::{EventLevel, HistoryEvent};
use logic_pods::admission;
use logic_pods::container::{PreparedSubpaths, has_subpaths};
use logic_volumes::{MountedVolumes, Subpath};
use volumes::{Msg as VolumesMsg, NotMounted, NotReleased, Retry, SubpathBindError};

use super::context::PlanExecutor;
use super::{Msg, PodWorker, PodWorkerState, RETRY_BACKOFF, RETRY_PERIOD, WorkerReport};
use crate::worker::operation::completion::WorkerCompletion;

/// Upstream's `podAttachAndMountTimeout`: the deadline of one request for a pod's volumes.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(123);
/// How long the volume manager unmounts before it answers with what prevents it; it goes on then.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Binding a path and reading a small file: a plugin that takes longer is stuck.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// The volume manager answers in time; this margin is for one that has died.
const REPLY_MARGIN: Duration = Duration::from_secs(5);

/// The answer to a request for volumes.
pub(super) type VolumesAnswer = Result<Result<MountedVolumes, NotMounted>, AskError>;

/// The state of the pod's volumes.
#[derive(Debug, Default)]
pub(super) struct WorkerVolumes {
    /// The definition of the last request.
    wanted: Option<Arc<Pod>>,
    mounted: Option<Arc<MountedVolumes>>,
    released: ReleaseState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ReleaseState {
    #[default]
    No,
    Asked,
    Yes,
}

impl WorkerVolumes {
    /// Requests the volumes again: they may have changed, or the volume manager restarted.
    pub(super) fn invalidate(&mut self) {
        self.wanted = None;
    }

    /// Compares definitions and not `Arc`s, because sources send the same pod again.
    fn are_wanted_for(&self, pod: &Arc<Pod>) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| {
            Arc::ptr_eq(wanted, pod) || (wanted.spec == pod.spec && wanted.metadata == pod.metadata)
        })
    }

    /// The mounted volumes; none while one is still missing.
    pub(super) fn mounted(&self) -> Option<&Arc<MountedVolumes>> {
        self.mounted.as_ref()
    }

    /// Whether the volume manager was asked for them.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    pub(super) fn is_released(&self) -> bool {
        self.released == ReleaseState::Yes
    }
}

impl PodWorker {
    /// Requests the pod's volumes as its definition has them now. Running pods do too: the volume manager then knows
    /// which volumes are in use, and refreshes their contents.
    pub(super) fn want_volumes(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        if logic_volumes::pod_volume_names(pod).is_empty() {
            self.volumes.mounted.get_or_insert_default();
            return;
        }
        if self.volumes.are_wanted_for(pod) {
            return;
        }
        self.volumes.wanted = Some(pod.clone());
        self.volumes.mounted = None;
        let (keeper, pod) = (self.peers.volumes.clone(), pod.clone());
        ctx.run(async move {
            let request = |reply| VolumesMsg::Mount {
                pod: pod.clone(),
                within: MOUNT_TIMEOUT,
                reply,
            };
            let answer = keeper.ask(MOUNT_TIMEOUT + REPLY_MARGIN, request).await;
            WorkerCompletion::Mounted(pod, answer).into()
        });
    }

    /// Takes the answer to a request; one that was superseded is ignored.
    pub(super) fn take_volumes(
        &mut self,
        pod: &Arc<Pod>,
        answer: VolumesAnswer,
        ctx: &mut Context<Msg>,
    ) {
        if !self.volumes.are_wanted_for(pod) {
            return;
        }
        match answer {
            Ok(Ok(mounted)) => self.volumes.mounted = Some(Arc::new(mounted)),
            Ok(Err(error @ NotMounted::Late(_))) => {
                self.volumes.invalidate();
                self.note_of_volumes("FailedMount", &error, ctx);
            }
            Ok(Err(error @ NotMounted::NoRoom(_))) => {
                self.volumes.invalidate();
                self.reject(&error, ctx);
            }
            // The request that superseded this one is the worker's own: to ask again would supersede that one, for ever.
            Ok(Err(NotMounted::Superseded)) => {}
            Ok(Err(NotMounted::Released)) => self.volumes.invalidate(),
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "the volume manager does not answer: {error}");
                self.volumes.invalidate();
                self.retry_after(RETRY_PERIOD, ctx);
            }
        }
    }

    /// As upstream, a pod whose volumes find no room on this node is rejected: another node may have room.
    fn reject(&mut self, error: &NotMounted, ctx: &mut Context<Msg>) {
        let failure = admission::no_room_for_volumes(&error.to_string());
        let reason = admission::counted_reason(&failure.reason);
        let fail = WorkerReport::Rejected {
            uid: self.uid.clone(),
            failure: Box::new(failure),
        };
        match self.peers.pod_manager.tell(fail) {
            Ok(()) => metrics::pods::REJECTIONS.with_label_values(&[reason]).inc(),
            Err(full) => {
                tracing::warn!(pod = %self.pod_name(), "not rejected now: {full}");
                self.retry_after(RETRY_PERIOD, ctx);
            }
        }
    }

    /// Records a note for `oxctl why`: as upstream, the events about each volume are the volume manager's.
    fn note_of_volumes(&mut self, reason: &str, error: &dyn Error, ctx: &Context<Msg>) {
        let why = HistoryEvent {
            object: None,
            weight: EventLevel::Warning,
            reason: reason.to_owned(),
            message: error.to_string(),
        };
        self.history.note(&why, ctx.timestamp());
    }

    /// Releases the volumes of a pod of which nothing runs any more, even if the worker stays for its status.
    pub(super) fn release_volumes(&mut self, ctx: &mut Context<Msg>) {
        if self.sync_status.state != PodWorkerState::Terminated
            || self.volumes.released != ReleaseState::No
        {
            return;
        }
        if logic_volumes::pod_volume_names(&self.updates.goal.borrow().allocated).is_empty() {
            self.volumes.released = ReleaseState::Yes;
            return;
        }
        self.volumes.released = ReleaseState::Asked;
        let (keeper, uid) = (self.peers.volumes.clone(), self.uid.clone());
        ctx.run(async move {
            let request = |reply| VolumesMsg::Release {
                uid,
                within: RELEASE_TIMEOUT,
                reply,
            };
            WorkerCompletion::Released(keeper.ask(RELEASE_TIMEOUT + REPLY_MARGIN, request).await)
                .into()
        });
    }

    pub(super) fn take_release(
        &mut self,
        answer: Result<Result<(), NotReleased>, AskError>,
        ctx: &mut Context<Msg>,
    ) {
        self.volumes.released = match answer {
            Ok(Ok(())) => ReleaseState::Yes,
            Ok(Err(hindered)) => {
                self.note_of_volumes("FailedUnmount", &hindered, ctx);
                ReleaseState::No
            }
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "the volume manager does not answer: {error}");
                self.retry_after(RETRY_PERIOD, ctx);
                ReleaseState::No
            }
        };
    }
}

/// Why a container's volumes could not be made ready.
#[derive(Debug)]
pub(super) struct PrepareError {
    pub(super) message: String,
    pub(super) retry_after: Duration,
}

impl PrepareError {
    fn silent(error: &AskError) -> Self {
        PrepareError {
            message: format!("the volume manager does not answer: {error}"),
            retry_after: RETRY_PERIOD,
        }
    }
}

impl From<SubpathBindError> for PrepareError {
    fn from(error: SubpathBindError) -> Self {
        PrepareError {
            message: error.message,
            retry_after: match error.transient {
                Retry::Soon => RETRY_PERIOD,
                Retry::Later => RETRY_BACKOFF,
            },
        }
    }
}

impl PlanExecutor {
    /// Reads the files in mounted volumes that the container takes variables from.
    pub(super) async fn env_files(&self, container: &Container) -> Result<EnvFiles, PrepareError> {
        let files = env_file::required_files(container);
        if files.is_empty() {
            return Ok(EnvFiles::default());
        }
        let uid = self.uid.clone();
        let read = |reply| VolumesMsg::Read { uid, files, reply };
        let answer = self.peers.volumes.ask(PREPARE_TIMEOUT, read).await;
        answer.map_err(|error| PrepareError::silent(&error))
    }

    /// Has subpaths bound for a container; `subpaths` is called only if it has some.
    pub(super) async fn subpaths<E>(
        &self,
        container: &Container,
        subpaths: impl FnOnce() -> Result<Vec<Subpath>, E>,
    ) -> Result<Result<PreparedSubpaths, PrepareError>, E> {
        if !has_subpaths(container) {
            return Ok(Ok(BTreeMap::new()));
        }
        let subpaths = subpaths()?;
        if subpaths.is_empty() {
            return Ok(Ok(BTreeMap::new()));
        }
        let (uid, name) = (self.uid.clone(), container.name.clone());
        let bind = |reply| VolumesMsg::Bind {
            uid,
            container: name,
            subpaths,
            reply,
        };
        let answer = self.peers.volumes.ask(PREPARE_TIMEOUT, bind).await;
        Ok(match answer {
            Ok(bound) => bound.map_err(PrepareError::from),
            Err(error) => Err(PrepareError::silent(&error)),
        })
    }
}

/// Whether the pod's status or mounts depend on the runtime's support for recursive read-only mounts.
pub(super) fn asks_for_recursive_read_only(pod: &Pod) -> bool {
    pod.all_containers().any(|(_, container)| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|mount| mount.recursive_read_only.is_some())
    })
}
