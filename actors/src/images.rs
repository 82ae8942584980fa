//! Images made present: by policy, a bounded number of pulls at a time, with back-off.
//!
//! - **Owns** the queue of pulls, what is being pulled, and the back-off of images that failed.
//! - **Hears** `Ensure` from the pod workers' starts, and the reports of its own inspections and pulls.
//! - **Tells** the recorder what users look for: Pulling, Pulled, BackOff, Failed.
//! - **Never** pulls more at once than the limit, nor an image inside its back-off.
//!
//! Upstream: pkg/kubelet/images/{image_manager,puller}.go (1.36). Decisions: `logic::images`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kernel::{Actor, Context, Exit, Reply};
use logic::backoff::{BackoffPolicy, Backoffs};
use logic::images::{self as decide, Presence, Pull, PullPolicy, text};
use logic::pod::PodView;
use logic::security::ImageUser;
use logic::types::Waiting;
use serde::Serialize;

use crate::events::{Recorder, Type};
use crate::runtime::{Image, Runtime, RuntimeError};
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
    /// Goes on with a request whose image has been looked up.
    Inspected {
        request: Box<Request>,
        answer: Result<Option<Image>, RuntimeError>,
    },
    /// Answers a request whose image has been pulled, and begins the next.
    Pulled {
        request: Box<Request>,
        answer: Result<Image, RuntimeError>,
        began: Instant,
    },
}

/// Which image, for whom.
#[derive(Debug)]
pub struct Wanted {
    image: String,
    policy: PullPolicy,
    pod: Arc<Pod>,
    container: String,
}

impl Wanted {
    pub fn new(pod: &Arc<Pod>, container: &Container) -> Self {
        let image = container.image.clone().unwrap_or_default();
        Wanted {
            policy: decide::pull_policy(container.image_pull_policy.as_deref(), &image),
            image,
            pod: pod.clone(),
            container: container.name.clone(),
        }
    }

    /// Upstream's key: a failed pull of one pod does not hold up another.
    fn key(&self) -> String {
        decide::backoff_key(self.pod.uid().as_str(), &self.image)
    }
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// What the runtime is to be asked for.
    pub reference: String,
    pub user: ImageUser,
}

/// Why an image is not there, and when to ask again.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    pub waiting: Waiting,
    pub again_after: Duration,
}

/// A request under way.
#[derive(Debug)]
pub struct Request {
    wanted: Wanted,
    /// With its tag, as the runtime wants it.
    image: String,
    asked: Instant,
    reply: Reply<Result<Present, Missing>>,
}

/// What is pulled and what waits.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pulling: Vec<String>,
    pub waiting: Vec<String>,
    pub backing_off: usize,
}

/// The image keeper.
#[derive(Debug)]
pub struct Images {
    runtime: Runtime,
    recorder: Recorder,
    /// Pulls at a time; none for no limit (`serializeImagePulls`, `maxParallelImagePulls`).
    limit: Option<usize>,

    queue: VecDeque<Box<Request>>,
    pulling: Vec<String>,
    backoffs: Backoffs,
    /// Why the last pull of each image in back-off failed.
    last_errors: BTreeMap<String, Waiting>,
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

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Ensure { wanted, reply } => self.ensure(*wanted, reply, ctx),
            Msg::Inspected { request, answer } => self.inspected(request, answer, ctx),
            Msg::Pulled {
                request,
                answer,
                began,
            } => self.pulled(*request, answer, began, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pulling: self.pulling.clone(),
            waiting: self
                .queue
                .iter()
                .map(|request| request.image.clone())
                .collect(),
            backing_off: self.backoffs.len(),
        }
    }
}

impl Images {
    pub fn new(runtime: Runtime, recorder: Recorder, limit: Option<usize>) -> Self {
        Images {
            runtime,
            recorder,
            limit,
            queue: VecDeque::new(),
            pulling: Vec::new(),
            backoffs: Backoffs::default(),
            last_errors: BTreeMap::new(),
        }
    }

    fn ensure(
        &mut self,
        wanted: Wanted,
        reply: Reply<Result<Present, Missing>>,
        ctx: &mut Context<Msg>,
    ) {
        let image = match decide::with_default_tag(&wanted.image) {
            Ok(image) => image,
            Err(error) => {
                let message = text::invalid(&wanted.image, &error.to_string());
                self.record(
                    &wanted,
                    Type::Warning,
                    "InspectFailed",
                    message.clone(),
                    ctx,
                );
                reply.send(Err(missing(
                    decide::INVALID_IMAGE_NAME,
                    message,
                    STUCK_AGAIN,
                )));
                return;
            }
        };
        let request = Box::new(Request {
            wanted,
            image,
            asked: ctx.now(),
            reply,
        });
        let runtime = self.runtime.clone();
        ctx.run(async move {
            let answer = runtime.image(&request.image).await;
            Msg::Inspected { request, answer }
        });
    }

    fn inspected(
        &mut self,
        request: Box<Request>,
        answer: Result<Option<Image>, RuntimeError>,
        ctx: &mut Context<Msg>,
    ) {
        let wanted = &request.wanted;
        let image = match answer {
            Ok(image) => image,
            Err(error) => {
                let message = text::inspect_failed(&wanted.image, &error.told());
                self.record(wanted, Type::Warning, "InspectFailed", message.clone(), ctx);
                request.reply.send(Err(missing(
                    decide::IMAGE_INSPECT_ERROR,
                    message,
                    INSPECT_AGAIN,
                )));
                return;
            }
        };
        let presence = if image.is_some() {
            Presence::Present
        } else {
            Presence::Absent
        };
        match (decide::should_pull(wanted.policy, presence), image) {
            (Pull::NotNeeded, Some(image)) => {
                self.record(
                    wanted,
                    Type::Normal,
                    "Pulled",
                    text::present(&wanted.image),
                    ctx,
                );
                request.reply.send(Ok(present(image)));
            }
            (Pull::Forbidden, _) => {
                let message = text::never_pull(&wanted.image);
                self.record(
                    wanted,
                    Type::Warning,
                    "ErrImageNeverPull",
                    message.clone(),
                    ctx,
                );
                request.reply.send(Err(missing(
                    decide::ERR_IMAGE_NEVER_PULL,
                    message,
                    STUCK_AGAIN,
                )));
            }
            (Pull::Needed | Pull::NotNeeded, _) => self.queue_or_back_off(request, ctx),
        }
    }

    fn queue_or_back_off(&mut self, request: Box<Request>, ctx: &mut Context<Msg>) {
        let (now, key) = (timestamp(ctx), request.wanted.key());
        match self.backoffs.remaining_since_update(&key, now, &BACKOFF) {
            Some(left) => {
                let image = &request.wanted.image;
                self.record(
                    &request.wanted,
                    Type::Normal,
                    "BackOff",
                    text::back_off(image),
                    ctx,
                );
                let message = match self.last_errors.get(&key) {
                    Some(last) => text::back_off_because(image, &last.reason, &last.message),
                    None => text::back_off(image),
                };
                request
                    .reply
                    .send(Err(missing(decide::IMAGE_PULL_BACK_OFF, message, left)));
            }
            None => {
                self.queue.push_back(request);
                self.pull_next(ctx);
            }
        }
    }

    fn pull_next(&mut self, ctx: &mut Context<Msg>) {
        while self.limit.is_none_or(|limit| self.pulling.len() < limit) {
            let Some(request) = self.queue.pop_front() else {
                return;
            };
            self.pulling.push(request.image.clone());
            self.record(
                &request.wanted,
                Type::Normal,
                "Pulling",
                text::pulling(&request.wanted.image),
                ctx,
            );
            let (runtime, began) = (self.runtime.clone(), ctx.now());
            ctx.run(async move {
                let answer = pull(&runtime, &request.image).await;
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
        answer: Result<Image, RuntimeError>,
        began: Instant,
        ctx: &mut Context<Msg>,
    ) {
        if let Some(at) = self
            .pulling
            .iter()
            .position(|image| *image == request.image)
        {
            self.pulling.swap_remove(at);
        }
        let (now, wanted, key) = (timestamp(ctx), &request.wanted, request.wanted.key());
        self.backoffs.gc(now, &BACKOFF);
        match answer {
            Ok(image) => {
                let (took, waited) = (ctx.now() - began, ctx.now() - request.asked);
                let message = text::pulled(&wanted.image, took, waited, image.bytes);
                self.record(wanted, Type::Normal, "Pulled", message, ctx);
                self.backoffs.forget(&key);
                self.last_errors.remove(&key);
                request.reply.send(Ok(present(image)));
            }
            Err(error) => {
                let message = text::failed(&wanted.image, &error.told());
                self.record(wanted, Type::Warning, "Failed", message, ctx);
                let delay = self.backoffs.next(&key, now, now, &BACKOFF);
                self.last_errors
                    .retain(|key, _| self.backoffs.delay(key).is_some());
                let waiting = decide::pull_failure(&wanted.image, &error.said());
                self.last_errors.insert(key, waiting.clone());
                // Asked again at once, the answer is ImagePullBackOff, which is what users look for.
                let again_after = delay.min(Duration::from_secs(1));
                request.reply.send(Err(Missing {
                    waiting,
                    again_after,
                }));
            }
        }
        self.pull_next(ctx);
    }

    fn record(
        &self,
        wanted: &Wanted,
        r#type: Type,
        reason: &str,
        message: String,
        ctx: &Context<Msg>,
    ) {
        let object = object(&wanted.pod, Some(&wanted.container));
        self.recorder
            .record(timestamp(ctx), r#type, object, reason, message);
    }
}

async fn pull(runtime: &Runtime, image: &str) -> Result<Image, RuntimeError> {
    let reference = runtime.pull(image).await?;
    let looked_up = runtime.image(reference.as_str()).await?;
    Ok(looked_up.unwrap_or(Image {
        reference,
        bytes: 0,
        uid: None,
        username: String::new(),
    }))
}

fn present(image: Image) -> Present {
    let user = match (image.uid, image.username) {
        (Some(uid), _) => ImageUser::Uid(uid),
        (None, name) if name.is_empty() => ImageUser::Unset,
        (None, name) => ImageUser::Name(name),
    };
    Present {
        reference: image.reference.as_str().to_owned(),
        user,
    }
}

fn missing(reason: &str, message: String, again_after: Duration) -> Missing {
    let waiting = Waiting {
        reason: reason.to_owned(),
        message,
    };
    Missing {
        waiting,
        again_after,
    }
}

fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}
