//! Requests that were made by CRI and are waited for by HTTP: each has a token that is good once and not for long.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use tokio::time::Instant;

/// How long a token is good for.
pub(super) const LIFE: Duration = Duration::from_secs(60);
/// More requests are not waited for.
pub(super) const MOST: usize = 1000;
/// Characters of a token.
const LENGTH: usize = 8;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// No request is taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("maximum number of in-flight requests exceeded")]
    TooMany,
    #[error("cannot make a token")]
    NoChance(#[from] io::Error),
}

/// What is waited for.
#[derive(Debug)]
pub(super) struct Tickets<T> {
    waiting: BTreeMap<String, (Instant, T)>,
    /// Tokens by their age, some of them used already.
    ages: VecDeque<(Instant, String)>,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Tickets {
            waiting: BTreeMap::new(),
            ages: VecDeque::new(),
        }
    }
}

impl<T> Tickets<T> {
    /// Keeps a request and returns its token.
    pub(super) fn issue(&mut self, now: Instant, request: T) -> Result<String, Refused> {
        while let Some((end, token)) = self.ages.front()
            && (*end < now || !self.waiting.contains_key(token))
        {
            self.waiting.remove(token);
            self.ages.pop_front();
        }
        if self.waiting.len() >= MOST {
            return Err(Refused::TooMany);
        }
        let token = loop {
            let token = token()?;
            if !self.waiting.contains_key(&token) {
                break token;
            }
        };
        let end = now + LIFE;
        self.ages.push_back((end, token.clone()));
        self.waiting.insert(token.clone(), (end, request));
        Ok(token)
    }

    /// Returns the request of a token, once.
    pub(super) fn redeem(&mut self, now: Instant, token: &str) -> Option<T> {
        let (end, request) = self.waiting.remove(token)?;
        (now <= end).then_some(request)
    }
}

fn token() -> io::Result<String> {
    let mut bytes = [0; LENGTH];
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
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        let (first, second) = (
            tickets.issue(now, 1).unwrap(),
            tickets.issue(now, 2).unwrap(),
        );
        assert_eq!((first.len(), first == second), (LENGTH, false));
        assert_eq!(tickets.redeem(now, &second), Some(2));
        assert_eq!(tickets.redeem(now, &second), None);
        assert_eq!(tickets.redeem(now, "absent"), None);
        assert_eq!(tickets.redeem(now, &first), Some(1));
    }

    /// Upstream's TestGC.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_for_a_minute_and_no_more_are_out_than_a_thousand() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        let first = tickets.issue(now, 0).unwrap();
        for n in 1..MOST {
            tickets.issue(now, n).unwrap();
        }
        assert!(matches!(
            tickets.issue(now + LIFE, 0),
            Err(Refused::TooMany)
        ));
        assert_eq!(tickets.redeem(now + LIFE, &first), Some(0));
        let late = tickets.issue(now + LIFE, 7).unwrap();
        let after = now + LIFE + Duration::from_nanos(1);
        tickets.issue(after, 8).unwrap();
        assert_eq!((tickets.waiting.len(), tickets.ages.len()), (2, 2));
        assert_eq!(tickets.redeem(now + LIFE * 3, &late), None);
    }
}
