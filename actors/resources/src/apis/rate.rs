//! The limit of requests of one API. Upstream: pkg/kubelet/apis/grpc/ratelimit.go (1.36).

use std::sync::{Arc, Mutex, PoisonError};

use logic_pods::images::rate::{PullRateLimit, TokenBucket};
use tonic::Status;

/// Upstream's `DefaultQPS` and `DefaultBurstTokens`.
const RATE: PullRateLimit = PullRateLimit {
    per_second: 100,
    burst: 10,
};

/// Limits the requests of all clients together. Clones share the limit.
#[derive(Debug, Clone)]
pub(super) struct RequestRate(Arc<Mutex<TokenBucket>>);

impl Default for RequestRate {
    fn default() -> Self {
        RequestRate(Arc::new(Mutex::new(TokenBucket::full(RATE))))
    }
}

impl RequestRate {
    /// Takes a token; refuses the request where none is left.
    pub(super) fn admit(&self) -> Result<(), Status> {
        let now = kernel::timestamp();
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match bucket.take(now) {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }
}
