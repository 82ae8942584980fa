//! The state that all calls share: the node behind its lock, the faults, and the task that runs programs.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cri_server::{StreamingRequest, StreamingServer};
use tokio::sync::OnceCell;
use tonic::{Response, Status};

use crate::clock::Clock;
use crate::faults::FaultInjector;
use crate::node::{SimulatedNode, WakeSignal};
use crate::rpc::Rpc;
use crate::settings::FakeSettings;
use crate::state::journal::{JournalError, Recovery};
use crate::streaming::FakeStreams;

/// Hears of each call and of its end, as lines.
pub(crate) type Observer = Box<dyn FnMut(String) + Send>;

/// One node and its script.
pub(crate) struct SharedNode {
    node: Mutex<SimulatedNode>,
    observer: Mutex<Option<Observer>>,
    faults: Mutex<FaultInjector>,
    wake: WakeSignal,
    streaming: OnceCell<StreamingServer>,
    /// The node's folder, shown as where images are stored.
    pub(crate) mountpoint: String,
    pub(crate) recovery: Recovery,
}

/// What a call is about, as a fault's `subject` is compared with.
#[derive(Clone, Debug)]
pub(crate) enum FaultSubject {
    Nothing,
    Sandbox(String),
    Container(String),
    Named(String),
}

impl SharedNode {
    /// Opens a node and begins to carry its programs on.
    pub(crate) fn open(
        dir: &Path,
        settings: FakeSettings,
        clock: Clock,
    ) -> Result<Arc<SharedNode>, JournalError> {
        let faults = FaultInjector::new(settings.clone(), dir.join("faults.json"));
        let (node, recovery) = SimulatedNode::open(dir, settings, clock)?;
        if let Some(kept) = &recovery.cut_to {
            let (bytes, records) = (recovery.cut_bytes, recovery.records);
            tracing::warn!(bytes, records, kept = %kept.display(), "the end of the journal was damaged and is cut off");
        }
        let wake = node.wake();
        let mountpoint = dir.display().to_string();
        let shared = SharedNode {
            node: Mutex::new(node),
            observer: Mutex::default(),
            faults: Mutex::new(faults),
            wake,
            streaming: OnceCell::new(),
            mountpoint,
            recovery,
        };
        let shared = Arc::new(shared);
        tokio::spawn(carry_on(Arc::downgrade(&shared), shared.wake.clone()));
        Ok(shared)
    }

    /// Returns the node as it is now: everything due has happened.
    pub(crate) fn node(&self) -> MutexGuard<'_, SimulatedNode> {
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        node.catch_up();
        node
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, FaultInjector> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the URL under which a client may connect for this request, once; the first one starts the server.
    pub(crate) async fn url(
        self: &Arc<SharedNode>,
        request: StreamingRequest,
    ) -> Result<String, Status> {
        let start = || StreamingServer::start(FakeStreams::new(Arc::downgrade(self)));
        let streaming = self.streaming.get_or_try_init(start).await;
        let streaming = streaming
            .map_err(|error| Status::internal(format!("cannot listen for streams: {error}")))?;
        streaming.url(request)
    }

    /// Does the work of a call, with the delays and faults that are scripted for it.
    pub(crate) async fn call<T>(
        &self,
        rpc: Rpc,
        subject: FaultSubject,
        work: impl Future<Output = Result<T, Status>> + Send,
    ) -> Result<Response<T>, Status> {
        self.tell(|| format!("{} {}", rpc.name(), self.name(&subject)));
        let done = self.met(rpc, &subject, work).await;
        self.tell(|| {
            let end = match &done {
                Ok(_) => "ok".to_owned(),
                Err(status) => format!("{:?}: {}", status.code(), status.message()),
            };
            format!("{} {} {end}", rpc.name(), self.name(&subject))
        });
        done.map(Response::new)
    }

    /// Has `observer` hear of each call and of its end.
    pub(crate) fn observe(&self, observer: Observer) {
        *self.observer() = Some(observer);
    }

    fn observer(&self) -> MutexGuard<'_, Option<Observer>> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(observer) = self.observer().as_mut() {
            observer(line());
        }
    }

    async fn met<T>(
        &self,
        rpc: Rpc,
        subject: &FaultSubject,
        work: impl Future<Output = Result<T, Status>> + Send,
    ) -> Result<T, Status> {
        let decision = self.faults().meet(rpc, || self.name(subject));
        if !decision.delay.is_zero() {
            tokio::time::sleep(decision.delay).await;
        }
        if let Some(action) = decision.before {
            action.happen().await?;
        }
        let done = work.await;
        if let Some(action) = decision.after {
            action.happen().await?;
        }
        done
    }

    /// Returns `namespace/pod` or `namespace/pod/container`.
    fn name(&self, subject: &FaultSubject) -> String {
        let node = self.node();
        let pod = |seq| {
            let sandbox = node.state.sandboxes.get(&seq);
            let meta = sandbox
                .and_then(|sandbox| sandbox.config().metadata)
                .unwrap_or_default();
            format!("{}/{}", meta.namespace, meta.name)
        };
        match subject {
            FaultSubject::Nothing => String::new(),
            FaultSubject::Named(name) => name.clone(),
            FaultSubject::Sandbox(id) => node.state.find_sandbox(id).map(pod).unwrap_or_default(),
            FaultSubject::Container(id) => match node.container(id) {
                Ok((_, container)) => {
                    let name = container.config().metadata.unwrap_or_default().name;
                    format!("{}/{name}", pod(container.record.sandbox))
                }
                Err(_) => String::new(),
            },
        }
    }
}

impl fmt::Debug for SharedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedNode")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Drop for SharedNode {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// Carries programs on when they are due. Between two of them it costs nothing.
async fn carry_on(shared: Weak<SharedNode>, wake: WakeSignal) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let node = shared.node();
            node.next_due().map(|at| node.clock.instant(at))
        };
        // Both arms only wait; whichever wins, the loop looks at everything again.
        match next {
            Some(at) => tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => {}
                () = wake.notified() => {}
            },
            None => wake.notified().await,
        }
        tokio::task::yield_now().await;
    }
}
