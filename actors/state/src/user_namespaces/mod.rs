//! Assigns id ranges of the node to pods with `hostUsers: false`.
//!
//! - **Owns** the pool of ids, and the file `userns` in the folder of each pod that has some.
//! - **Hears** `Ensure` and `Release` from the pod workers, `Retain` from the pod manager.
//! - **Tells** no other actor.
//! - **Never** gives one id to two pods, nor a range that is not yet on the disk: a pod's volumes keep the
//!   ids for longer than an agent lives.
//!
//! Upstream: pkg/kubelet/userns/userns_manager.go (1.36). There a record that the configuration does not
//! explain keeps the agent from starting; here the pod that has it keeps it.

mod disk;
mod pool_ids;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use kernel::{Actor, Context, Exit, Reply};
use logic_api::linux::IdRange;
use logic_api::types::PodUid;
use logic_pods::security::user_namespaces::{IdPool, PoolError};
pub use pool_ids::IdsError;
use serde::Serialize;
use thiserror::Error;

/// Room for a request from each of 1,000 pods at once.
pub const MAILBOX: usize = 1024;

/// Messages of the user namespace manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Answers with the pod's range, once it is on the disk.
    Ensure {
        uid: PodUid,
        reply: Reply<Result<IdRange, UserNamespaceError>>,
    },
    /// Records whether a range was written to the disk.
    Recorded {
        uid: PodUid,
        outcome: Result<IdRange, io::Error>,
        reply: Reply<Result<IdRange, UserNamespaceError>>,
    },
    /// Frees the range of a pod that is gone.
    Release { uid: PodUid },
    /// Frees the ranges of all pods but these.
    Retain { pods: BTreeSet<PodUid> },
    /// Counts the pods' records as removed.
    Removed,
}

/// Why a pod got no id range.
#[derive(Debug, Error)]
pub enum UserNamespaceError {
    #[error("user namespace: {0}")]
    Record(String),
    #[error("create user namespace: {0}")]
    Pool(PoolError),
    #[error("create user namespace: {0}")]
    Write(io::Error),
    #[error("user namespaces are not available: {0}")]
    Unavailable(String),
}

impl UserNamespaceError {
    /// Whether the request may succeed later; a damaged record must be mended by an operator.
    pub fn transient(&self) -> bool {
        match self {
            Self::Pool(_) | Self::Write(_) => true,
            Self::Record(_) | Self::Unavailable(_) => false,
        }
    }
}

/// The section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    /// `ROOT/pods`.
    pub pods: PathBuf,
    /// A multiple of 65536.
    pub ids_per_pod: u32,
    /// Ranges that are handed out at most.
    pub max_pods: u32,
}

/// The number of pods with a range, and the damaged records.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    /// Pods whose range cannot be read, with the reason.
    pub damaged: BTreeMap<PodUid, String>,
    /// Why no pod can get an id range; none if they can.
    pub unavailable: Option<String>,
}

/// The user namespace manager.
#[derive(Debug)]
pub struct UserNamespaceManager {
    policy: Policy,

    pool: Result<IdPool, String>,
    /// Pods whose record cannot be read.
    damaged: BTreeMap<PodUid, String>,
}

impl Actor for UserNamespaceManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.pool = self.make_pool().await;
        if let Err(text) = &self.pool {
            tracing::error!("no pod can have users of its own: {text}");
        }
        for (uid, record) in disk::records(self.policy.pods.clone()).await? {
            self.read(uid, record);
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Ensure { uid, reply } => self.ensure(uid, reply, ctx),
            Msg::Recorded {
                uid,
                outcome,
                reply,
            } => self.recorded(&uid, outcome, reply),
            Msg::Release { uid } => self.release(vec![uid], ctx),
            Msg::Retain { pods } => self.retain(&pods, ctx),
            Msg::Removed => {}
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pods: self.pool.as_ref().map_or(0, |pool| pool.pods().count()),
            damaged: self.damaged.clone(),
            unavailable: self.pool.as_ref().err().cloned(),
        }
    }
}

impl UserNamespaceManager {
    pub fn new(policy: Policy) -> Self {
        UserNamespaceManager {
            policy,
            pool: Err("not read yet".to_owned()),
            damaged: BTreeMap::new(),
        }
    }

    async fn make_pool(&self) -> Result<IdPool, String> {
        let Policy {
            ids_per_pod,
            max_pods,
            ..
        } = self.policy;
        let ids = pool_ids::of_node()
            .await
            .map_err(|error| error.to_string())?;
        IdPool::new(ids, ids_per_pod, max_pods).map_err(|error| error.to_string())
    }

    fn read(&mut self, uid: PodUid, record: Result<IdRange, String>) {
        let (Ok(pool), range) = (&mut self.pool, record) else {
            return;
        };
        match range {
            Ok(range) => {
                if let Err(error) = pool.record(&uid, range) {
                    tracing::warn!(pod = %uid, "keeps ids that this node's pool would not give: {error}");
                    pool.adopt(&uid, range);
                }
            }
            Err(text) => {
                tracing::error!(pod = %uid, "record of user ids: {text}");
                self.damaged.insert(uid, text);
            }
        }
    }

    fn ensure(
        &mut self,
        uid: PodUid,
        reply: Reply<Result<IdRange, UserNamespaceError>>,
        ctx: &mut Context<Msg>,
    ) {
        let known = match &mut self.pool {
            Err(text) => Err(UserNamespaceError::Unavailable(text.clone())),
            Ok(_) if self.damaged.contains_key(&uid) => {
                Err(UserNamespaceError::Record(self.damaged[&uid].clone()))
            }
            Ok(pool) => pool.allocate(&uid).map_err(UserNamespaceError::Pool),
        };
        match known {
            Err(error) => reply.send(Err(error)),
            // Written again even if the range is known: an earlier write may still be running, or have failed.
            Ok(range) => {
                let folder = disk::folder(&self.policy.pods, &uid);
                ctx.run(async move {
                    let outcome = disk::write(folder, range).await;
                    let outcome = outcome.map(|()| range);
                    Msg::Recorded {
                        uid,
                        outcome,
                        reply,
                    }
                });
            }
        }
    }

    fn recorded(
        &mut self,
        uid: &PodUid,
        outcome: Result<IdRange, io::Error>,
        reply: Reply<Result<IdRange, UserNamespaceError>>,
    ) {
        if let (Err(_), Ok(pool)) = (&outcome, &mut self.pool) {
            pool.release(uid);
        }
        reply.send(outcome.map_err(UserNamespaceError::Write));
    }

    fn release(&mut self, pods: Vec<PodUid>, ctx: &mut Context<Msg>) {
        let Ok(pool) = &mut self.pool else { return };
        for uid in &pods {
            pool.release(uid);
            self.damaged.remove(uid);
        }
        let root = self.policy.pods.clone();
        ctx.run(async move {
            disk::remove(root, pods).await;
            Msg::Removed
        });
    }

    fn retain(&mut self, pods: &BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        let Ok(pool) = &self.pool else { return };
        let known = pool.pods().chain(self.damaged.keys());
        let gone: Vec<PodUid> = known.filter(|uid| !pods.contains(uid)).cloned().collect();
        if !gone.is_empty() {
            self.release(gone, ctx);
        }
    }
}

#[cfg(test)]
mod tests;
