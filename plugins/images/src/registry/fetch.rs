//! Manifests and blobs of one repository, from the first of its hosts that serves them as they should be.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use hyper::body::{Bytes, Incoming};
use tokio::sync::mpsc;

use super::auth::{self, Auth};
use super::hosts::{Host, TlsFiles, hosts};
use super::transport::{Ask, Transport, status};
use super::{Failure, RegistryError};
use crate::digest::Digest;
use crate::documents;
use crate::limits::Limits;
use crate::reference::Reference;

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
    hosts: Vec<(Host, Transport)>,
    /// For other hosts, that redirects and token services lead to.
    foreign: Transport,
    reference: Reference,
    auth: Auth,
    /// The Authorization header that a host wants, by its place.
    tokens: Mutex<HashMap<usize, HeaderValue>>,
    limits: Limits,
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
        certs: Option<&Path>,
        limits: &Limits,
    ) -> Result<Self, RegistryError> {
        let made = || {
            let hosts = hosts(certs, reference).map_err(Failure::Configuration)?;
            let foreign = Transport::new(&TlsFiles::default(), limits.stall)?;
            let with_transport = |host: Host| {
                let transport = match host.tls == TlsFiles::default() {
                    true => foreign.clone(),
                    false => Transport::new(&host.tls, limits.stall)?,
                };
                Ok::<_, Failure>((host, transport))
            };
            let hosts = hosts
                .into_iter()
                .map(with_transport)
                .collect::<Result<_, _>>()?;
            Ok((hosts, foreign))
        };
        let (hosts, foreign) = made().map_err(|failure| RegistryError {
            registry: reference.registry().to_owned(),
            what: reference.to_string(),
            failure,
        })?;
        Ok(Self {
            hosts,
            foreign,
            reference: reference.clone(),
            auth,
            tokens: Mutex::default(),
            limits: limits.clone(),
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

    /// Returns the places of the hosts that serve blobs, in the order to try.
    pub(crate) fn sources(&self) -> Vec<usize> {
        let pulls = |place: &usize| self.hosts[*place].0.pulls;
        (0..self.hosts.len()).filter(pulls).collect()
    }

    /// Streams a blob of the host at `place`, goes on where the connection breaks, and ends early when nobody listens.
    pub(crate) async fn stream(
        &self,
        place: usize,
        (digest, size): (&Digest, u64),
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<(), RegistryError> {
        let (mut offset, mut attempt, mut progress) = (0, 0, 0);
        loop {
            let streamed = self
                .stream_from(place, (digest, size), &mut offset, pieces)
                .await;
            let Err(failure) = streamed else {
                drop(pieces.send(Piece::End).await);
                return Ok(());
            };
            let error = self.error(place, &digest.to_string(), failure);
            if offset - progress >= PROGRESS_BYTES {
                (attempt, progress) = (0, offset);
            }
            attempt += 1;
            if !error.transient() || attempt >= self.limits.attempts {
                return Err(error);
            }
            self.pause(attempt).await;
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
        let answer = self.get(place, &format!("blobs/{digest}"), headers).await?;
        let mut skip = check_range(&answer, *offset, size)?;
        let transport = &self.hosts[place].1;
        let mut body = answer.into_body();
        while let Some(mut piece) = transport.piece(&mut body).await? {
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
        let suits = |host: &Host| if by_digest { host.pulls } else { host.resolves };
        let mut last = None;
        for (place, (host, _)) in self.hosts.iter().enumerate() {
            if !suits(host) {
                continue;
            }
            match self.document_from(place, wanted).await {
                Ok(document) => return Ok(document),
                Err(error) => {
                    tracing::debug!(%error, failure = %error.failure, "trying the next host");
                    last = Some(error);
                }
            }
        }
        let none = || Failure::Challenge("no host of its hosts.toml serves this");
        Err(last.unwrap_or_else(|| self.error(0, &wanted.path, none())))
    }

    async fn document_from(
        &self,
        place: usize,
        wanted: &Wanted<'_>,
    ) -> Result<(Digest, Vec<u8>), RegistryError> {
        let mut attempt = 0;
        loop {
            let error = match self.document_once(place, wanted).await {
                Ok(document) => return Ok(document),
                Err(failure) => self.error(place, &wanted.path, failure),
            };
            attempt += 1;
            if !error.transient() || attempt >= self.limits.attempts {
                return Err(error);
            }
            self.pause(attempt).await;
        }
    }

    async fn document_once(
        &self,
        place: usize,
        wanted: &Wanted<'_>,
    ) -> Result<(Digest, Vec<u8>), Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(wanted.accept));
        let answer = self.get(place, &wanted.path, headers).await?;
        let header = |name: &str| {
            let value = answer
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let kind = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        if kind.starts_with("text/html") {
            let expected = format!("{}, a JSON document", wanted.path);
            return Err(Failure::Content {
                found: kind,
                expected,
            });
        }
        let told = header("docker-content-digest").and_then(|digest| digest.parse::<Digest>().ok());
        let max = self.limits.document_bytes;
        let content = self.hosts[place].1.document(answer, max).await?;
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
    async fn get(
        &self,
        place: usize,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Failure> {
        let (host, transport) = &self.hosts[place];
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
        let answer = transport.get(ask.clone(), &self.foreign).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return status(&answer).map(|()| answer);
        }
        let transports = (transport, &self.foreign);
        let repository = self.reference.repository();
        let token =
            auth::answer(transports, host, &self.auth, repository, answer.headers()).await?;
        self.tokens().insert(place, token.clone());
        ask.headers.insert(AUTHORIZATION, token);
        let answer = transport.get(ask, &self.foreign).await?;
        status(&answer).map(|()| answer)
    }

    fn uri(&self, host: &Host, path: &str) -> Result<Uri, Failure> {
        let repository = self.reference.repository();
        // A mirror of several registries is told of which.
        let namespace = match host.trusted {
            true => String::new(),
            false => format!("?ns={}", self.reference.registry()),
        };
        let uri = format!(
            "{}://{}{}/{repository}/{path}{namespace}",
            host.scheme, host.authority, host.path
        );
        uri.parse()
            .map_err(|_| Failure::Challenge("its address makes no URL"))
    }

    async fn pause(&self, attempt: u32) {
        let pause = self.limits.backoff.saturating_mul(1 << attempt.min(6));
        tokio::time::sleep(pause).await;
    }

    fn error(&self, place: usize, what: &str, failure: Failure) -> RegistryError {
        let host = self
            .hosts
            .get(place)
            .map(|(host, _)| host.authority.to_string());
        RegistryError {
            registry: host.unwrap_or_else(|| self.reference.registry().to_owned()),
            what: format!("{what} of {}", self.reference),
            failure,
        }
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, HashMap<usize, HeaderValue>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
fn check_range(answer: &Response<Incoming>, offset: u64, size: u64) -> Result<u64, Failure> {
    let header = |name| {
        answer
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let partial = answer.status() == StatusCode::PARTIAL_CONTENT;
    let expected = if partial { size - offset } else { size };
    let told = header(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if let Some(found) = told.filter(|found| *found != expected) {
        return Err(Failure::Length { found, expected });
    }
    if !partial {
        return Ok(offset);
    }
    let range = header(CONTENT_RANGE).unwrap_or_default();
    match range
        .strip_prefix("bytes ")
        .and_then(|range| range.split_once('-'))
    {
        Some((start, _)) if start.parse() == Ok(offset) => Ok(0),
        _ => Err(Failure::Content {
            found: format!("the range {range:?}"),
            expected: format!("bytes {offset}-{}/{size}", size - 1),
        }),
    }
}
