//! How many pulls may begin, at the most: so many a second, and so many at once after a quiet time.
//!
//! Mirrors client-go's token bucket as throttleImagePulling (puller.go, v1.36) uses it: a pull that finds
//! the bucket empty fails at once, and backs off.

use jiff::Timestamp;

/// The limit of pulls: `registryPullQPS` and `registryBurst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullRateLimit {
    /// 0 for no limit.
    pub per_second: u32,
    /// Pulls at once.
    pub burst: u32,
}

impl PullRateLimit {
    /// No limit, where `registryPullQPS` is zero.
    pub fn new(per_second: i32, burst: i32) -> Option<Self> {
        let per_second = u32::try_from(per_second).ok().filter(|rate| *rate > 0)?;
        Some(Self {
            per_second,
            burst: u32::try_from(burst).unwrap_or(0),
        })
    }
}

/// Limits the pulls that begin, in pulls a second.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: PullRateLimit,
    tokens: f64,
    filled: Option<Timestamp>,
}

impl TokenBucket {
    pub fn full(rate: PullRateLimit) -> Self {
        Self {
            rate,
            tokens: f64::from(rate.burst),
            filled: None,
        }
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let passed = self.filled.map_or(0.0, |then| {
            // A clock set back fills nothing.
            now.duration_since(then).as_secs_f64().max(0.0)
        });
        self.filled = Some(now);
        let gained = passed * f64::from(self.rate.per_second);
        self.tokens = (self.tokens + gained).min(f64::from(self.rate.burst));
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use logic_api::testing::at;

    use super::*;

    /// Upstream's "[Parallel|Serialized] image pulling with QPS exceeded" of TestParallelPuller and
    /// TestSerializedPuller.
    #[test]
    fn after_a_burst_pulls_begin_at_the_rate() {
        let mut bucket = TokenBucket::full(PullRateLimit::new(5, 3).unwrap());
        let start = at(100);
        let taken: Vec<bool> = (0..5).map(|_| bucket.take(start)).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        let soon = start + 200.milliseconds();
        assert!(bucket.take(soon));
        assert!(!bucket.take(soon));
        assert!(!bucket.take(start), "a clock set back fills nothing");
        let later = start + 100.seconds();
        let taken = (0..5).filter(|_| bucket.take(later)).count();
        assert_eq!(taken, 3, "never more than the burst");
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert_eq!(PullRateLimit::new(0, 10), None);
        assert!(!TokenBucket::full(PullRateLimit::new(1, 0).unwrap()).take(at(0)));
    }
}
