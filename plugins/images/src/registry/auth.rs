//! Credentials: how a registry asks for them, and how they are given (distribution's "Token Authentication", RFC 7235).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Uri};
use hyper::body::Bytes;
use serde::Deserialize;

use super::Failure;
use super::hosts::{Host, is_loopback};
use super::transport::{Ask, HostClient, check_status};
use crate::digest::Digest;

/// Bytes of a token service's answer.
const MAX_TOKEN_BYTES: usize = 64 << 10;
/// Bytes of one challenge; a longer one is not looked at.
const MAX_CHALLENGE_BYTES: usize = 16 << 10;
/// Challenges of one answer that are looked at.
const MAX_CHALLENGES: usize = 16;
/// Scopes of one challenge that are asked for.
const MAX_SCOPES: usize = 16;

/// The credentials of a pull, as CRI's AuthConfig has them. They are not printed.
#[derive(Clone, Default)]
pub enum Auth {
    /// None.
    #[default]
    Anonymous,
    /// A user's name and password.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
    /// A refresh token for the registry's token service.
    IdentityToken(String),
    /// A bearer token for the registry itself.
    RegistryToken(String),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic",
            Self::IdentityToken(_) => "IdentityToken",
            Self::RegistryToken(_) => "RegistryToken",
        })
    }
}

impl Auth {
    /// Returns a digest of the credentials: what is remembered of one user is not another one's.
    pub(super) fn fingerprint(&self) -> Digest {
        let parts = match self {
            Self::Anonymous => ["anonymous", "", ""],
            Self::Basic { username, password } => ["basic", username, password],
            Self::IdentityToken(token) => ["identity", token, ""],
            Self::RegistryToken(token) => ["registry", token, ""],
        };
        Digest::of(format!("{parts:?}").as_bytes())
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Returns the Authorization header that answers the challenge of `host` for pulls from `repository`.
pub(super) async fn answer(
    client: &HostClient,
    host: &Host,
    auth: &Auth,
    repository: &str,
    headers: &HeaderMap,
) -> Result<HeaderValue, Failure> {
    // What a mirror asks for is answered as by a stranger.
    let auth = if host.trusted { auth } else { &Auth::Anonymous };
    if let Auth::RegistryToken(token) = auth {
        return secret(format!("Bearer {token}"));
    }
    let challenges: Vec<_> = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter(|value| value.len() <= MAX_CHALLENGE_BYTES)
        .take(MAX_CHALLENGES)
        .collect();
    let with_scheme = |scheme: &str| {
        let rest = |value: &&str| {
            let (first, rest) = value.split_once(' ').unwrap_or((value, ""));
            first.eq_ignore_ascii_case(scheme).then(|| rest.to_owned())
        };
        challenges.iter().find_map(rest)
    };
    if let Some(parameters) = with_scheme("bearer") {
        let token = token(client, host, auth, repository, &parameters).await?;
        return secret(format!("Bearer {token}"));
    }
    match (with_scheme("basic"), auth) {
        (Some(_), Auth::Basic { username, password }) => basic(username, password),
        (Some(_), _) => Err(Failure::Challenge(
            "it asks for a password, and there is none for it",
        )),
        (None, _) => Err(Failure::Challenge("it is neither Bearer nor Basic")),
    }
}

fn basic(username: &str, password: &str) -> Result<HeaderValue, Failure> {
    secret(format!(
        "Basic {}",
        STANDARD.encode(format!("{username}:{password}"))
    ))
}

fn secret(value: String) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| Failure::Challenge("the credentials fit into no header"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn token(
    client: &HostClient,
    host: &Host,
    auth: &Auth,
    repository: &str,
    parameters: &str,
) -> Result<String, Failure> {
    let realm = parameter(parameters, "realm").ok_or(Failure::Challenge("it names no realm"))?;
    let realm: Uri = realm
        .parse()
        .map_err(|_| Failure::Challenge("its realm is no URL"))?;
    check_realm(host, &realm)?;
    let scopes = scopes(parameters, repository);
    let service = parameter(parameters, "service").unwrap_or_default();
    let ask = token_request(&realm, auth, &service, &scopes)?;
    // No redirect is followed from here: the request has the credentials.
    let answer = check_status(client.send(&ask).await?).await?;
    let content = answer.document(MAX_TOKEN_BYTES).await?;
    let malformed = || Failure::Content {
        found: "something else".to_owned(),
        expected: "a JSON document with a token".to_owned(),
    };
    let answer: TokenAnswer = serde_json::from_slice(&content).map_err(|_| malformed())?;
    let token = answer.token.filter(|token| !token.is_empty());
    token
        .or(answer.access_token)
        .filter(|token| !token.is_empty())
        .ok_or_else(malformed)
}

/// Refuses a token service that is asked in plain text, unless it is on this machine or is the registry, itself in
/// plain text by the operator's will.
fn check_realm(host: &Host, realm: &Uri) -> Result<(), Failure> {
    let authority = realm
        .authority()
        .ok_or(Failure::Challenge("its realm has no host"))?;
    if realm.scheme() == Some(&Scheme::HTTPS) {
        return Ok(());
    }
    let plain = realm.scheme() == Some(&Scheme::HTTP) && host.scheme == Scheme::HTTP;
    match plain && (*authority == host.authority || is_loopback(authority.as_str())) {
        true => Ok(()),
        false => Err(Failure::Challenge("its realm is not reached by https")),
    }
}

/// Returns what a token is asked for: what the challenge wants, since a registry behind a mirror's path has other names
/// than the reference, else to pull from the repository.
pub(super) fn scopes(parameters: &str, repository: &str) -> Vec<String> {
    let wanted = parameter(parameters, "scope").unwrap_or_default();
    let scopes: Vec<_> = wanted
        .split_whitespace()
        .take(MAX_SCOPES)
        .map(str::to_owned)
        .collect();
    match scopes.is_empty() {
        true => vec![format!("repository:{repository}:pull")],
        false => scopes,
    }
}

fn token_request(
    realm: &Uri,
    auth: &Auth,
    service: &str,
    scopes: &[String],
) -> Result<Ask, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("service", service);
    if let Auth::IdentityToken(refresh) = auth {
        form.append_pair("scope", &scopes.join(" "))
            .append_pair("grant_type", "refresh_token")
            .append_pair("client_id", "oxlet")
            .append_pair("refresh_token", refresh);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        return Ok(Ask {
            method: Method::POST,
            uri: realm.clone(),
            headers,
            body: Bytes::from(form.finish()),
        });
    }
    for scope in scopes {
        form.append_pair("scope", scope);
    }
    if let Auth::Basic { username, password } = auth {
        headers.insert(AUTHORIZATION, basic(username, password)?);
    }
    let joint = if realm.query().is_some() { '&' } else { '?' };
    let uri = format!("{realm}{joint}{}", form.finish());
    Ok(Ask {
        method: Method::GET,
        uri: uri
            .parse()
            .map_err(|_| Failure::Challenge("its realm is no URL"))?,
        headers,
        body: Bytes::new(),
    })
}

/// Returns a parameter of a challenge: `name="value"` or `name=value`, separated by commas.
pub(super) fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']);
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.trim().to_owned());
        }
        rest = next;
    }
    None
}
