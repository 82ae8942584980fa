//! Requests that were made over CRI and wait for their HTTP connection, each under a token that is good once and for a
//! minute (upstream's pkg/kubelet/cri/streaming request_cache.go).

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use tokio::time::Instant;

/// How long a token is valid.
pub(super) const REQUEST_TTL: Duration = Duration::from_secs(60);
/// Requests that may wait at a time.
pub(super) const MAX_IN_FLIGHT: usize = 1000;
/// Characters of a token.
const TOKEN_LENGTH: usize = 8;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A request cannot be inserted.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestCacheError {
    #[error("maximum number of in-flight requests exceeded")]
    Full,
    #[error("cannot make a token")]
    Random(#[from] io::Error),
}

/// Waiting requests by their tokens.
#[derive(Debug)]
pub(super) struct RequestCache<T> {
    waiting: BTreeMap<String, (Instant, T)>,
    /// Tokens by their age, some of them used already.
    ages: VecDeque<(Instant, String)>,
}

impl<T> Default for RequestCache<T> {
    fn default() -> Self {
        RequestCache {
            waiting: BTreeMap::new(),
            ages: VecDeque::new(),
        }
    }
}

impl<T> RequestCache<T> {
    /// Keeps a request and returns its token. Fails when the cache is full or the system gives no random bytes.
    pub(super) fn insert(&mut self, now: Instant, request: T) -> Result<String, RequestCacheError> {
        while let Some((end, token)) = self.ages.front()
            && (*end < now || !self.waiting.contains_key(token))
        {
            self.waiting.remove(token);
            self.ages.pop_front();
        }
        if self.waiting.len() >= MAX_IN_FLIGHT {
            return Err(RequestCacheError::Full);
        }
        let token = loop {
            let token = token()?;
            if !self.waiting.contains_key(&token) {
                break token;
            }
        };
        let end = now + REQUEST_TTL;
        self.ages.push_back((end, token.clone()));
        self.waiting.insert(token.clone(), (end, request));
        Ok(token)
    }

    /// Returns the request of a token, once; none if the token is unknown, used or expired.
    pub(super) fn consume(&mut self, now: Instant, token: &str) -> Option<T> {
        let (end, request) = self.waiting.remove(token)?;
        (now <= end).then_some(request)
    }
}

fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_LENGTH];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes
        .map(|byte| char::from(ALPHABET[usize::from(byte % 64)]))
        .iter()
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestConsume and TestInsert.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_once() {
        let (mut request_cache, now) = (RequestCache::default(), Instant::now());
        let (first, second) = (
            request_cache.insert(now, 1).unwrap(),
            request_cache.insert(now, 2).unwrap(),
        );
        assert_eq!((first.len(), first == second), (TOKEN_LENGTH, false));
        assert_eq!(request_cache.consume(now, &second), Some(2));
        assert_eq!(request_cache.consume(now, &second), None);
        assert_eq!(request_cache.consume(now, "absent"), None);
        assert_eq!(request_cache.consume(now, &first), Some(1));
    }

    /// Upstream's TestGC.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_for_a_minute_and_no_more_are_out_than_a_thousand() {
        let (mut request_cache, now) = (RequestCache::default(), Instant::now());
        let first = request_cache.insert(now, 0).unwrap();
        for n in 1..MAX_IN_FLIGHT {
            request_cache.insert(now, n).unwrap();
        }
        assert!(matches!(
            request_cache.insert(now + REQUEST_TTL, 0),
            Err(RequestCacheError::Full)
        ));
        assert_eq!(request_cache.consume(now + REQUEST_TTL, &first), Some(0));
        let late = request_cache.insert(now + REQUEST_TTL, 7).unwrap();
        let after = now + REQUEST_TTL + Duration::from_nanos(1);
        request_cache.insert(after, 8).unwrap();
        assert_eq!(
            (request_cache.waiting.len(), request_cache.ages.len()),
            (2, 2)
        );
        assert_eq!(request_cache.consume(now + REQUEST_TTL * 3, &late), None);
    }
}
