//! Manifests and blobs of one repository, from the first of its hosts that serves them as they should be.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_proxy::ProxyEnvironment;
use hyper::body::Bytes;
use tokio::sync::mpsc;

use super::auth::{self, Auth};
use super::hosts::{Host, hosts};
use super::transport::{Answer, Ask, Common, HostClient, HostTimeouts, check_status};
use super::{Failure, HostMemory, RegistryError, tls};
use crate::digest::Digest;
use crate::documents;
use crate::limits::Limits;
use crate::reference::Reference;

/// For a connection with a host after which no other one is tried, and with one after which others are.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a connection with a host after which others are tried: a mirror that is down must not hold up a pull.
const MIRROR_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For the head of an answer of a host after which others are tried.
const MIRROR_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause that a pull makes because a registry asks for it; one that asks for more is given up.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(60);
/// Progress after which a broken download has all its attempts again.
const PROGRESS_BYTES: u64 = 1 << 20;

/// A part of a download, or its end: a channel that closes without one was broken off.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    End,
}

/// The hosts of one repository, with what a pull knows of them.
#[derive(Debug)]
pub(crate) struct Registry {
    hosts: Vec<(Host, HostClient)>,
    reference: Reference,
    auth: Auth,
    /// The Authorization header that a host wants, by its place.
    tokens: Mutex<HashMap<usize, HeaderValue>>,
    limits: Limits,
    memory: Arc<HostMemory>,
}

/// What a pull finds around it.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    /// The folder of `hosts.toml` files and certificates by registry.
    pub(crate) certs: Option<&'a Path>,
    pub(crate) limits: &'a Limits,
    pub(crate) memory: Arc<HostMemory>,
    pub(crate) proxies: Arc<ProxyEnvironment>,
}

/// One of several hosts to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    place: usize,
    /// No other one is tried after it: it is waited for longer, and asked again.
    is_last: bool,
}

/// What is wanted: a path below the repository, and what it must be.
struct Wanted<'a> {
    path: String,
    digest: Option<&'a Digest>,
    size: Option<u64>,
    accept: &'static str,
}

impl Registry {
    /// Reads where the reference's registry is reached.
    pub(crate) fn new(
        reference: &Reference,
        auth: Auth,
        surroundings: Surroundings<'_>,
    ) -> Result<Self, RegistryError> {
        let hosts = clients(reference, &surroundings).map_err(|failure| RegistryError {
            registry: reference.registry().to_owned(),
            what: reference.to_string().into(),
            failure,
            earlier: Box::default(),
        })?;
        Ok(Self {
            hosts,
            reference: reference.clone(),
            auth,
            tokens: Mutex::default(),
            limits: surroundings.limits.clone(),
            memory: surroundings.memory,
        })
    }

    /// Fetches a manifest or index: that with the digest and size, or that which the reference stands for now.
    pub(crate) async fn manifest(
        &self,
        expected: Option<(&Digest, u64)>,
    ) -> Result<(Digest, Vec<u8>), RegistryError> {
        let target =
            expected.map_or_else(|| self.reference.target(), |(digest, _)| digest.to_string());
        self.document(&Wanted {
            path: format!("manifests/{target}"),
            digest: expected
                .map(|(digest, _)| digest)
                .or(self.reference.digest()),
            size: expected.map(|(_, size)| size),
            accept: documents::ACCEPT,
        })
        .await
    }

    /// Fetches a blob that is a document: an image's config.
    pub(crate) async fn config(
        &self,
        digest: &Digest,
        size: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let wanted = Wanted {
            path: format!("blobs/{digest}"),
            digest: Some(digest),
            size: Some(size),
            accept: "*/*",
        };
        Ok(self.document(&wanted).await?.1)
    }

    /// Returns the hosts that serve blobs, in the order to try.
    pub(crate) fn sources(&self) -> Vec<Source> {
        self.those(|host| host.pulls)
    }

    fn those(&self, suits: impl Fn(&Host) -> bool) -> Vec<Source> {
        let mut sources: Vec<_> = (0..self.hosts.len())
            .filter(|place| suits(&self.hosts[*place].0))
            .map(|place| Source {
                place,
                is_last: false,
            })
            .collect();
        if let Some(last) = sources.last_mut() {
            last.is_last = true;
        }
        sources
    }

    /// Streams a blob of a host, goes on where the connection breaks, and ends early when nobody listens.
    pub(crate) async fn stream(
        &self,
        source: Source,
        (digest, size): (&Digest, u64),
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<(), RegistryError> {
        let (mut offset, mut attempt, mut progress) = (0, 0, 0);
        loop {
            let streamed = match self.await_turn(source).await {
                Ok(()) => {
                    self.stream_from(source.place, (digest, size), &mut offset, pieces)
                        .await
                }
                Err(failure) => Err(failure),
            };
            let Err(failure) = streamed else {
                drop(pieces.send(Piece::End).await);
                return Ok(());
            };
            if offset - progress >= PROGRESS_BYTES {
                (attempt, progress) = (0, offset);
            }
            attempt += 1;
            // Another host would have to begin anew.
            let source = Source {
                is_last: source.is_last || offset > 0,
                ..source
            };
            self.before_next(source, &digest.to_string(), failure, attempt)
                .await?;
        }
    }

    async fn stream_from(
        &self,
        place: usize,
        (digest, size): (&Digest, u64),
        offset: &mut u64,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<(), Failure> {
        if *offset >= size {
            return Ok(());
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if *offset > 0 {
            let range = HeaderValue::try_from(format!("bytes={offset}-"));
            headers.insert(RANGE, range.expect("digits are a header's"));
        }
        let mut answer = self.get(place, &format!("blobs/{digest}"), headers).await?;
        let mut skip = check_range(&answer, *offset, size)?;
        while let Some(mut piece) = answer.piece().await? {
            let length = |piece: &Bytes| u64::try_from(piece.len()).expect("a length fits");
            let skipped = length(&piece).min(skip);
            skip -= skipped;
            drop(piece.split_to(usize::try_from(skipped).expect("it is within a piece")));
            if *offset + length(&piece) > size {
                let found = *offset + length(&piece);
                return Err(Failure::Length {
                    found,
                    expected: size,
                });
            }
            *offset += length(&piece);
            if !piece.is_empty() && pieces.send(Piece::Data(piece)).await.is_err() {
                // Who unpacks has stopped, and tells why.
                return Ok(());
            }
        }
        match *offset == size {
            true => Ok(()),
            false => Err(Failure::Connection(format!(
                "it ended after {offset} of {size} bytes"
            ))),
        }
    }

    async fn document(&self, wanted: &Wanted<'_>) -> Result<(Digest, Vec<u8>), RegistryError> {
        let by_digest = wanted.digest.is_some();
        let mut earlier = Vec::new();
        for source in self.those(|host| if by_digest { host.pulls } else { host.resolves }) {
            match self.document_from(source, wanted).await {
                Ok(document) => return Ok(document),
                Err(error) if source.is_last => return Err(error.after(earlier)),
                Err(error) => {
                    tracing::debug!(%error, failure = %error.failure, "trying the next host");
                    earlier.push(error.summary());
                }
            }
        }
        let none = Failure::Challenge("no host of its hosts.toml serves this");
        Err(self.error(0, &wanted.path, none).after(earlier))
    }

    async fn document_from(
        &self,
        source: Source,
        wanted: &Wanted<'_>,
    ) -> Result<(Digest, Vec<u8>), RegistryError> {
        let mut attempt = 0;
        loop {
            let asked = match self.await_turn(source).await {
                Ok(()) => self.document_once(source.place, wanted).await,
                Err(failure) => Err(failure),
            };
            let failure = match asked {
                Ok(document) => return Ok(document),
                Err(failure) => failure,
            };
            attempt += 1;
            self.before_next(source, &wanted.path, failure, attempt)
                .await?;
        }
    }

    /// Waits while a host has asked for a pause; fails if that is too long, or the host is passed over.
    async fn await_turn(&self, source: Source) -> Result<(), Failure> {
        let host = &self.hosts[source.place].0;
        if !source.is_last
            && let Some(why) = self.memory.is_avoided(&host.origin())
        {
            return Err(Failure::Avoided(why));
        }
        match self.memory.pause_left(&self.pause_key(host)) {
            None => Ok(()),
            Some((left, _)) if source.is_last && left <= MAX_RETRY_WAIT => {
                tokio::time::sleep(left).await;
                Ok(())
            }
            Some((left, words)) => Err(Failure::Waiting { left, words }),
        }
    }

    /// Remembers what a failure says of its host, and waits before the next attempt; returns the error if there is none.
    async fn before_next(
        &self,
        source: Source,
        what: &str,
        failure: Failure,
        attempt: u32,
    ) -> Result<(), RegistryError> {
        let host = &self.hosts[source.place].0;
        let mut pause = self.limits.backoff.saturating_mul(1 << attempt.min(6));
        let may_pass = match &failure {
            Failure::Connection(_) | Failure::Stalled(_) => {
                if !source.is_last {
                    self.memory.avoid(&host.origin(), failure.to_string());
                }
                true
            }
            Failure::Status {
                words,
                retry_after: Some(wait),
                ..
            } => {
                self.memory
                    .pause(&self.pause_key(host), *wait, words.clone());
                pause = pause.max(*wait);
                pause <= MAX_RETRY_WAIT
            }
            // To ask again at once would change nothing.
            Failure::Slow { .. } | Failure::Avoided(_) | Failure::Waiting { .. } => false,
            Failure::Status { .. }
            | Failure::NotFound(_)
            | Failure::Denied { .. }
            | Failure::Length { .. }
            | Failure::TooLong(_)
            | Failure::Content { .. }
            | Failure::Redirect(_)
            | Failure::Challenge(_)
            | Failure::Configuration(_) => true,
        };
        let attempts = if source.is_last {
            self.limits.attempts
        } else {
            1
        };
        let error = self.error(source.place, what, failure);
        if !may_pass || !error.transient() || attempt >= attempts {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// A pause is for who asked: another user's requests are counted apart.
    fn pause_key(&self, host: &Host) -> String {
        let anonymous = Auth::Anonymous;
        let auth = if host.trusted { &self.auth } else { &anonymous };
        format!("{} {}", host.origin(), auth.fingerprint())
    }

    async fn document_once(
        &self,
        place: usize,
        wanted: &Wanted<'_>,
    ) -> Result<(Digest, Vec<u8>), Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(wanted.accept));
        let answer = self.get(place, &wanted.path, headers).await?;
        let kind = answer.header(CONTENT_TYPE).unwrap_or_default();
        if kind.starts_with("text/html") {
            return Err(Failure::Content {
                found: kind.chars().take(100).collect(),
                expected: format!("{}, a JSON document", wanted.path),
            });
        }
        let told = answer
            .header("docker-content-digest")
            .and_then(|digest| digest.parse::<Digest>().ok());
        let content = answer.document(self.limits.document_bytes).await?;
        let found = u64::try_from(content.len()).expect("a length fits");
        if let Some(expected) = wanted.size.filter(|size| *size != found) {
            return Err(Failure::Length { found, expected });
        }
        let digest = Digest::of(&content);
        match wanted.digest.or(told.as_ref()) {
            Some(expected) if *expected != digest => Err(Failure::Content {
                found: digest.to_string(),
                expected: expected.to_string(),
            }),
            _ => Ok((digest, content)),
        }
    }

    /// Asks a host for a path below the repository; its challenge is answered once.
    async fn get(&self, place: usize, path: &str, headers: HeaderMap) -> Result<Answer, Failure> {
        let (host, client) = &self.hosts[place];
        let mut ask = Ask {
            method: Method::GET,
            uri: self.uri(host, path)?,
            headers,
            body: Bytes::new(),
        };
        for (name, value) in &host.headers {
            ask.headers.append(name, value.clone());
        }
        let token = self.tokens().get(&place).cloned();
        if let Some(token) = token {
            ask.headers.insert(AUTHORIZATION, token);
        }
        let answer = client.get(ask.clone()).await?;
        self.memory.answered(&host.origin());
        if answer.status != StatusCode::UNAUTHORIZED {
            return check_status(answer).await;
        }
        let repository = self.reference.repository();
        let token = auth::answer(client, host, &self.auth, repository, &answer.headers).await?;
        self.tokens().insert(place, token.clone());
        ask.headers.insert(AUTHORIZATION, token);
        check_status(client.get(ask).await?).await
    }

    fn uri(&self, host: &Host, path: &str) -> Result<Uri, Failure> {
        let repository = self.reference.repository();
        let registry = self.reference.registry();
        // A mirror of several registries is told of which.
        let namespace = match host.is_proxy(registry) {
            true => format!("?ns={registry}"),
            false => String::new(),
        };
        let uri = format!(
            "{}://{}{}/{repository}/{path}{namespace}",
            host.scheme, host.authority, host.path
        );
        uri.parse()
            .map_err(|_| Failure::Challenge("its address makes no URL"))
    }

    fn error(&self, place: usize, what: &str, failure: Failure) -> RegistryError {
        let host = self
            .hosts
            .get(place)
            .map(|(host, _)| host.authority.to_string());
        RegistryError {
            registry: host.unwrap_or_else(|| self.reference.registry().to_owned()),
            what: format!("{what} of {}", self.reference).into(),
            failure,
            earlier: Box::default(),
        }
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, HashMap<usize, HeaderValue>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the ways to the hosts of a reference.
fn clients(
    reference: &Reference,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<(Host, HostClient)>, Failure> {
    let hosts = hosts(surroundings.certs, reference).map_err(Failure::Configuration)?;
    let common = Common {
        roots: Arc::new(tls::system_roots()),
        proxies: surroundings.proxies.clone(),
    };
    let last = |suits: fn(&Host) -> bool| hosts.iter().rposition(suits);
    let last = [last(|host| host.resolves), last(|host| host.pulls)];
    let limits = surroundings.limits;
    let timeouts = |place: usize, host: &Host| {
        let is_last = last.contains(&Some(place));
        let (connect, answer) = match is_last {
            true => (CONNECT_TIMEOUT, limits.stall),
            false => (
                MIRROR_CONNECT_TIMEOUT,
                limits.stall.min(MIRROR_ANSWER_TIMEOUT),
            ),
        };
        HostTimeouts {
            connect: host.dial_timeout.unwrap_or(connect),
            answer,
            stall: limits.stall,
            window: limits.rate_window,
            least_bytes: limits.least_bytes_per_window,
        }
    };
    let ways = hosts.iter().enumerate().map(|(place, host)| {
        let name = host.authority.host();
        let client = HostClient::new(name, &host.tls, &common, timeouts(place, host))?;
        Ok((host.clone(), client))
    });
    ways.collect()
}

/// Keeps what any host may see.
pub(super) fn harmless(headers: &HeaderMap) -> HeaderMap {
    let kept = [ACCEPT, RANGE];
    let kept = kept.into_iter().filter_map(|name| {
        let value = headers.get(&name)?.clone();
        Some((name, value))
    });
    kept.collect()
}

/// Checks lengths and returns how many bytes of the answer were had before: a server may ignore a range.
fn check_range(answer: &Answer, offset: u64, size: u64) -> Result<u64, Failure> {
    let partial = answer.status == StatusCode::PARTIAL_CONTENT;
    let expected = if partial { size - offset } else { size };
    let told = answer
        .header(CONTENT_LENGTH)
        .and_then(|length| length.parse().ok());
    if let Some(found) = told.filter(|found| *found != expected) {
        return Err(Failure::Length { found, expected });
    }
    if !partial {
        return Ok(offset);
    }
    let range = answer.header(CONTENT_RANGE).unwrap_or_default();
    match range
        .strip_prefix("bytes ")
        .and_then(|range| range.split_once('-'))
    {
        Some((start, _)) if start.parse() == Ok(offset) => Ok(0),
        _ => Err(Failure::Content {
            found: format!(
                "the range {:?}",
                range.chars().take(100).collect::<String>()
            ),
            expected: format!("bytes {offset}-{}/{size}", size - 1),
        }),
    }
}
