//! Reports how claims grow whose volumes are expanded on this node.
//!
//! - **Owns** the newest outcome of each claim that the API server does not know yet.
//! - **Hears** outcomes from the volume manager.
//! - **Tells** no other actor.
//! - **Never** has two requests about one claim under way, nor more than one at all: growing is rare.
//!
//! Upstream: `MarkNodeExpansionInProgress` and its siblings of pkg/volume/util/resize_util.go (1.36).
//! Decisions: `logic_volumes::resolve::expansion`.

use std::collections::BTreeMap;
use std::time::Duration;

use api_client::{ApiClient, ApiError, ByValue, RequestLane};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kernel::{Actor, Context, Exit};
use kube::Api;
use logic_volumes::resolve::expansion::{self, PvcGrowth};
use serde::Serialize;

use super::requests;

/// As many claims as a node may have, all growing.
pub const MAILBOX: usize = 1024;

/// The most outcomes that wait; a dropped one is reported when the volume grows again.
const MOST: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between attempts: doubled from the first to the last.
const FIRST: Duration = Duration::from_millis(200);
/// The longest pause between attempts to write the outcome of an expansion: a user waits for it.
const LONGEST: Duration = Duration::from_secs(30);

/// Messages of the claim resizer.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Writes the outcome of a volume's expansion into the status of its claim.
    Grew(Box<PvcGrowth>),
    /// Takes in the result of a write, and goes on with the next.
    Written(Box<(PvcGrowth, Result<(), ApiError>)>),
    /// Goes on after a pause.
    Again,
}

/// Snapshot: how many outcomes wait to be written.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Claims whose statuses are to be patched.
    pub waiting: usize,
    /// Consecutive.
    pub failures: u32,
    /// None after a success.
    pub last_error: Option<String>,
}

/// Writes outcomes of expansion into claims.
#[derive(Debug)]
pub struct PvcResizer {
    client: ApiClient,

    /// By the claim's namespace and name.
    waiting: BTreeMap<(String, String), PvcGrowth>,
    state: PvcPatchState,
    failures: u32,
    last_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PvcPatchState {
    Idle,
    Writing,
    Pausing,
}

impl Actor for PvcResizer {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Grew(growth) => self.grew(*growth, ctx),
            Msg::Written(written) => self.written(*written, ctx),
            Msg::Again => self.on_pause_ended(ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            waiting: self.waiting.len(),
            failures: self.failures,
            last_error: self.last_error.clone(),
        }
    }
}

impl PvcResizer {
    pub fn new(client: ApiClient) -> Self {
        PvcResizer {
            client,
            waiting: BTreeMap::new(),
            state: PvcPatchState::Idle,
            failures: 0,
            last_error: None,
        }
    }

    fn grew(&mut self, growth: PvcGrowth, ctx: &mut Context<Msg>) {
        let key = (growth.namespace.clone(), growth.claim.clone());
        if self.waiting.len() < MOST || self.waiting.contains_key(&key) {
            self.waiting.insert(key, growth);
        }
        if self.state == PvcPatchState::Idle {
            self.next(ctx);
        }
    }

    fn next(&mut self, ctx: &mut Context<Msg>) {
        let Some((_, growth)) = self.waiting.pop_first() else {
            self.state = PvcPatchState::Idle;
            return;
        };
        self.state = PvcPatchState::Writing;
        let api = Api::namespaced(self.client.kube(RequestLane::Work), &growth.namespace);
        ctx.run(async move {
            let answer = write(&api, &growth).await;
            Msg::Written(Box::new((growth, answer)))
        });
    }

    fn written(&mut self, written: (PvcGrowth, Result<(), ApiError>), ctx: &mut Context<Msg>) {
        let (growth, answer) = written;
        let trouble = match answer {
            Ok(()) | Err(ApiError::NotFound { .. }) => {
                self.failures = 0;
                self.last_error = None;
                return self.next(ctx);
            }
            Err(trouble) => trouble,
        };
        let name = format!("{}/{}", growth.namespace, growth.claim);
        tracing::warn!(claim = name, "its status is not told: {trouble}");
        self.last_error = Some(trouble.to_string());
        let again = trouble.transient() || matches!(trouble, ApiError::Conflict { .. });
        if !again {
            return self.next(ctx);
        }
        // An outcome that came meanwhile is newer.
        let key = (growth.namespace.clone(), growth.claim.clone());
        self.waiting.entry(key).or_insert(growth);
        self.state = PvcPatchState::Pausing;
        let doubled = FIRST.checked_mul(1 << self.failures.min(16));
        self.failures += 1;
        ctx.after(doubled.unwrap_or(LONGEST).min(LONGEST), Msg::Again);
    }

    fn on_pause_ended(&mut self, ctx: &mut Context<Msg>) {
        if self.state == PvcPatchState::Pausing {
            self.next(ctx);
        }
    }
}

async fn write(
    api: &Api<ByValue<PersistentVolumeClaim>>,
    growth: &PvcGrowth,
) -> Result<(), ApiError> {
    let claim = requests::get(api, &growth.claim, TIMEOUT).await?;
    let now = kernel::timestamp();
    let patch = expansion::patch(&claim, &growth.grow, &growth.outcome, now);
    match patch {
        None => Ok(()),
        Some(patch) => requests::patch(api, &growth.claim, patch, TIMEOUT)
            .await
            .map(drop),
    }
}
