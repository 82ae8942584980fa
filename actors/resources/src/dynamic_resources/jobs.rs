//! Jobs: what is done to the claims of one pod, step by step.
//!
//! A job waits for its turn at its claims; then it is planned, the plan is recorded in the state file, the drivers are
//! called all at once, their answers are taken in and recorded, and the asker is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kernel::{Context, Reply};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_placement::claims::{
    CallFailure, ClaimDevice, ClaimIdentity, ClaimKey, ClaimReference, ClaimUid, ClaimsError,
    DriverError, DriverName, JobFailure, PreparePlan, UnpreparePlan, encode_claims, needed_claims,
};
use metrics::node::dynamic_resources::operated;
use metrics::runtime::CallResult;

use super::links::DriverLine;
use super::question::Question;
use super::{DynamicResources, Msg, WriteResult};

/// A job goes on.
#[derive(Debug)]
pub enum JobEvent {
    /// With the pod's claims as the API has them.
    Fetched {
        job: u64,
        claims: Result<Vec<(ClaimReference, ResourceClaim)>, JobFailure>,
    },
    /// With the drivers' answers.
    Prepared {
        job: u64,
        answers: Answers<Vec<ClaimDevice>>,
    },
    /// With the drivers' answers.
    Undone { job: u64, answers: Answers<()> },
}

/// What came of calls, by driver.
type Answers<T> = BTreeMap<DriverName, Result<BTreeMap<ClaimUid, T>, CallFailure>>;

/// A job, how far it is, and since when.
#[derive(Debug)]
pub(super) struct Job {
    work: Work,
    stage: Stage,
    begun: Instant,
}

#[derive(Debug)]
enum Work {
    Prepare {
        pod: Arc<Pod>,
        needed: Vec<ClaimReference>,
        reply: Reply<Result<(), ClaimsError>>,
    },
    Unprepare {
        pod: PodUid,
        claims: BTreeSet<ClaimKey>,
        /// None where the pod is gone, and nobody asks.
        reply: Option<Reply<Result<(), ClaimsError>>>,
    },
}

#[derive(Debug)]
enum Stage {
    /// For its turn, for the API, or for drivers that are called before anything is known.
    Waiting,
    /// What is to be prepared; until it is recorded no driver is called.
    ToPrepare(PreparePlan),
    Preparing(PreparePlan),
    Undoing(UnpreparePlan),
    /// With this, once that is recorded.
    Ending(Result<(), JobFailure>),
}

/// The jobs that need the state file written.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Since a write has begun.
    waiting: BTreeSet<u64>,
    /// For the write that runs.
    in_flight: BTreeSet<u64>,
}

impl DynamicResources {
    pub(super) fn prepare(
        &mut self,
        pod: Arc<Pod>,
        reply: Reply<Result<(), ClaimsError>>,
        ctx: &mut Context<Msg>,
    ) {
        let needed = match needed_claims(&pod, self.config.gates) {
            Ok(needed) => needed,
            Err(error) => return reply.send(Err(ClaimsError::Prepare(error.into()))),
        };
        if needed.is_empty() {
            return reply.send(Ok(()));
        }
        let claims = keys(&pod, &needed);
        let work = Work::Prepare { pod, needed, reply };
        self.queue(work, claims, ctx);
    }

    pub(super) fn unprepare(
        &mut self,
        pod: &Pod,
        reply: Reply<Result<(), ClaimsError>>,
        ctx: &mut Context<Msg>,
    ) {
        let claims = match needed_claims(pod, self.config.gates) {
            Ok(needed) => keys(pod, &needed),
            // Its claims have never had names, so that none was prepared: it may end. Upstream's stays.
            Err(_) if !self.cache.is_referenced(&pod.uid()) => return reply.send(Ok(())),
            Err(error) => return reply.send(Err(ClaimsError::Unprepare(error.into()))),
        };
        if claims.is_empty() {
            return reply.send(Ok(()));
        }
        self.undo(pod.uid(), claims, Some(reply), ctx);
    }

    /// Has a pod's claims undone; it need not be known any more.
    pub(super) fn undo(
        &mut self,
        pod: PodUid,
        claims: BTreeSet<ClaimKey>,
        reply: Option<Reply<Result<(), ClaimsError>>>,
        ctx: &mut Context<Msg>,
    ) {
        let work = Work::Unprepare {
            pod,
            claims: claims.clone(),
            reply,
        };
        self.queue(work, claims, ctx);
    }

    /// Whether a job for this pod is at work or waits.
    pub(super) fn is_busy_with(&self, pod: &PodUid) -> bool {
        self.jobs.values().any(|job| match &job.work {
            Work::Prepare { pod: own, .. } => own.uid() == *pod,
            Work::Unprepare { pod: own, .. } => own == pod,
        })
    }

    fn queue(&mut self, work: Work, claims: BTreeSet<ClaimKey>, ctx: &mut Context<Msg>) {
        let number = self.number();
        let job = Job {
            work,
            stage: Stage::Waiting,
            begun: ctx.now(),
        };
        self.jobs.insert(number, job);
        self.locks.request(number, claims);
        self.start_jobs(ctx);
    }

    fn start_jobs(&mut self, ctx: &mut Context<Msg>) {
        for job in self.locks.start() {
            self.begin(job, ctx);
        }
    }

    fn begin(&mut self, number: u64, ctx: &mut Context<Msg>) {
        match self.jobs.get(&number).map(|job| &job.work) {
            Some(Work::Prepare { pod, needed, .. }) => {
                let namespace = pod.namespace().to_owned();
                let (needed, api) = (needed.clone(), self.peers.api.claims.clone());
                ctx.run(async move {
                    let claims = fetch(api, &namespace, needed).await;
                    Msg::Job(JobEvent::Fetched {
                        job: number,
                        claims,
                    })
                });
            }
            Some(Work::Unprepare { pod, claims, .. }) => {
                let plan = self.cache.plan_unprepare(pod, claims);
                self.call_to_undo(number, plan, ctx);
            }
            None => {}
        }
    }

    pub(super) fn job_event(&mut self, event: JobEvent, ctx: &mut Context<Msg>) {
        match event {
            JobEvent::Fetched { job, claims } => self.fetched(job, claims, ctx),
            JobEvent::Prepared { job, answers } => self.prepared(job, answers, ctx),
            JobEvent::Undone { job, answers } => self.undone(job, answers, ctx),
        }
    }

    fn fetched(
        &mut self,
        number: u64,
        claims: Result<Vec<(ClaimReference, ResourceClaim)>, JobFailure>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        let Work::Prepare { pod, .. } = &job.work else {
            return;
        };
        let gates = self.config.gates;
        let plan = claims.and_then(|claims| {
            let plan = self.cache.plan_prepare(pod, &claims, &self.drivers, gates);
            plan.map_err(JobFailure::from)
        });
        match plan {
            Ok(plan) => {
                job.stage = Stage::ToPrepare(plan);
                self.record(number, ctx);
            }
            Err(failure) => self.finish(number, Err(failure), ctx),
        }
    }

    fn call_to_prepare(&mut self, number: u64, plan: PreparePlan, ctx: &mut Context<Msg>) {
        let calls = self.lines(&plan.calls);
        self.set_stage(number, Stage::Preparing(plan));
        ctx.run(async move {
            let answers = calls.into_iter().map(async |(driver, claims, line)| {
                let answer = match line {
                    Ok(line) => line.prepare(&claims).await,
                    Err(error) => Err(error.into()),
                };
                (driver, answer)
            });
            Msg::Job(JobEvent::Prepared {
                job: number,
                answers: join_all(answers).await.into_iter().collect(),
            })
        });
    }

    fn prepared(
        &mut self,
        number: u64,
        answers: Answers<Vec<ClaimDevice>>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(Stage::Preparing(plan)) = self.take_stage(number) else {
            return;
        };
        let (done, result) = split(answers);
        self.cache.take_prepared(&plan, &done);
        self.end_with(number, result, ctx);
    }

    fn call_to_undo(&mut self, number: u64, plan: UnpreparePlan, ctx: &mut Context<Msg>) {
        let calls = self.lines(&plan.calls);
        self.set_stage(number, Stage::Undoing(plan));
        ctx.run(async move {
            let answers = calls.into_iter().map(async |(driver, claims, line)| {
                let answer = match line {
                    Ok(line) => line.unprepare(&claims).await,
                    Err(error) => Err(error.into()),
                };
                (driver, answer)
            });
            Msg::Job(JobEvent::Undone {
                job: number,
                answers: join_all(answers).await.into_iter().collect(),
            })
        });
    }

    fn undone(&mut self, number: u64, answers: Answers<()>, ctx: &mut Context<Msg>) {
        let Some(Stage::Undoing(plan)) = self.take_stage(number) else {
            return;
        };
        let (done, result) = split(answers);
        self.cache.take_unprepared(&plan, &done);
        self.end_with(number, result, ctx);
    }

    /// The drivers of a plan's calls, each by the connection that it is called at.
    fn lines(
        &self,
        calls: &BTreeMap<DriverName, Vec<ClaimIdentity>>,
    ) -> Vec<(
        DriverName,
        Vec<ClaimIdentity>,
        Result<DriverLine, DriverError>,
    )> {
        let calls = calls.iter();
        calls
            .map(|(driver, claims)| (driver.clone(), claims.clone(), self.line(driver)))
            .collect()
    }

    /// Records what the drivers have done, and then answers.
    fn end_with(&mut self, number: u64, result: Result<(), JobFailure>, ctx: &mut Context<Msg>) {
        self.show_claims_in_use();
        self.set_stage(number, Stage::Ending(result));
        self.record(number, ctx);
    }

    fn set_stage(&mut self, number: u64, stage: Stage) {
        if let Some(job) = self.jobs.get_mut(&number) {
            job.stage = stage;
        }
    }

    fn take_stage(&mut self, number: u64) -> Option<Stage> {
        let job = self.jobs.get_mut(&number)?;
        Some(std::mem::replace(&mut job.stage, Stage::Waiting))
    }

    /// Goes on with the job once the state file has all that is known now.
    fn record(&mut self, number: u64, ctx: &mut Context<Msg>) {
        self.recording.waiting.insert(number);
        self.record_next(ctx);
    }

    fn record_next(&mut self, ctx: &mut Context<Msg>) {
        if self.file.is_writing() || self.recording.waiting.is_empty() {
            return;
        }
        let jobs = std::mem::take(&mut self.recording.waiting);
        let content = encode_claims(&self.cache);
        if self.file.is_stored(&content) {
            jobs.into_iter()
                .for_each(|job| self.go_on(job, &Ok(()), ctx));
            return;
        }
        self.recording.in_flight = jobs;
        let write = self.file.write(content);
        ctx.run(async move { Msg::Recorded(write.await) });
    }

    pub(super) fn recorded(&mut self, write: WriteResult, ctx: &mut Context<Msg>) {
        let result = self.file.written(write);
        for job in std::mem::take(&mut self.recording.in_flight) {
            self.go_on(job, &result, ctx);
        }
        self.record_next(ctx);
    }

    fn go_on(&mut self, number: u64, recorded: &Result<(), String>, ctx: &mut Context<Msg>) {
        let recorded = recorded.clone().map_err(JobFailure::Record);
        match (self.take_stage(number), recorded) {
            (Some(Stage::ToPrepare(plan)), Ok(())) => self.call_to_prepare(number, plan, ctx),
            (Some(Stage::ToPrepare(_)), Err(failure)) => self.finish(number, Err(failure), ctx),
            (Some(Stage::Ending(result)), recorded) => {
                self.finish(number, result.and(recorded), ctx);
            }
            (Some(Stage::Waiting | Stage::Preparing(_) | Stage::Undoing(_)) | None, _) => {}
        }
    }

    fn finish(&mut self, number: u64, result: Result<(), JobFailure>, ctx: &mut Context<Msg>) {
        self.locks.release(number);
        if let Some(job) = self.jobs.remove(&number) {
            let took = ctx.now().saturating_duration_since(job.begun);
            let end = match result.is_ok() {
                true => CallResult::Well,
                false => CallResult::InError,
            };
            match job.work {
                Work::Prepare { reply, .. } => {
                    operated("PrepareResources", took, end);
                    reply.send(result.map_err(ClaimsError::Prepare));
                }
                Work::Unprepare { pod, reply, .. } => {
                    operated("UnprepareResources", took, end);
                    let result = result.map_err(ClaimsError::Unprepare);
                    match (reply, result) {
                        (Some(reply), result) => reply.send(result),
                        (None, Err(error)) => {
                            tracing::info!("pod {pod} is gone: {error}; tried again each minute");
                        }
                        (None, Ok(())) => {}
                    }
                }
            }
        }
        self.start_jobs(ctx);
    }
}

fn keys(pod: &Pod, needed: &[ClaimReference]) -> BTreeSet<ClaimKey> {
    let names = needed.iter();
    names
        .map(|reference| ClaimKey::new(pod.namespace(), &reference.name))
        .collect()
}

/// The answers of the drivers that did well, and the first failure.
fn split<T>(
    answers: Answers<T>,
) -> (
    BTreeMap<DriverName, BTreeMap<ClaimUid, T>>,
    Result<(), JobFailure>,
) {
    let (mut done, mut result) = (BTreeMap::new(), Ok(()));
    for (driver, answer) in answers {
        match answer {
            Ok(answer) => {
                done.insert(driver, answer);
            }
            Err(failure) => result = result.and(Err(failure.into())),
        }
    }
    (done, result)
}

/// Reads the pod's claims one after the other, up to the first that is not there.
async fn fetch(
    api: Option<Question<ClaimKey, ResourceClaim>>,
    namespace: &str,
    needed: Vec<ClaimReference>,
) -> Result<Vec<(ClaimReference, ResourceClaim)>, JobFailure> {
    let mut claims = Vec::new();
    for reference in needed {
        let claim = match &api {
            Some(api) => api.ask(ClaimKey::new(namespace, &reference.name)).await,
            None => Err("the node has no API server".to_owned()),
        };
        let claim = claim.map_err(|why| JobFailure::Fetch {
            claim: reference.name.clone(),
            why,
        })?;
        claims.push((reference, claim));
    }
    Ok(claims)
}
