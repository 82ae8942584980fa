//! Images made present: by policy, a bounded number of pulls at a time, with back-off.
//!
//! - **Owns** the queue of pulls, the running pulls, the back-off of images that failed, and the
//!   records of which credentials each image was pulled with.
//! - **Hears** `Ensure` from the pod workers' starts, and the results of its own tasks.
//! - **Tells** the recorder the events that users look for: Pulling, Pulled, BackOff, Failed; it asks the
//!   credential manager for the node's credentials.
//! - **Never** pulls more at once than the limit, nor an image inside its back-off, nor hands an image
//!   to a pod that has not shown that it may use it.
//!
//! Upstream: pkg/kubelet/images/{image_manager,puller}.go and pullmanager (1.36). Decisions: `logic_pods::images`.

pub mod credentials;
mod pull_records;
mod puller;
mod request;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::runtime::{RuntimeClient, RuntimeImage};
use jiff::{SignedDuration, Timestamp};
use kernel::{Actor, Addr, Context, Exit, Reply};
use logic_api::backoff::{BackoffPolicy, BackoffTable};
use logic_api::objects::Objects;
use logic_api::types::WaitingReason;
use logic_pods::images as decide;
use logic_pods::images::credentials::Credential;
use logic_pods::images::credentials::secrets::{MISSING, PullSecrets};
use logic_pods::images::rate::{PullRateLimit, TokenBucket};
use logic_pods::images::{PullPolicy, messages, verification};
use logic_pods::status::pod_start::PullInterval;
use metrics::runtime::images as counted;
use state::events::{EventType, InvolvedObject, Recorder};

use self::pull_records::PullRecords;
pub use self::puller::ImageCheck;
use self::puller::{ImagePuller, Verification};
pub use self::request::{ImageRequest, ImageUnavailable, PresentImage, PullTask};
pub use self::rows::{PullRow, PullState, Snapshot};

/// Room for one start of each container of 1,000 pods at once, twice.
pub const MAILBOX: usize = 4096;
/// Between attempts to inspect an image after the runtime failed to.
const INSPECT_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Between attempts at an image whose failure only an operator can mend.
const OPERATOR_RETRY_PERIOD: Duration = Duration::from_secs(10);

/// Messages of the image manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Makes the image present; answers with it, or with why it is absent.
    Ensure {
        wanted: Box<ImageRequest>,
        reply: Reply<Result<PresentImage, ImageUnavailable>>,
    },
    /// Goes on with a request whose image was looked up.
    Checked {
        request: Box<PullTask>,
        check: ImageCheck,
    },
    /// Queues a request whose credentials were looked up.
    CredentialsFound {
        request: Box<PullTask>,
        credentials: Result<Vec<Credential>, String>,
    },
    /// Answers a request whose image has been pulled, and begins the next.
    Pulled {
        request: Box<PullTask>,
        answer: Result<RuntimeImage, String>,
        began: Instant,
    },
    /// Goes on: the records on the disk are as they should be.
    RecordsKept,
    /// Forgets with what images were pulled that garbage collection has found gone or has removed.
    Collected {
        /// The ids and names of all images that are left.
        present: BTreeSet<String>,
        /// When the collection began: what was pulled since is not among them.
        began: Timestamp,
    },
    /// Answers with everything that is pulled, waits or backs off.
    List { reply: Reply<Snapshot> },
}

/// The image manager's section of the configuration.
#[derive(Debug, Clone, Default)]
pub struct ImageConfig {
    /// Pulls at a time; none for no limit (`serializeImagePulls`, `maxParallelImagePulls`).
    pub parallel: Option<usize>,
    /// `registryPullQPS`, `registryBurst`; none for no limit.
    pub rate: Option<PullRateLimit>,
    /// Which pods may use an image that is present; none where that is not verified.
    pub verification: Option<verification::CredentialVerificationPolicy>,
    /// The root folder, which has the records of pulls.
    pub root_dir: PathBuf,
}

/// The actors and clients that the image manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    pub credentials: Addr<credentials::Msg>,
    pub recorder: Recorder,
    pub objects: Arc<dyn Objects>,
}

/// The image manager.
#[derive(Debug)]
pub struct ImageManager {
    parallel: Option<usize>,

    recorder: Recorder,
    objects: Arc<dyn Objects>,
    puller: ImagePuller,

    bucket: Option<TokenBucket>,
    queue: VecDeque<Box<PullTask>>,
    /// Running pulls, each with its key.
    pulling: Vec<(String, PullRow)>,
    backoffs: BackoffTable,
    /// By key: the last failure of each image that backs off.
    failures: BTreeMap<String, PullFailure>,
}

/// A failed pull, until it is forgotten.
#[derive(Debug)]
struct PullFailure {
    waiting: WaitingReason,
    row: PullRow,
}

/// Upstream gives images the same back-off as containers: 10 s doubling to 5 min.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_secs(10),
    max: Duration::from_secs(300),
    reset_after: Duration::from_secs(600),
};

impl Actor for ImageManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let puller = self.puller.clone();
        ctx.run(async move {
            puller.adopt_existing().await;
            Msg::RecordsKept
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Ensure { wanted, reply } => self.ensure(*wanted, reply, ctx),
            Msg::Checked { request, check } => self.checked(request, check, ctx),
            Msg::CredentialsFound {
                request,
                credentials,
            } => self.credentials_found(request, credentials, ctx),
            Msg::Pulled {
                request,
                answer,
                began,
            } => self.pulled(*request, answer, began, ctx),
            Msg::RecordsKept => {}
            Msg::Collected { present, began } => self.collected(present, began, ctx),
            Msg::List { reply } => reply.send(self.snapshot()),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let pulling = self.pulling.iter().map(|(_, row)| row.clone());
        let waiting = self
            .queue
            .iter()
            .enumerate()
            .map(|(index, request)| PullRow {
                position: Some(index + 1),
                ..self.row(&request.wanted, PullState::Waiting, request.queued)
            });
        let now = kernel::wall().try_into().unwrap_or(Timestamp::UNIX_EPOCH);
        let backing_off = self.failures.values().map(|failure| failure.row.clone());
        let backing_off = backing_off.filter(|row| row.until.is_some_and(|until| until > now));
        Snapshot {
            limit: self.parallel,
            rows: pulling.chain(waiting).chain(backing_off).collect(),
        }
    }
}

impl ImageManager {
    pub fn new(rules: ImageConfig, peers: Peers) -> Self {
        let verification = rules.verification.map(|policy| Verification {
            policy,
            pull_records: PullRecords::new(&rules.root_dir),
        });
        ImageManager {
            parallel: rules.parallel,
            recorder: peers.recorder,
            objects: peers.objects,
            puller: ImagePuller {
                runtime: peers.runtime,
                credentials: peers.credentials,
                verification,
            },
            bucket: rules.rate.map(TokenBucket::full),
            queue: VecDeque::new(),
            pulling: Vec::new(),
            backoffs: BackoffTable::default(),
            failures: BTreeMap::new(),
        }
    }

    fn collected(&self, present: BTreeSet<String>, began: Timestamp, ctx: &mut Context<Msg>) {
        let puller = self.puller.clone();
        ctx.run(async move {
            puller.prune(present, began).await;
            Msg::RecordsKept
        });
    }

    fn ensure(
        &mut self,
        wanted: ImageRequest,
        reply: Reply<Result<PresentImage, ImageUnavailable>>,
        ctx: &mut Context<Msg>,
    ) {
        let image = match logic_api::text::image_reference::with_default_tag(&wanted.image) {
            Ok(image) => image,
            Err(error) => {
                count_request(wanted.policy, "unknown", "unknown");
                let message = messages::invalid(&wanted.image, &error.to_string());
                self.warn(&wanted, "InspectFailed", message.clone(), ctx);
                reply.send(Err(ImageUnavailable::new(
                    decide::INVALID_IMAGE_NAME,
                    message,
                    OPERATOR_RETRY_PERIOD,
                )));
                return;
            }
        };
        let secrets = PullSecrets::of(&wanted.pod, &*self.objects);
        if let Some(message) = secrets.complaint() {
            let pod = InvolvedObject::pod(&wanted.pod, None);
            self.recorder
                .record(ctx.timestamp(), EventType::Warning, pod, MISSING, message);
        }
        let mut request = Box::new(PullTask {
            wanted,
            image,
            secrets,
            credentials: None,
            asked: ctx.now(),
            queued: ctx.timestamp(),
            reply,
        });
        let puller = self.puller.clone();
        ctx.run(async move {
            let check = puller.check(&mut request).await;
            Msg::Checked { request, check }
        });
    }

    fn checked(&mut self, request: Box<PullTask>, check: ImageCheck, ctx: &mut Context<Msg>) {
        let wanted = &request.wanted;
        let image = &wanted.image;
        count(&check, wanted.policy);
        match (check, wanted.policy) {
            (ImageCheck::Present(found), _) => {
                let message = match &self.puller.verification {
                    Some(_) => messages::accessible(image),
                    None => messages::present(image),
                };
                self.record(wanted, EventType::Normal, "Pulled", message, ctx);
                request.reply.send(Ok(found.into()));
            }
            // A pod that may not use the image does not learn that it is present.
            (ImageCheck::Absent | ImageCheck::Closed, PullPolicy::Never) => {
                let message = messages::never_pull(image);
                self.warn(wanted, decide::ERR_IMAGE_NEVER_PULL, message.clone(), ctx);
                let reason = decide::ERR_IMAGE_NEVER_PULL;
                let missing = ImageUnavailable::new(reason, message, OPERATOR_RETRY_PERIOD);
                request.reply.send(Err(missing));
            }
            (
                ImageCheck::Absent | ImageCheck::Closed,
                PullPolicy::Always | PullPolicy::IfNotPresent,
            ) => {
                self.fetch_credentials_or_back_off(request, ctx);
            }
            (ImageCheck::Failed(error), _) => {
                let message = messages::inspect_failed(image, &error.as_grpc());
                self.warn(wanted, "InspectFailed", message.clone(), ctx);
                let reason = decide::IMAGE_INSPECT_ERROR;
                let missing = ImageUnavailable::new(reason, message, INSPECT_RETRY_PERIOD);
                request.reply.send(Err(missing));
            }
            (ImageCheck::NoCredentials(why), _) => self.no_credentials(*request, why, ctx),
        }
    }

    fn fetch_credentials_or_back_off(
        &mut self,
        mut request: Box<PullTask>,
        ctx: &mut Context<Msg>,
    ) {
        let (now, key) = (ctx.timestamp(), request.wanted.key());
        let Some(left) = self.backoffs.remaining_since_update(&key, now, &BACKOFF) else {
            let puller = self.puller.clone();
            // Before it takes a place, so that a provider that hangs does not hold up other pulls.
            ctx.run(async move {
                let credentials = puller.credentials(&mut request).await;
                Msg::CredentialsFound {
                    request,
                    credentials,
                }
            });
            return;
        };
        let (wanted, image) = (&request.wanted, &request.wanted.image);
        self.record(
            wanted,
            EventType::Normal,
            "BackOff",
            messages::back_off(image),
            ctx,
        );
        let message = match self.failures.get(&key) {
            Some(PullFailure { waiting, .. }) => {
                messages::back_off_because(image, &waiting.reason, &waiting.message)
            }
            None => messages::back_off(image),
        };
        let missing = ImageUnavailable::new(decide::IMAGE_PULL_BACK_OFF, message, left);
        request.reply.send(Err(missing));
    }

    fn credentials_found(
        &mut self,
        mut request: Box<PullTask>,
        credentials: Result<Vec<Credential>, String>,
        ctx: &mut Context<Msg>,
    ) {
        match credentials {
            Ok(credentials) => request.credentials = Some(credentials),
            Err(why) => return self.no_credentials(*request, why, ctx),
        }
        request.queued = ctx.timestamp();
        let message = messages::pulling(&request.wanted.image);
        self.record(&request.wanted, EventType::Normal, "Pulling", message, ctx);
        self.queue.push_back(request);
        self.pull_next(ctx);
    }

    /// No pull was tried, so none backs off; only an operator can mend it.
    fn no_credentials(&self, request: PullTask, why: String, ctx: &Context<Msg>) {
        let message = messages::failed(&request.wanted.image, &why);
        self.warn(&request.wanted, "Failed", message, ctx);
        let missing = ImageUnavailable::new(decide::ERR_IMAGE_PULL, why, OPERATOR_RETRY_PERIOD);
        request.reply.send(Err(missing));
    }

    fn pull_next(&mut self, ctx: &mut Context<Msg>) {
        while self.parallel.is_none_or(|limit| self.pulling.len() < limit) {
            let Some(request) = self.queue.pop_front() else {
                return;
            };
            let now = ctx.timestamp();
            if self.bucket.as_mut().is_some_and(|bucket| !bucket.take(now)) {
                self.failed(*request, messages::QPS_EXCEEDED.to_owned(), ctx);
                continue;
            }
            let row = self.row(&request.wanted, PullState::Pulling, now);
            self.pulling.push((request.wanted.key(), row));
            let (puller, began) = (self.puller.clone(), ctx.now());
            ctx.run(async move {
                let answer = puller.pull(&request).await;
                Msg::Pulled {
                    request,
                    answer,
                    began,
                }
            });
        }
    }

    fn pulled(
        &mut self,
        request: PullTask,
        answer: Result<RuntimeImage, String>,
        began: Instant,
        ctx: &mut Context<Msg>,
    ) {
        let key = request.wanted.key();
        let at = self.pulling.iter().position(|(pulled, _)| *pulled == key);
        if let Some(at) = at {
            self.pulling.remove(at);
        }
        match answer {
            Ok(image) => {
                let wanted = &request.wanted;
                let (took, waited) = (ctx.now() - began, ctx.now() - request.asked);
                let message = messages::pulled(&wanted.image, took, waited, image.bytes);
                self.record(wanted, EventType::Normal, "Pulled", message, ctx);
                self.failures.remove(&key);
                counted::PULL_DURATION
                    .with_label_values(&[counted::size(image.bytes)])
                    .observe(waited.as_secs_f64());
                let pulled = PullInterval {
                    from: request.queued,
                    to: ctx.timestamp(),
                };
                request.reply.send(Ok(PresentImage {
                    pulled: Some(pulled),
                    ..image.into()
                }));
            }
            Err(error) => self.failed(request, error, ctx),
        }
        self.backoffs.gc(ctx.timestamp(), &BACKOFF);
        let backoffs = &self.backoffs;
        self.failures.retain(|key, _| backoffs.delay(key).is_some());
        self.pull_next(ctx);
    }

    fn failed(&mut self, request: PullTask, error: String, ctx: &Context<Msg>) {
        let (now, wanted, key) = (ctx.timestamp(), &request.wanted, request.wanted.key());
        self.warn(
            wanted,
            "Failed",
            messages::failed(&wanted.image, &error),
            ctx,
        );
        let delay = self.backoffs.next(&key, now, now, &BACKOFF);
        let waiting = decide::pull_failure(&wanted.image, &error);
        let mut row = self.row(wanted, PullState::BackingOff, now);
        row.until = SignedDuration::try_from(delay)
            .ok()
            .and_then(|delay| now.checked_add(delay).ok());
        row.last_error = Some(waiting.message.clone());
        let failure = PullFailure {
            waiting: waiting.clone(),
            row,
        };
        self.failures.insert(key, failure);
        // A request that is repeated soon gets ImagePullBackOff, which users look for.
        let retry_after = delay.min(Duration::from_secs(1));
        request.reply.send(Err(ImageUnavailable {
            waiting,
            retry_after,
        }));
    }

    /// A row with the number of attempts of the image.
    fn row(&self, wanted: &ImageRequest, state: PullState, since: Timestamp) -> PullRow {
        let row = PullRow::new(wanted, state, since);
        match (self.failures.get(&wanted.key()), state) {
            (None, _) => row,
            (Some(last), PullState::BackingOff) => PullRow {
                attempt: last.row.attempt + 1,
                ..row
            },
            (Some(last), PullState::Pulling | PullState::Waiting) => PullRow {
                attempt: last.row.attempt + 1,
                last_error: last.row.last_error.clone(),
                ..row
            },
        }
    }

    fn warn(&self, wanted: &ImageRequest, reason: &str, message: String, ctx: &Context<Msg>) {
        self.record(wanted, EventType::Warning, reason, message, ctx);
    }

    fn record(
        &self,
        wanted: &ImageRequest,
        r#type: EventType,
        reason: &str,
        message: String,
        ctx: &Context<Msg>,
    ) {
        let object = InvolvedObject::pod(&wanted.pod, wanted.container());
        self.recorder
            .record(ctx.timestamp(), r#type, object, reason, message);
    }
}

/// Counts a request by whether the image is present and whether it must be pulled; with `Always` presence is not
/// checked.
fn count(check: &ImageCheck, policy: PullPolicy) {
    let (present, pull) = match (check, policy) {
        (_, PullPolicy::Always) => ("unknown", "true"),
        (ImageCheck::Present(_), _) => ("true", "false"),
        (ImageCheck::Absent, PullPolicy::Never) => ("false", "unknown"),
        (ImageCheck::Closed, _) => ("true", "true"),
        (ImageCheck::Absent, PullPolicy::IfNotPresent) => ("false", "true"),
        (ImageCheck::NoCredentials(_), _) => ("true", "unknown"),
        (ImageCheck::Failed(_), _) => ("unknown", "unknown"),
    };
    count_request(policy, present, pull);
}

fn count_request(policy: PullPolicy, present: &str, pull: &str) {
    let policy = match policy {
        PullPolicy::Always => "always",
        PullPolicy::IfNotPresent => "ifnotpresent",
        PullPolicy::Never => "never",
    };
    let labels = [policy, present, pull];
    counted::ENSURED.with_label_values(&labels).inc();
}
