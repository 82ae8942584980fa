//! Authentication by bearer token: the API server reviews it, and its decision is cached.
//!
//! Tokens are kept as keyed digests alone. Upstream: staging/src/k8s.io/apiserver/pkg/authentication/token/cache,
//! request/bearertoken, request/websocket (1.36).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use base64::alphabet;
use base64::engine::{Engine, GeneralPurpose, general_purpose};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use metrics::api::callers::{CacheLookup, Fetch, ReviewResult};
use sha2::{Digest, Sha256};

use crate::connection_limiter::Source;
use crate::decision_cache::DecisionCache;
use crate::reviews::{AuthenticatedUser, RequestHistory, ReviewError, Reviews};

/// The prefix with which a browser's WebSocket carries a token among its protocols.
const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// As Go reads it, which does not mind what is left of the last letter.
const URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    general_purpose::NO_PAD.with_decode_allow_trailing_bits(true),
);

/// Unknown tokens under review, or waiting for it, of one source and of all: callers of a node come with some, once.
const UNKNOWN_OF_SOURCE: usize = 8;
const UNKNOWN: usize = 128;

/// Why a token does not authenticate.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("invalid bearer token")]
    Unknown,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the bearer token cannot be reviewed: {0}")]
    Review(ReviewError),
    #[error("too many unknown bearer tokens wait for their review")]
    Crowded,
}

/// Has tokens reviewed, and caches the decisions.
pub(crate) struct TokenAuthenticator<R> {
    reviews: Rc<R>,
    ttl: Duration,
    salt: [u8; 32],
    known: DecisionCache<[u8; 32], Option<Rc<AuthenticatedUser>>>,
    unknown: UnknownTokens,
}

impl<R: Reviews> TokenAuthenticator<R> {
    pub(crate) fn new(reviews: Rc<R>, ttl: Duration) -> Self {
        let mut salt = [0; 32];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut salt).expect("the kernel has randomness");
        TokenAuthenticator {
            reviews,
            ttl,
            salt,
            known: DecisionCache::new(Option::is_some),
            unknown: UnknownTokens::default(),
        }
    }

    /// Returns the user of the request's token; none if it carries none.
    pub(crate) async fn user(
        &self,
        source: Source,
        headers: &HeaderMap,
    ) -> Result<Option<Rc<AuthenticatedUser>>, TokenError> {
        let token = match bearer(headers) {
            Some(token) => token,
            None => match in_protocols(headers)? {
                Some(token) => token,
                None => return Ok(None),
            },
        };
        let (reviews, began) = (Rc::clone(&self.reviews), kernel::now());
        let key = self.digest(&token);
        let history = self.known.history(&key);
        let _waiting = match (self.known.known(&key), history) {
            (Some(_), _) | (None, RequestHistory::Accepted) => None,
            (None, RequestHistory::Unknown) => {
                Some(self.unknown.enter(source).ok_or(TokenError::Crowded)?)
            }
        };
        let asked = Rc::new(Cell::new(CacheLookup::Hit));
        let asking = Rc::clone(&asked);
        let ask = async move {
            asking.set(CacheLookup::Miss);
            let fetch = Fetch::begin();
            let user = reviews.token(&token, history).await?;
            fetch.end(ReviewResult::Well);
            Ok(user.map(Rc::new))
        };
        let answer = self.known.answer(key, |_| self.ttl, ask).await;
        let took = kernel::now().saturating_duration_since(began);
        metrics::api::callers::looked(asked.get(), took);
        match answer {
            Ok(Some(user)) => Ok(Some(user)),
            Ok(None) => Err(TokenError::Unknown),
            Err(error) => Err(TokenError::Review(error)),
        }
    }

    fn digest(&self, token: &str) -> [u8; 32] {
        let salted = Sha256::new().chain_update(self.salt);
        salted.chain_update(token).finalize().into()
    }
}

/// Unknown tokens under review or waiting for it, by source.
#[derive(Debug, Default)]
struct UnknownTokens(RefCell<BTreeMap<Source, usize>>);

/// One of them, until this is dropped.
struct UnknownToken<'a>(&'a UnknownTokens, Source);

impl UnknownTokens {
    /// None where there are too many.
    fn enter(&self, source: Source) -> Option<UnknownToken<'_>> {
        let mut all = self.0.borrow_mut();
        if all.values().sum::<usize>() >= UNKNOWN {
            return None;
        }
        let own = all.entry(source).or_default();
        if *own >= UNKNOWN_OF_SOURCE {
            return None;
        }
        *own += 1;
        Some(UnknownToken(self, source))
    }
}

impl Drop for UnknownToken<'_> {
    fn drop(&mut self) {
        let mut all = self.0.0.borrow_mut();
        match all.get_mut(&self.1) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(all.remove(&self.1)),
        }
    }
}

impl<R> fmt::Debug for TokenAuthenticator<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.splitn(3, ' ');
    let (scheme, token) = (words.next()?, words.next()?);
    let is_one = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    is_one.then(|| token.to_owned())
}

/// A token among the protocols that a WebSocket offers. There must be another one, for the answer to name.
fn in_protocols(headers: &HeaderMap) -> Result<Option<String>, TokenError> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, 0);
    for protocol in protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(PROTOCOL) else {
            others += 1;
            continue;
        };
        if token.is_some() {
            return Err(TokenError::Malformed(
                "multiple base64.bearer.authorization tokens specified",
            ));
        }
        let decoded = URL.decode(encoded).map_err(|_| {
            TokenError::Malformed("invalid base64.bearer.authorization token encoding")
        })?;
        token = Some(
            String::from_utf8(decoded)
                .map_err(|_| TokenError::Malformed("invalid base64.bearer.authorization token"))?,
        );
    }
    match token.filter(|token| !token.is_empty()) {
        Some(_) if others == 0 => Err(TokenError::Malformed("missing additional subprotocol")),
        token => Ok(token),
    }
}

/// The protocols that a WebSocket offers.
pub(crate) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let has = |name: &str, wanted: &str| {
        let values = headers.get_all(name).into_iter();
        let mut texts = values.filter_map(|value| value.to_str().ok());
        texts.any(|text| text.to_ascii_lowercase().contains(wanted))
    };
    has("upgrade", "websocket") && has("connection", "upgrade")
}

/// Removes every secret from the headers: no handler behind the server needs one.
pub(crate) fn strip(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let kept: Vec<&str> = protocols(headers)
        .filter(|protocol| !protocol.starts_with(PROTOCOL))
        .collect();
    if kept.len() == protocols(headers).count() {
        return;
    }
    match HeaderValue::try_from(kept.join(",")) {
        Ok(value) if !value.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, value),
        _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    /// Upstream's TestAuthenticateRequest and its siblings (bearertoken_test.go).
    #[test]
    fn encoded_tokens_become_bytes_or_nothing() {
        for (text, bytes) in [
            ("dG9rZW4", b"token".as_slice()),
            ("dG9rZW5", b"token"),
            ("", b""),
            ("_-8", &[0xff, 0xef]),
        ] {
            assert_eq!(URL.decode(text).unwrap(), bytes, "{text}");
        }
        for bad in ["a", "ab=", "a+bc", "ab/c", "a b"] {
            assert!(URL.decode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bearer_tokens_are_read_as_upstream_reads_them() {
        let cases = [
            ("Bearer token", Some("token")),
            ("bearer token", Some("token")),
            ("Bearer a b c", Some("a")),
            ("Bearer  token", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("token", None),
            ("", None),
        ];
        for (header, token) in cases {
            let headers = headers(&[("authorization", header)]);
            assert_eq!(bearer(&headers).as_deref(), token, "{header:?}");
        }
    }

    /// Upstream's TestAuthenticateRequest* (websocket/protocol_test.go).
    #[test]
    fn websockets_carry_tokens_among_their_protocols() {
        let offered = |protocols: &str| {
            headers(&[
                ("upgrade", "websocket"),
                ("connection", "Upgrade"),
                ("sec-websocket-protocol", protocols),
            ])
        };
        let one = "base64url.bearer.authorization.k8s.io.dG9rZW4";
        let found = in_protocols(&offered(&format!("v5.channel.k8s.io, {one}")));
        assert_eq!(found.unwrap().as_deref(), Some("token"));
        assert_eq!(in_protocols(&offered("v5.channel.k8s.io")).unwrap(), None);
        assert!(in_protocols(&offered(one)).is_err(), "no other protocol");
        assert!(in_protocols(&offered(&format!("a,{one},{one}"))).is_err());
        assert!(in_protocols(&offered(&format!("a,{PROTOCOL}dG9rZW4="))).is_err());
        assert!(
            in_protocols(&offered(&format!("a,{PROTOCOL}_w"))).is_err(),
            "no UTF-8"
        );
        let plain = headers(&[("sec-websocket-protocol", &format!("a,{one}"))]);
        assert_eq!(in_protocols(&plain).unwrap(), None, "no WebSocket");
    }

    #[test]
    fn what_goes_on_to_the_runtime_has_no_secret() {
        let mut headers = headers(&[
            ("authorization", "Bearer secret"),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4",
            ),
        ]);
        strip(&mut headers);
        assert_eq!(headers.get(AUTHORIZATION), None);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
    }
}
