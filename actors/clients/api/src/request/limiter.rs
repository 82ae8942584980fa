//! The rate limit of requests: client-go's token bucket (util/flowcontrol/throttle.go).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Full at first; every request takes a token, and waits where there is none.
#[derive(Debug)]
pub(crate) struct RequestRateLimiter {
    per_second: f64,
    burst: f64,
    state: Mutex<RateLimiterState>,
}

#[derive(Debug)]
struct RateLimiterState {
    /// Negative while tokens are promised to waiting requests.
    tokens: f64,
    at: Instant,
}

impl RequestRateLimiter {
    /// None where the rate is negative (no limit); nought is client-go's own default, 5 a second in bursts of 10.
    pub(crate) fn new(per_second: i32, burst: i32) -> Option<RequestRateLimiter> {
        let (per_second, burst) = match (per_second, burst) {
            (..0, _) => return None,
            (0, 0) => (5, 10),
            (0, burst) => (5, burst),
            (per_second, 0) => (per_second, 10),
            given => given,
        };
        Some(RequestRateLimiter {
            per_second: per_second.into(),
            burst: f64::from(burst.max(1)),
            state: Mutex::new(RateLimiterState {
                tokens: f64::from(burst.max(1)),
                at: Instant::now(),
            }),
        })
    }

    /// Takes a token, and waits until it is there. Waiting requests are served in turn.
    pub(super) async fn take(&self) -> Duration {
        let wait = self.promise();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        wait
    }

    /// Whether at least three quarters of the burst are left.
    pub(crate) fn has_spare(&self) -> bool {
        self.with_tokens(|tokens| *tokens >= self.burst * 0.75)
    }

    pub(crate) fn promise(&self) -> Duration {
        let tokens = self.with_tokens(|tokens| {
            *tokens -= 1.0;
            *tokens
        });
        match tokens < 0.0 {
            true => Duration::from_secs_f64(-tokens / self.per_second),
            false => Duration::ZERO,
        }
    }

    /// Gives the tokens of now.
    fn with_tokens<T>(&self, of: impl FnOnce(&mut f64) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = now.saturating_duration_since(state.at).as_secs_f64();
        state.at = now;
        state.tokens = (state.tokens + since * self.per_second).min(self.burst);
        of(&mut state.tokens)
    }
}
