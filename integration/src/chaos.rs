//! Faults at pseudo-random moments, the same ones for the same seed.

use std::time::Duration;

/// A sequence of moments and choices (xorshift): random enough to hit a program between any two of its
/// steps, and repeatable by the seed that a failed test prints.
#[derive(Clone, Copy, Debug)]
pub struct Chaos(u64);

impl Chaos {
    /// Begins the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number from 0 to below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound.max(1)
    }

    /// Lets a random time pass, at most `longest`: what comes next comes at no particular moment.
    pub async fn moment(&mut self, longest: Duration) {
        let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        tokio::time::sleep(Duration::from_micros(self.below(longest))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_choices() {
        let choices = |seed| {
            let mut chaos = Chaos::new(seed);
            (0..100).map(|_| chaos.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(9));
        assert!(choices(7).iter().all(|choice| *choice < 10));
    }
}
