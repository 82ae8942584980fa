//! Credentials of the node: its own docker file, and the credential provider plugins.
//!
//! - **Owns** the docker file's contents, and each provider's answers until they expire.
//! - **Hears** `Lookup` from the image manager, and the results of its own runs.
//! - **Tells** no other actor; it answers with credentials in the order to try them in.
//! - **Never** lets one provider hold up another, nor runs one twice at once for the same image.
//!
//! Upstream: pkg/credentialprovider (provider.go, plugin/plugin.go, 1.36). Decisions: `logic_pods::images::credentials`.

mod exec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::CredentialProvider;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared, join_all};
use kernel::error_chain;
use kernel::{Actor, Context, Exit, Reply};
use logic_pods::images::credentials::docker::{
    self, DockerConfig, DockerConfigDirs, DockerConfigFormat,
};
use logic_pods::images::credentials::keyring::Keyring;
use logic_pods::images::credentials::provider::{ProviderCache, ProviderResponse, is_for};
use logic_pods::images::credentials::{Credential, CredentialSource};
use serde::Serialize;
use tokio::sync::Semaphore;

/// Room for one image of each of 1,000 pods at once, and the providers' answers.
pub const MAILBOX: usize = 2048;
/// As upstream: a changed file is read again after this time.
const FILE_CACHE_PERIOD: Duration = Duration::from_secs(300);
/// Local files in a few fixed places take no longer; a pull waits no longer for one that hangs.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a docker file; a larger one is not read.
const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;
/// Runs of one provider at a time; more wait, at no cost to other providers.
const MAX_RUNS: usize = 16;

/// Messages of the credential manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Answers with the node's credentials for a repository, in the order to try them in.
    Lookup {
        repository: String,
        reply: Reply<Vec<Credential>>,
    },
    /// Stores a provider's answer.
    ProviderFinished(Box<ProviderRun>),
    /// Counts a lookup as answered.
    LookedUp,
}

/// The result of a provider's run.
#[derive(Debug)]
pub struct ProviderRun {
    provider: usize,
    repository: String,
    answer: ProviderResult,
}

/// A provider's answer, or why there is none.
type ProviderResult = Result<Arc<ProviderResponse>, Arc<str>>;
/// The result of one run, shared by the lookups that wait for it.
type SharedResult = Shared<LocalBoxFuture<'static, ProviderResult>>;
/// The node's docker file: its path if there is one, and its contents.
type SharedDockerConfig = Shared<LocalBoxFuture<'static, (Option<PathBuf>, Arc<DockerConfig>)>>;

/// The section of the configuration about credentials.
#[derive(Debug, Clone)]
pub struct CredentialConfig {
    /// Where the node's docker file is looked for.
    pub folders: DockerConfigDirs,
    pub providers: Vec<CredentialProvider>,
}

/// The docker file in use, and each provider.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub file: Option<PathBuf>,
    pub providers: Vec<ProviderRow>,
}

/// One provider's numbers.
#[derive(Debug, Serialize)]
pub struct ProviderRow {
    pub name: String,
    pub under_way: usize,
    pub runs: u64,
    pub failures: u64,
    pub cached: usize,
    pub last_error: Option<String>,
}

/// The credential manager, as upstream's `DockerKeyring`.
pub struct DockerKeyring {
    folders: DockerConfigDirs,
    providers: Vec<Provider>,

    file: Option<(Instant, SharedDockerConfig)>,
}

struct Provider {
    declared: Arc<CredentialProvider>,
    places: Arc<Semaphore>,
    cache: ProviderCache,
    under_way: BTreeMap<String, SharedResult>,
    runs: u64,
    failures: u64,
    last_error: Option<String>,
}

impl std::fmt::Debug for DockerKeyring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "DockerKeyring({:?})", self.providers)
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Provider({})", self.declared.name)
    }
}

impl Actor for DockerKeyring {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Lookup { repository, reply } => self.lookup(repository, reply, ctx),
            Msg::ProviderFinished(provider_finished) => {
                self.provider_finished(*provider_finished, ctx)
            }
            Msg::LookedUp => {}
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let row = |provider: &Provider| ProviderRow {
            name: provider.declared.name.clone(),
            under_way: provider.under_way.len(),
            runs: provider.runs,
            failures: provider.failures,
            cached: provider.cache.len(),
            last_error: provider.last_error.clone(),
        };
        Snapshot {
            file: self
                .file
                .as_ref()
                .and_then(|(_, file)| file.peek()?.0.clone()),
            providers: self.providers.iter().map(row).collect(),
        }
    }
}

impl DockerKeyring {
    pub fn new(rules: CredentialConfig) -> Self {
        let provider = |declared| Provider {
            declared: Arc::new(declared),
            places: Arc::new(Semaphore::new(MAX_RUNS)),
            cache: ProviderCache::default(),
            under_way: BTreeMap::new(),
            runs: 0,
            failures: 0,
            last_error: None,
        };
        DockerKeyring {
            folders: rules.folders,
            providers: rules.providers.into_iter().map(provider).collect(),
            file: None,
        }
    }

    fn lookup(
        &mut self,
        repository: String,
        reply: Reply<Vec<Credential>>,
        ctx: &mut Context<Msg>,
    ) {
        let file = self.file(ctx.now());
        let now = ctx.timestamp();
        let mut answers: Vec<LocalBoxFuture<'static, Option<DockerConfig>>> = Vec::new();
        for index in 0..self.providers.len() {
            let provider = &self.providers[index];
            if !is_for(&provider.declared.match_images, &repository) {
                continue;
            }
            if let Some(known) = provider.cache.get(&repository, now).cloned() {
                answers.push(async move { Some(known) }.boxed_local());
                continue;
            }
            let answer = self.run_provider(index, &repository, ctx);
            answers.push(async move { Some(answer.await.ok()?.auth.clone()) }.boxed_local());
        }
        ctx.run(async move {
            let mut provider_finished = Keyring::default();
            for config in join_all(answers).await.into_iter().flatten() {
                provider_finished.add(&CredentialSource::Node, &config);
            }
            let mut own = Keyring::default();
            // A file that is late is used when it has been read: its reading goes on.
            match tokio::time::timeout(FILE_TIMEOUT, file).await {
                Ok((_, file)) => own.add(&CredentialSource::Node, &file),
                Err(_) => tracing::warn!(
                    "the docker config is not read yet: images are pulled without it"
                ),
            }
            let mut found = own.lookup(&repository);
            found.extend(provider_finished.lookup(&repository));
            reply.send(found);
            Msg::LookedUp
        });
    }

    /// The provider's current run for this image, or a new one.
    fn run_provider(
        &mut self,
        index: usize,
        repository: &str,
        ctx: &mut Context<Msg>,
    ) -> SharedResult {
        let provider = &mut self.providers[index];
        if let Some(under_way) = provider.under_way.get(repository) {
            return under_way.clone();
        }
        let (declared, places) = (provider.declared.clone(), provider.places.clone());
        let image = repository.to_owned();
        let run = async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await.ok();
            match exec::ask(&declared, &image, exec::EXEC_TIMEOUT).await {
                Ok(response) => Ok(Arc::new(response)),
                Err(error) => {
                    let error = format!("{} (image {image})", error_chain(&error));
                    tracing::error!("{error}");
                    Err(error.into())
                }
            }
        };
        let run = run.boxed_local().shared();
        provider
            .under_way
            .insert(repository.to_owned(), run.clone());
        provider.runs += 1;
        let (noted, repository) = (run.clone(), repository.to_owned());
        ctx.run(async move {
            Msg::ProviderFinished(Box::new(ProviderRun {
                provider: index,
                answer: noted.await,
                repository,
            }))
        });
        run
    }

    fn provider_finished(&mut self, provider_finished: ProviderRun, ctx: &Context<Msg>) {
        let now = ctx.timestamp();
        let Some(provider) = self.providers.get_mut(provider_finished.provider) else {
            return;
        };
        provider.under_way.remove(&provider_finished.repository);
        match provider_finished.answer {
            Ok(response) => {
                let default = provider.declared.default_cache_duration;
                provider
                    .cache
                    .put(&provider_finished.repository, &response, default, now);
                provider.last_error = None;
            }
            Err(error) => {
                provider.failures += 1;
                provider.last_error = Some(error.to_string());
            }
        }
    }

    /// The node's docker file, read again after [`FILE_CACHE_PERIOD`].
    fn file(&mut self, now: Instant) -> SharedDockerConfig {
        if let Some((since, file)) = &self.file
            && now - *since < FILE_CACHE_PERIOD
        {
            return file.clone();
        }
        let places = docker::search(&self.folders);
        let read = kernel::spawn_blocking(move || first_readable(places));
        let read = async move {
            let (path, config) = read.await.ok().flatten().unzip();
            (path, Arc::new(config.unwrap_or_default()))
        };
        let file = read.boxed_local().shared();
        self.file = Some((now, file.clone()));
        file
    }
}

fn first_readable(places: Vec<(PathBuf, DockerConfigFormat)>) -> Option<(PathBuf, DockerConfig)> {
    places.into_iter().find_map(|(path, format)| {
        let text = read(&path)?;
        match docker::parse(format, &text) {
            Ok(config) => Some((path, config)),
            Err(error) => {
                tracing::warn!("{} gives no credentials: {error}", path.display());
                None
            }
        }
    })
}

/// The contents of a regular file of at most [`MAX_FILE_SIZE`] bytes; none for anything else.
fn read(path: &Path) -> Option<Vec<u8>> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_FILE_SIZE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
