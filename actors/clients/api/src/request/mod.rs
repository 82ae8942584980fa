//! One request: its rate limit, its deadline and retries, its bounded answer, its metrics.

mod body;
pub(crate) mod call;
pub(crate) mod limiter;
pub(crate) mod measured;
