//! Images made present: by policy, a bounded number of pulls at a time, with back-off.
//!
//! - **Owns** the queue of pulls, what is being pulled, the back-off of images that failed, and the
//!   records of who pulled what with which credentials.
//! - **Hears** `Ensure` from the pod workers' starts, and the reports of its own work.
//! - **Tells** the recorder what users look for: Pulling, Pulled, BackOff, Failed; it asks the keeper
//!   of the node's credentials.
//! - **Never** pulls more at once than the limit, nor an image inside its back-off, nor hands an image
//!   to a pod that has not shown that it may use it.
//!
//! Upstream: pkg/kubelet/images/{image_manager,puller}.go and pullmanager (1.36). Decisions: `logic::images`.

mod ledger;
mod request;
mod rows;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::events::{Recorder, Type};
use jiff::{SignedDuration, Timestamp};
use kernel::{Actor, Addr, Context, Exit, Reply};
use logic::backoff::{BackoffPolicy, Backoffs};
use logic::credentials::Credential;
use logic::credentials::secrets::{MISSING, PullSecrets};
use logic::images::rate::{Bucket, Rate};
use logic::images::{self as decide, PullPolicy, text, verification};
use logic::objects::Objects;
use logic::pod_start::Pulled;
use logic::types::Waiting;
use metrics::images as counted;

use self::ledger::Ledger;
pub use self::request::{Missing, Present, Request, Wanted};
pub use self::rows::{Row, Snapshot, State};
pub use self::tools::Look;
use self::tools::{Tools, Verification};
use crate::credentials;
use crate::runtime::{Image, Runtime};
use crate::worker::object;

/// Room for one start of each container of 1,000 pods at once, twice.
pub const MAILBOX: usize = 4096;
/// Between looks at an image that could not be inspected.
const INSPECT_AGAIN: Duration = Duration::from_secs(1);
/// Between looks at what only a person can change.
const STUCK_AGAIN: Duration = Duration::from_secs(10);

/// What the image keeper is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Makes the image present, and answers with it, or with why it is not.
    Ensure {
        wanted: Box<Wanted>,
        reply: Reply<Result<Present, Missing>>,
    },
    /// Goes on with a request whose image has been looked for.
    Looked { request: Box<Request>, look: Look },
    /// Queues a request whose credentials have been looked up.
    Armed {
        request: Box<Request>,
        credentials: Result<Vec<Credential>, String>,
    },
    /// Answers a request whose image has been pulled, and begins the next.
    Pulled {
        request: Box<Request>,
        answer: Result<Image, String>,
        began: Instant,
    },
    /// Takes note that the pulls of an earlier life have been taken over.
    Adopted,
    /// Answers with everything that is pulled, waits or backs off.
    List { reply: Reply<Snapshot> },
}

/// The image keeper's section of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Pulls at a time; none for no limit (`serializeImagePulls`, `maxParallelImagePulls`).
    pub parallel: Option<usize>,
    /// `registryPullQPS`, `registryBurst`; none for no limit.
    pub rate: Option<Rate>,
    /// Who may use an image that is here; none where that is not verified at all.
    pub verification: Option<verification::Policy>,
    /// Where the records of pulls are kept.
    pub root_dir: PathBuf,
}

/// Whom the image keeper works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: Runtime,
    pub credentials: Addr<credentials::Msg>,
    pub recorder: Recorder,
    pub objects: Arc<dyn Objects>,
}

/// The image keeper.
#[derive(Debug)]
pub struct Images {
    parallel: Option<usize>,

    recorder: Recorder,
    objects: Arc<dyn Objects>,
    tools: Tools,

    bucket: Option<Bucket>,
    queue: VecDeque<Box<Request>>,
    /// What is pulled, and the key of each.
    pulling: Vec<(String, Row)>,
    backoffs: Backoffs,
    /// By key: how the last pull of each image that backs off failed.
    failures: BTreeMap<String, Failure>,
}

/// A pull that failed, for the time until it is forgotten.
#[derive(Debug)]
struct Failure {
    waiting: Waiting,
    row: Row,
}

/// Upstream gives images the same back-off as containers: 10 s doubling to 5 min.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_secs(10),
    max: Duration::from_secs(300),
    reset_after: Duration::from_secs(600),
};

impl Actor for Images {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let tools = self.tools.clone();
        ctx.run(async move {
            tools.adopt().await;
            Msg::Adopted
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Ensure { wanted, reply } => self.ensure(*wanted, reply, ctx),
            Msg::Looked { request, look } => self.looked(request, look, ctx),
            Msg::Armed {
                request,
                credentials,
            } => self.armed(request, credentials, ctx),
            Msg::Pulled {
                request,
                answer,
                began,
            } => self.pulled(*request, answer, began, ctx),
            Msg::Adopted => {}
            Msg::List { reply } => reply.send(self.snapshot()),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let pulling = self.pulling.iter().map(|(_, row)| row.clone());
        let waiting = self.queue.iter().enumerate().map(|(index, request)| Row {
            position: Some(index + 1),
            ..self.row(&request.wanted, State::Waiting, request.queued)
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

impl Images {
    pub fn new(rules: Rules, peers: Peers) -> Self {
        let verification = rules.verification.map(|policy| Verification {
            policy,
            ledger: Ledger::new(&rules.root_dir),
        });
        Images {
            parallel: rules.parallel,
            recorder: peers.recorder,
            objects: peers.objects,
            tools: Tools {
                runtime: peers.runtime,
                credentials: peers.credentials,
                verification,
            },
            bucket: rules.rate.map(Bucket::full),
            queue: VecDeque::new(),
            pulling: Vec::new(),
            backoffs: Backoffs::default(),
            failures: BTreeMap::new(),
        }
    }

    fn ensure(
        &mut self,
        wanted: Wanted,
        reply: Reply<Result<Present, Missing>>,
        ctx: &mut Context<Msg>,
    ) {
        let image = match logic::image_reference::with_default_tag(&wanted.image) {
            Ok(image) => image,
            Err(error) => {
                let message = text::invalid(&wanted.image, &error.to_string());
                self.warn(&wanted, "InspectFailed", message.clone(), ctx);
                reply.send(Err(Missing::new(
                    decide::INVALID_IMAGE_NAME,
                    message,
                    STUCK_AGAIN,
                )));
                return;
            }
        };
        let secrets = PullSecrets::of(&wanted.pod, &*self.objects);
        if let Some(message) = secrets.complaint() {
            let pod = object(&wanted.pod, None);
            self.recorder
                .record(timestamp(ctx), Type::Warning, pod, MISSING, message);
        }
        let mut request = Box::new(Request {
            wanted,
            image,
            secrets,
            credentials: None,
            asked: ctx.now(),
            queued: timestamp(ctx),
            reply,
        });
        let tools = self.tools.clone();
        ctx.run(async move {
            let look = tools.look(&mut request).await;
            Msg::Looked { request, look }
        });
    }

    fn looked(&mut self, request: Box<Request>, look: Look, ctx: &mut Context<Msg>) {
        let wanted = &request.wanted;
        let image = &wanted.image;
        count(&look, wanted.policy);
        match (look, wanted.policy) {
            (Look::Present(found), _) => {
                let message = match &self.tools.verification {
                    Some(_) => text::accessible(image),
                    None => text::present(image),
                };
                self.record(wanted, Type::Normal, "Pulled", message, ctx);
                request.reply.send(Ok(found.into()));
            }
            // Whether it is here is not told to a pod that may not use it.
            (Look::Absent | Look::Closed, PullPolicy::Never) => {
                let message = text::never_pull(image);
                self.warn(wanted, decide::ERR_IMAGE_NEVER_PULL, message.clone(), ctx);
                let reason = decide::ERR_IMAGE_NEVER_PULL;
                let missing = Missing::new(reason, message, STUCK_AGAIN);
                request.reply.send(Err(missing));
            }
            (Look::Absent | Look::Closed, PullPolicy::Always | PullPolicy::IfNotPresent) => {
                self.arm_or_back_off(request, ctx);
            }
            (Look::Failed(error), _) => {
                let message = text::inspect_failed(image, &error.as_grpc());
                self.warn(wanted, "InspectFailed", message.clone(), ctx);
                let reason = decide::IMAGE_INSPECT_ERROR;
                let missing = Missing::new(reason, message, INSPECT_AGAIN);
                request.reply.send(Err(missing));
            }
            (Look::NoCredentials(why), _) => self.no_credentials(*request, why, ctx),
        }
    }

    fn arm_or_back_off(&mut self, mut request: Box<Request>, ctx: &mut Context<Msg>) {
        let (now, key) = (timestamp(ctx), request.wanted.key());
        let Some(left) = self.backoffs.remaining_since_update(&key, now, &BACKOFF) else {
            let tools = self.tools.clone();
            // Before it takes a place: a provider that hangs holds up nobody else's pull.
            ctx.run(async move {
                let credentials = tools.credentials(&mut request).await;
                Msg::Armed {
                    request,
                    credentials,
                }
            });
            return;
        };
        let (wanted, image) = (&request.wanted, &request.wanted.image);
        self.record(wanted, Type::Normal, "BackOff", text::back_off(image), ctx);
        let message = match self.failures.get(&key) {
            Some(Failure { waiting, .. }) => {
                text::back_off_because(image, &waiting.reason, &waiting.message)
            }
            None => text::back_off(image),
        };
        let missing = Missing::new(decide::IMAGE_PULL_BACK_OFF, message, left);
        request.reply.send(Err(missing));
    }

    fn armed(
        &mut self,
        mut request: Box<Request>,
        credentials: Result<Vec<Credential>, String>,
        ctx: &mut Context<Msg>,
    ) {
        match credentials {
            Ok(credentials) => request.credentials = Some(credentials),
            Err(why) => return self.no_credentials(*request, why, ctx),
        }
        request.queued = timestamp(ctx);
        let message = text::pulling(&request.wanted.image);
        self.record(&request.wanted, Type::Normal, "Pulling", message, ctx);
        self.queue.push_back(request);
        self.pull_next(ctx);
    }

    /// Nothing was tried, so nothing backs off; only a person can change it.
    fn no_credentials(&self, request: Request, why: String, ctx: &Context<Msg>) {
        let message = text::failed(&request.wanted.image, &why);
        self.warn(&request.wanted, "Failed", message, ctx);
        let missing = Missing::new(decide::ERR_IMAGE_PULL, why, STUCK_AGAIN);
        request.reply.send(Err(missing));
    }

    fn pull_next(&mut self, ctx: &mut Context<Msg>) {
        while self.parallel.is_none_or(|limit| self.pulling.len() < limit) {
            let Some(request) = self.queue.pop_front() else {
                return;
            };
            let now = timestamp(ctx);
            if self.bucket.as_mut().is_some_and(|bucket| !bucket.take(now)) {
                self.failed(*request, text::QPS_EXCEEDED.to_owned(), ctx);
                continue;
            }
            let row = self.row(&request.wanted, State::Pulling, now);
            self.pulling.push((request.wanted.key(), row));
            let (tools, began) = (self.tools.clone(), ctx.now());
            ctx.run(async move {
                let answer = tools.pull(&request).await;
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
        request: Request,
        answer: Result<Image, String>,
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
                let message = text::pulled(&wanted.image, took, waited, image.bytes);
                self.record(wanted, Type::Normal, "Pulled", message, ctx);
                self.failures.remove(&key);
                counted::PULL_DURATION
                    .with_label_values(&[counted::size(image.bytes)])
                    .observe(waited.as_secs_f64());
                let pulled = Pulled {
                    from: request.queued,
                    to: timestamp(ctx),
                };
                request.reply.send(Ok(Present {
                    pulled: Some(pulled),
                    ..image.into()
                }));
            }
            Err(error) => self.failed(request, error, ctx),
        }
        self.backoffs.gc(timestamp(ctx), &BACKOFF);
        let backoffs = &self.backoffs;
        self.failures.retain(|key, _| backoffs.delay(key).is_some());
        self.pull_next(ctx);
    }

    fn failed(&mut self, request: Request, error: String, ctx: &Context<Msg>) {
        let (now, wanted, key) = (timestamp(ctx), &request.wanted, request.wanted.key());
        self.warn(wanted, "Failed", text::failed(&wanted.image, &error), ctx);
        let delay = self.backoffs.next(&key, now, now, &BACKOFF);
        let waiting = decide::pull_failure(&wanted.image, &error);
        let mut row = self.row(wanted, State::BackingOff, now);
        row.until = SignedDuration::try_from(delay)
            .ok()
            .and_then(|delay| now.checked_add(delay).ok());
        row.last_error = Some(waiting.message.clone());
        let failure = Failure {
            waiting: waiting.clone(),
            row,
        };
        self.failures.insert(key, failure);
        // Asked again at once, the answer is ImagePullBackOff, which is what users look for.
        let again_after = delay.min(Duration::from_secs(1));
        request.reply.send(Err(Missing {
            waiting,
            again_after,
        }));
    }

    /// A row that knows how often the image was tried.
    fn row(&self, wanted: &Wanted, state: State, since: Timestamp) -> Row {
        let row = Row::new(wanted, state, since);
        match (self.failures.get(&wanted.key()), state) {
            (None, _) => row,
            (Some(last), State::BackingOff) => Row {
                attempt: last.row.attempt + 1,
                ..row
            },
            (Some(last), State::Pulling | State::Waiting) => Row {
                attempt: last.row.attempt + 1,
                last_error: last.row.last_error.clone(),
                ..row
            },
        }
    }

    fn warn(&self, wanted: &Wanted, reason: &str, message: String, ctx: &Context<Msg>) {
        self.record(wanted, Type::Warning, reason, message, ctx);
    }

    fn record(
        &self,
        wanted: &Wanted,
        r#type: Type,
        reason: &str,
        message: String,
        ctx: &Context<Msg>,
    ) {
        let object = object(&wanted.pod, wanted.container());
        self.recorder
            .record(timestamp(ctx), r#type, object, reason, message);
    }
}

/// Counts a request by whether the image is here, and whether it has to be pulled; of one that is pulled in any case
/// nobody looks.
fn count(look: &Look, policy: PullPolicy) {
    let (present, pull) = match (look, policy) {
        (_, PullPolicy::Always) => ("unknown", "true"),
        (Look::Present(_), _) => ("true", "false"),
        (Look::Closed, PullPolicy::Never) => ("true", "unknown"),
        (Look::Absent, PullPolicy::Never) => ("false", "unknown"),
        (Look::Closed, PullPolicy::IfNotPresent) => ("true", "true"),
        (Look::Absent, PullPolicy::IfNotPresent) => ("false", "true"),
        (Look::Failed(_) | Look::NoCredentials(_), _) => ("unknown", "unknown"),
    };
    let policy = match policy {
        PullPolicy::Always => "always",
        PullPolicy::IfNotPresent => "ifnotpresent",
        PullPolicy::Never => "never",
    };
    let labels = [policy, present, pull];
    counted::ENSURED.with_label_values(&labels).inc();
}

fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}
