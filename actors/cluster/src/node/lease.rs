//! The node's heartbeat: a lease, renewed whatever else happens.
//!
//! - **Owns** the lease as the API server last gave it.
//! - **Hears** its own timer and the results of its requests.
//! - **Tells** no other actor.
//! - **Never** waits for the node's other requests: it has a rate limit of its own.
//!
//! Upstream: component-helpers apimachinery/lease/controller.go (1.36). Decisions: `logic_node::node_status::lease`.

use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiClient, ApiError, ByValue, RequestLane};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kernel::watch as channel;
use kernel::{Actor, Context, Exit};
use kube::Api;
use logic_node::node_status::lease as decide;
use logic_node::node_status::lease::{LeaseHolder, NAMESPACE};
use serde::Serialize;

use super::requests;

/// Its own beats and answers: never more than one of each.
pub const MAILBOX: usize = 8;

/// Messages of the heartbeat.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Renews the lease, or creates it.
    Beat,
    /// Takes in the result, and schedules the next renewal.
    Beaten(Box<Result<Beaten, ApiError>>),
}

/// The result of a renewal.
#[derive(Debug)]
pub enum Beaten {
    Renewed(Box<Lease>),
    /// There is no lease yet, and no node that it could belong to.
    Ownerless,
}

/// Snapshot: renewals, failures in a row, the last error.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Renewals since the start.
    pub beats: u64,
    /// Consecutive.
    pub failures: u32,
    /// None after a success.
    pub last_error: Option<String>,
}

/// Renews the node's lease.
#[derive(Debug)]
pub struct Heartbeat {
    holder: LeaseHolder,
    client: ApiClient,
    object: channel::Receiver<Option<Arc<Node>>>,

    lease: Option<Lease>,
    beats: u64,
    failures: u32,
    last_error: Option<String>,
}

impl Actor for Heartbeat {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.beat(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Beat => self.beat(ctx),
            Msg::Beaten(answer) => self.beaten(*answer, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            beats: self.beats,
            failures: self.failures,
            last_error: self.last_error.clone(),
        }
    }
}

impl Heartbeat {
    /// `object` is the node's, of [`super::Peers::object`].
    pub fn new(
        holder: LeaseHolder,
        client: ApiClient,
        object: channel::Receiver<Option<Arc<Node>>>,
    ) -> Self {
        Heartbeat {
            holder,
            client,
            object,
            lease: None,
            beats: 0,
            failures: 0,
            last_error: None,
        }
    }

    fn beat(&self, ctx: &mut Context<Msg>) {
        let node = self.object.borrow().clone();
        let renewal = LeaseRenewal {
            api: Api::namespaced(self.client.kube(RequestLane::Heartbeat), NAMESPACE),
            holder: self.holder.clone(),
            owner: node.and_then(|node| node.metadata.uid.clone()),
            // A lease that was not renewed for so long has ended.
            within: Duration::from_secs(self.holder.seconds.clamp(1, 10).into()),
        };
        let base = self.lease.clone();
        ctx.run(async move { Msg::Beaten(Box::new(renewal.renew(base).await)) });
    }

    fn beaten(&mut self, answer: Result<Beaten, ApiError>, ctx: &mut Context<Msg>) {
        match answer {
            Ok(Beaten::Renewed(lease)) => {
                self.lease = Some(*lease);
                self.beats += 1;
                self.failures = 0;
                self.last_error = None;
                ctx.after(self.holder.interval(kernel::chance()), Msg::Beat);
            }
            Ok(Beaten::Ownerless) => {
                let (mut object, most) = (self.object.clone(), self.holder.interval(0.0));
                ctx.run(async move {
                    let known = object.wait_for(Option::is_some);
                    drop(tokio::time::timeout(most, known).await);
                    Msg::Beat
                });
            }
            Err(trouble) => {
                self.failures += 1;
                let pause = decide::pause(self.failures);
                tracing::warn!("the lease is not renewed, next attempt in {pause:?}: {trouble}");
                self.last_error = Some(trouble.to_string());
                ctx.after(pause, Msg::Beat);
            }
        }
    }
}

/// One renewal, carried out beside the actor.
struct LeaseRenewal {
    api: Api<ByValue<Lease>>,
    holder: LeaseHolder,
    owner: Option<String>,
    within: Duration,
}

impl LeaseRenewal {
    /// The lease as it was last known is renewed without being fetched: only this node writes it.
    async fn renew(&self, mut base: Option<Lease>) -> Result<Beaten, ApiError> {
        let name = &self.holder.name;
        let mut last = None;
        for _ in 0..decide::ATTEMPTS {
            let held = match base.take() {
                Some(held) => held,
                None => match self.find().await? {
                    LeaseLookup::There(held) => *held,
                    LeaseLookup::Made(lease) => return Ok(Beaten::Renewed(lease)),
                    LeaseLookup::Ownerless => return Ok(Beaten::Ownerless),
                },
            };
            let lease = self.lease(Some(&held));
            match requests::replace(&self.api, name, &lease, self.within).await {
                Ok(lease) => return Ok(Beaten::Renewed(Box::new(lease))),
                Err(trouble @ (ApiError::Conflict { .. } | ApiError::NotFound { .. })) => {
                    last = Some(trouble);
                }
                Err(trouble @ ApiError::Unreachable { .. }) => return Err(trouble),
                Err(trouble) => {
                    last = Some(trouble);
                    base = Some(held);
                }
            }
        }
        Err(last.unwrap_or(ApiError::Unreachable {
            message: "the lease was not asked for".to_owned(),
        }))
    }

    async fn find(&self) -> Result<LeaseLookup, ApiError> {
        match requests::get(&self.api, &self.holder.name, self.within).await {
            Ok(lease) => return Ok(LeaseLookup::There(Box::new(lease))),
            Err(ApiError::NotFound { .. }) => {}
            Err(trouble) => return Err(trouble),
        }
        if self.owner.is_none() {
            return Ok(LeaseLookup::Ownerless);
        }
        let lease = self.lease(None);
        let made = requests::create(&self.api, &lease, self.within).await?;
        Ok(LeaseLookup::Made(Box::new(made)))
    }

    fn lease(&self, base: Option<&Lease>) -> Lease {
        let now = kernel::timestamp();
        self.holder.lease(base, self.owner.as_deref(), now)
    }
}

enum LeaseLookup {
    There(Box<Lease>),
    Made(Box<Lease>),
    Ownerless,
}
