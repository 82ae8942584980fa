//! Static pods from a URL (`staticPodURL`).
//!
//! - **Owns** the pods of the last good answer, and the number of failures since.
//! - **Hears** that the period has passed, and the results of fetches.
//! - **Tells** the pod manager the whole set after each good answer, and an empty set after an answer without a body;
//!   the recorder each problem with it.
//! - **Never** sends a set before the first such answer, and never lets a failure or a bad manifest end running pods.
//!
//! Upstream: pkg/kubelet/config/http.go (1.36).

mod fetch;
#[cfg(test)]
mod tests;
mod url;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::error_chain;
use kernel::{Actor, Addr, Context, Exit};
use logic_api::manifest;
use logic_api::manifest::StaticPodContext;
use serde::Serialize;
use state::events::Recorder;

pub use self::fetch::FetchError;
use self::fetch::{Roots, UrlClient};
use crate::pod_manager::{self, PodSource};
use crate::sources::manifest::{Manifest, ManifestWarning, SourceError};
use crate::sources::source_problems::{SourceProblem, SourceProblems};
use crate::sources::unique::{Unique, unique};

/// Room for its own timer and fetches: one at a time.
pub const MAILBOX: usize = 16;
/// Consecutive failures that are logged as warnings; upstream's number.
const LOUD_FAILURES: u64 = 3;
/// A configured period shorter than this would flood the server.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// Messages of the HTTP source.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fetches: the period has passed.
    Tick,
    /// Takes the result of a fetch, and sends the pod manager the set.
    Fetched(Result<Box<FetchedManifest>, FetchError>),
}

/// A good answer.
#[derive(Debug)]
pub struct FetchedManifest {
    version: u64,
    /// None if the answer's bytes are those of the last one.
    manifest: Option<Manifest>,
}

/// The counts of pods and fetches, and the last error.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub url: String,
    pub pods: Option<usize>,
    pub fetches: u64,
    /// Consecutive failures.
    pub failures: u64,
    pub last_error: Option<String>,
    pub refused: Vec<String>,
}

/// The HTTP source.
#[derive(Debug)]
pub struct UrlSource {
    client: UrlClient,
    period: Duration,
    context: StaticPodContext,

    pod_manager: Addr<pod_manager::Msg>,
    source_problems: SourceProblems,

    /// The hash of the last good answer; none before it.
    version: Option<u64>,
    pods: Vec<Arc<Pod>>,
    problems: Vec<SourceError>,
    warnings: Vec<ManifestWarning>,
    fetches: u64,
    failures: u64,
    last_error: Option<String>,
}

impl Actor for UrlSource {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        tracing::info!(
            url = self.client.name(),
            "static pods are fetched from here"
        );
        self.fetch(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.fetch(ctx),
            Msg::Fetched(answer) => self.fetched(answer, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            url: self.client.name(),
            pods: self.version.map(|_| self.pods.len()),
            fetches: self.fetches,
            failures: self.failures,
            last_error: self.last_error.clone(),
            refused: self
                .problems
                .iter()
                .map(|refused| error_chain(refused))
                .collect(),
        }
    }
}

impl UrlSource {
    /// `headers` go with each request (`staticPodURLHeader`); `period` is `httpCheckFrequency`.
    pub fn new(
        url: impl Into<Arc<str>>,
        headers: &BTreeMap<String, Vec<String>>,
        period: Duration,
        context: impl Into<StaticPodContext>,
        pod_manager: Addr<pod_manager::Msg>,
        recorder: Recorder,
    ) -> Self {
        let client = UrlClient::new(url.into(), headers, Roots::OfTheSystem);
        UrlSource::with_client(client, period, context.into(), pod_manager, recorder)
    }

    fn with_client(
        client: UrlClient,
        period: Duration,
        context: StaticPodContext,
        pod_manager: Addr<pod_manager::Msg>,
        recorder: Recorder,
    ) -> Self {
        UrlSource {
            client,
            period: period.max(MIN_PERIOD),
            source_problems: SourceProblems::new(
                PodSource::Http,
                recorder,
                pod_manager.clone(),
                &context.node_name,
            ),
            context,
            pod_manager,
            version: None,
            pods: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            fetches: 0,
            failures: 0,
            last_error: None,
        }
    }

    fn fetch(&mut self, ctx: &mut Context<Msg>) {
        self.fetches += 1;
        let (client, ground, known) = (self.client.clone(), self.context.clone(), self.version);
        let seen = ctx.timestamp();
        ctx.run(async move {
            let data = match client.fetch().await {
                Ok(data) => data,
                Err(error) => return Msg::Fetched(Err(error)),
            };
            let version = version_of(&data);
            if known == Some(version) {
                return Msg::Fetched(Ok(Box::new(FetchedManifest {
                    version,
                    manifest: None,
                })));
            }
            let source = manifest::ManifestSource::Url(client.url().to_owned());
            let read = move || Manifest::read(&data, &source, &ground, seen);
            let manifest = kernel::spawn_blocking(read)
                .await
                .unwrap_or_else(|_| SourceError::Broke.into());
            Msg::Fetched(Ok(Box::new(FetchedManifest {
                version,
                manifest: Some(manifest),
            })))
        });
    }

    fn fetched(
        &mut self,
        answer: Result<Box<FetchedManifest>, FetchError>,
        ctx: &mut Context<Msg>,
    ) {
        ctx.after(self.period, Msg::Tick);
        match answer {
            Ok(fetched) => {
                if self.failures > 0 {
                    tracing::info!("pods are read from {} again", self.client.name());
                }
                self.failures = 0;
                self.last_error = None;
                self.accept(*fetched, ctx);
            }
            Err(error) => {
                if matches!(error, FetchError::Empty { .. }) {
                    self.emptied(ctx);
                }
                self.failed(&error);
            }
        }
    }

    /// As upstream, an answer without a body is an empty set, though it counts as a failure: the source has been heard.
    fn emptied(&mut self, ctx: &Context<Msg>) {
        let fetched = FetchedManifest {
            version: version_of(&[]),
            manifest: Some(Manifest::default()),
        };
        self.accept(fetched, ctx);
    }

    fn accept(&mut self, fetched: FetchedManifest, ctx: &Context<Msg>) {
        if let Some(mut manifest) = fetched.manifest {
            let useless = manifest.pods.is_empty() && !manifest.problems.is_empty();
            self.pods = manifest.replace(&self.pods);
            self.problems = manifest.problems;
            self.warnings = manifest.warnings;
            if useless && self.version.is_none() {
                // Without one readable pod it is unknown whether the set is empty.
                self.complain(fetched.version, Vec::new(), ctx);
                return;
            }
        }
        self.version = Some(fetched.version);
        let name = self.client.name();
        let Unique { pods, duplicates } = unique([(name.as_str(), self.pods.as_slice())]);
        self.complain(
            fetched.version,
            duplicates.into_iter().map(|(_, refused)| refused).collect(),
            ctx,
        );
        let set = pod_manager::Msg::SetPods {
            source: PodSource::Http,
            pods,
        };
        if let Err(full) = self.pod_manager.tell(set) {
            tracing::warn!("static pods not handed on before the next period: {full}");
        }
    }

    fn complain(&mut self, version: u64, duplicates: Vec<SourceError>, ctx: &Context<Msg>) {
        let url = self.client.name();
        let refused =
            self.problems
                .iter()
                .chain(&duplicates)
                .map(|refused| SourceProblem::Refused {
                    manifest: url.clone(),
                    why: error_chain(refused),
                    version,
                });
        let doubtful = self.warnings.iter().map(|warning| SourceProblem::Doubtful {
            text: format!("{url}: {}", warning.text),
            version,
            pod: warning.pod.clone(),
        });
        let all: BTreeSet<SourceProblem> = refused.chain(doubtful).collect();
        self.source_problems.tell(ctx.wall(), all);
    }

    /// As upstream: the first failures are warnings, later ones debug lines.
    fn failed(&mut self, error: &FetchError) {
        let text = error_chain(error);
        match self.failures {
            0..LOUD_FAILURES => tracing::warn!("cannot read pods: {text}"),
            LOUD_FAILURES => {
                tracing::warn!("cannot read pods, and from now on only debug lines say so: {text}")
            }
            _ => tracing::debug!("cannot read pods: {text}"),
        }
        self.failures += 1;
        self.last_error = Some(text);
    }
}

fn version_of(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}
