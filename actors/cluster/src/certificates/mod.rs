//! The node's certificates: requested from the API, kept on disk, replaced before they end.
//!
//! - **Owns** one kind of certificate: the client's or the server's, the pair in use and the request in flight.
//! - **Hears** the wanted subject (`Wanted`), that a renewal is due, and the results of requests.
//! - **Tells** the TLS client or server, by the identity channel: a new pair is used from the next handshake on.
//! - **Never** gives up: a first certificate is requested whether it is replaced later or not; a failed request is
//!   made again, at most every 32 seconds; never offers an expired pair; never keeps a key that other users may read.
//!
//! Upstream: client-go util/certificate/certificate_manager.go, pkg/kubelet/certificate/kubelet.go (1.36). Where
//! upstream ends the process when its certificate expires, this one requests another with the bootstrap credentials.

mod bootstrap;
mod certificate_files;
mod key_pair;
mod request;
mod self_signed;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use api_client::{ApiClient, RequestLane};
use jiff::Timestamp;
use kernel::{Actor, Context, Exit, TaskId, TimerId};
use kernel::{error_chain, watch};
use logic_node::certificates::{CertificateSubject, RotationPolicy, pause};
use rustls::sign::CertifiedKey;
use serde::Serialize;

pub use self::bootstrap::{BootstrapError, BootstrapOutcome, prepare};
pub use self::certificate_files::{CertificateFiles, CertificateReloader};
pub use self::key_pair::{PairError, TlsKeyPair};
pub use self::request::{CertificatePurpose, RequestError};
pub use self::self_signed::{SelfSignedError, self_signed};
pub use self::store::{CertificateStore, StoreError, load};

/// Its own timers and requests, and changes of the node's addresses.
pub const MAILBOX: usize = 16;

/// When each kind of certificate expires, in seconds since 1970; `i64::MAX` without one. Read by the metrics.
static NOT_AFTER: [AtomicI64; 2] = [AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX)];

/// Sets the metrics that depend on the current time.
pub fn measure(now: Timestamp) {
    let gauges = [
        &metrics::api::certificates::CLIENT_TTL,
        &metrics::api::certificates::SERVER_TTL,
    ];
    for (gauge, not_after) in gauges.into_iter().zip(&NOT_AFTER) {
        let left = match not_after.load(Ordering::Relaxed) {
            i64::MAX => f64::INFINITY,
            second => Timestamp::from_second(second)
                .map_or(f64::INFINITY, |at| at.duration_since(now).as_secs_f64()),
        };
        gauge.set(left);
    }
}

/// The certificate and key that TLS offers now; none while there is no valid one.
pub type IdentityReceiver = watch::Receiver<Option<Arc<CertifiedKey>>>;

/// Messages of the certificate manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Requests a certificate with this subject if the one in use differs; none: it cannot be requested yet.
    Wanted { subject: Option<CertificateSubject> },
    /// Asks for the next certificate: the time has come.
    Due,
    /// Stops offering the expired certificate.
    Over,
    /// Takes a new certificate into use, or schedules another attempt.
    Came(Box<RotationOutcome>),
}

/// The pair that was issued, or why there is none.
#[derive(Debug)]
pub struct RotationOutcome(Result<TlsKeyPair, RotationError>);

/// Why no new certificate was issued.
#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error("no certificate was issued")]
    Request(#[source] RequestError),
    #[error("the certificate that was issued cannot be kept")]
    Keep(#[source] StoreError),
    #[error("the keeping of a certificate broke")]
    Broke(#[source] tokio::task::JoinError),
}

/// The clients for certificate signing requests.
#[derive(Debug, Clone)]
pub struct Peers {
    /// Authenticates with the certificate in use.
    pub client: ApiClient,
    /// Authenticates with the bootstrap credentials, while no certificate is valid.
    pub bootstrap: Option<ApiClient>,
}

/// Snapshot: the certificate in use and the next rotation.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub subject: Option<String>,
    pub not_after: Option<Timestamp>,
    pub next_rotation: Option<Timestamp>,
    pub requesting: bool,
    pub failures: u32,
    pub rotations: u64,
    #[serde(rename = "trouble")]
    pub last_error: Option<String>,
}

/// Requests one certificate, offers it to TLS, and replaces it in time.
#[derive(Debug)]
pub struct Rotation {
    purpose: CertificatePurpose,
    store: CertificateStore,
    peers: Peers,
    identity: watch::Sender<Option<Arc<CertifiedKey>>>,
    renewal: RotationPolicy,

    wanted: Option<CertificateSubject>,
    current: Option<TlsKeyPair>,
    rotate_at: Option<Timestamp>,
    asking: Option<(TaskId, CertificateSubject)>,
    due: Option<TimerId>,
    over: Option<TimerId>,
    failures: u32,
    rotations: u64,
    last_error: Option<String>,
}

impl Actor for Rotation {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let store = self.store.clone();
        let current = kernel::spawn_blocking(move || store.current()).await;
        match current {
            Ok(Ok(pair)) => self.current = pair,
            Ok(Err(error)) => self.warn(error_chain(&error)),
            Err(error) => self.warn(error_chain(&error)),
        }
        self.offer(ctx);
        self.plan(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Wanted { subject } => self.want(subject, ctx),
            Msg::Due => self.ask(ctx),
            Msg::Over => self.offer(ctx),
            Msg::Came(outcome) => self.on_obtained(outcome.0, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let held = self.current.as_ref();
        Snapshot {
            subject: held.map(|pair| pair.subject.common_name.clone()),
            not_after: held.map(|pair| pair.lifetime.not_after),
            next_rotation: self.rotate_at,
            requesting: self.asking.is_some(),
            failures: self.failures,
            rotations: self.rotations,
            last_error: self.last_error.clone(),
        }
    }
}

impl Rotation {
    /// `wanted` is none where the node's addresses must be known first.
    pub fn new(
        purpose: CertificatePurpose,
        store: CertificateStore,
        peers: Peers,
        (wanted, identity): (
            Option<CertificateSubject>,
            watch::Sender<Option<Arc<CertifiedKey>>>,
        ),
    ) -> Self {
        Rotation {
            purpose,
            store,
            peers,
            identity,
            renewal: RotationPolicy::default(),
            wanted,
            current: None,
            rotate_at: None,
            asking: None,
            due: None,
            over: None,
            failures: 0,
            rotations: 0,
            last_error: None,
        }
    }

    /// Sets whether the certificate is replaced in time (the default) or never.
    pub fn renewed(self, renewal: RotationPolicy) -> Self {
        Rotation { renewal, ..self }
    }

    fn want(&mut self, subject: Option<CertificateSubject>, ctx: &mut Context<Msg>) {
        if self.wanted == subject {
            return;
        }
        self.wanted = subject;
        if let Some((task, asked)) = self.asking.take() {
            // The request under way may be for just what is wanted now.
            if Some(&asked) == self.wanted.as_ref() {
                self.asking = Some((task, asked));
                return;
            }
            ctx.abort(task);
        }
        self.plan(ctx);
    }

    /// Offers the held pair as long as it is valid.
    fn offer(&mut self, ctx: &mut Context<Msg>) {
        let now = ctx.timestamp();
        let good = self
            .current
            .as_ref()
            .filter(|pair| !pair.lifetime.is_over(now));
        let offered = good.map(|pair| pair.certified.clone());
        if let Some(timer) = self.over.take() {
            ctx.cancel(timer);
        }
        if let Some(pair) = good {
            let left = until(now, pair.lifetime.not_after) + Duration::from_secs(1);
            self.over = Some(ctx.after(left, Msg::Over));
        } else if self.current.is_some() {
            tracing::warn!(purpose = ?self.purpose, "the certificate is over");
        }
        let not_after = self.current.as_ref().map(|pair| pair.lifetime.not_after);
        let not_after = not_after.map_or(i64::MAX, Timestamp::as_second);
        NOT_AFTER[self.purpose as usize].store(not_after, Ordering::Relaxed);
        self.identity.send_if_modified(|before| {
            let differs = match (&*before, &offered) {
                (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
                (before, now) => before.is_some() != now.is_some(),
            };
            *before = offered;
            differs
        });
    }

    /// Schedules the request for the next certificate.
    fn plan(&mut self, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.due.take() {
            ctx.cancel(timer);
        }
        self.rotate_at = None;
        let Some(wanted) = &self.wanted else {
            return;
        };
        let now = ctx.timestamp();
        let held = self.current.as_ref();
        match held.map(|pair| (pair, pair.subject.difference_from(wanted))) {
            Some((pair, None)) if !pair.lifetime.is_over(now) => {
                self.rotate_at = pair.lifetime.rotation(self.renewal, kernel::chance());
                let wait = self.rotate_at.map(|at| until(now, at));
                self.due = wait.map(|wait| ctx.after(wait, Msg::Due));
            }
            Some((_, Some(lack))) => {
                tracing::info!(purpose = ?self.purpose, "a new certificate is needed: {lack}");
                self.ask(ctx);
            }
            Some((_, None)) | None => self.ask(ctx),
        }
    }

    fn ask(&mut self, ctx: &mut Context<Msg>) {
        let Some(subject) = self.wanted.clone().filter(|_| self.asking.is_none()) else {
            return;
        };
        let now = ctx.timestamp();
        let is_good = |pair: &TlsKeyPair| !pair.lifetime.is_over(now);
        let has_good = self.current.as_ref().is_some_and(is_good);
        if !has_good && self.over.is_some() {
            // The expired pair is withdrawn before another is requested, though its timer is not due yet.
            self.offer(ctx);
        }
        let own = has_good || self.purpose == CertificatePurpose::Server;
        let bootstrap = self.peers.bootstrap.as_ref().filter(|_| !own);
        let client = bootstrap
            .unwrap_or(&self.peers.client)
            .kube(RequestLane::Work);
        let (purpose, store, asked) = (self.purpose, self.store.clone(), subject.clone());
        tracing::info!(?purpose, "asking for a certificate");
        let task = ctx.run(async move {
            let obtained = obtain(client, purpose, &asked, store).await;
            Msg::Came(Box::new(RotationOutcome(obtained)))
        });
        self.asking = Some((task, subject));
    }

    fn on_obtained(&mut self, outcome: Result<TlsKeyPair, RotationError>, ctx: &mut Context<Msg>) {
        self.asking = None;
        match outcome {
            Ok(pair) => {
                let lack = self
                    .wanted
                    .as_ref()
                    .and_then(|wanted| pair.subject.difference_from(wanted));
                let before = self.current.replace(pair);
                self.count(before.as_ref(), ctx);
                self.last_error = None;
                self.offer(ctx);
                match lack {
                    None => {
                        self.failures = 0;
                        self.plan(ctx);
                    }
                    // The signer leaves something out, and may go on doing so.
                    Some(lack) => {
                        self.retry_later(format!("what was issued does not do: {lack}"), ctx)
                    }
                }
            }
            Err(error) => {
                match self.purpose {
                    CertificatePurpose::Client => {
                        metrics::api::certificates::CLIENT_RENEW_ERRORS.inc()
                    }
                    CertificatePurpose::Server => {
                        metrics::api::certificates::SERVER_RENEW_ERRORS.inc()
                    }
                }
                self.retry_later(error_chain(&error), ctx);
            }
        }
    }

    fn retry_later(&mut self, error: String, ctx: &mut Context<Msg>) {
        self.failures += 1;
        self.warn(error);
        self.rotate_at = None;
        self.due = Some(ctx.after(pause(self.failures), Msg::Due));
    }

    fn count(&mut self, before: Option<&TlsKeyPair>, ctx: &Context<Msg>) {
        self.rotations += 1;
        let now = ctx.timestamp();
        if let (Some(pair), CertificatePurpose::Server) = (before, self.purpose) {
            let used = now.duration_since(pair.lifetime.not_before).as_secs_f64();
            metrics::api::certificates::SERVER_ROTATION_SECONDS.observe(used);
        }
    }

    fn warn(&mut self, text: String) {
        tracing::warn!(purpose = ?self.purpose, "{text}");
        self.last_error = Some(text);
    }
}

async fn obtain(
    client: kube::Client,
    purpose: CertificatePurpose,
    subject: &CertificateSubject,
    store: CertificateStore,
) -> Result<TlsKeyPair, RotationError> {
    let draft = request::SigningRequestDraft::new(subject).map_err(RotationError::Request)?;
    let certificate = request::obtain(client, purpose, &draft)
        .await
        .map_err(RotationError::Request)?;
    let now = kernel::timestamp();
    let keep = move || store.update(&certificate, draft.key.as_bytes(), now);
    kernel::spawn_blocking(keep)
        .await
        .map_err(RotationError::Broke)?
        .map_err(RotationError::Keep)
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}
