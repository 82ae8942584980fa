//! Samples of one measurement, and their percentiles.

use std::time::Duration;

/// Measurements in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1_000.0);
    }

    /// Adds a difference of two clock readings in nanoseconds.
    pub(super) fn add_nanos(&mut self, nanos: i64) {
        #[allow(clippy::cast_precision_loss, reason = "hours of nanoseconds are exact")]
        self.0.push(nanos as f64 / 1e6);
    }

    pub(super) fn median(&self) -> f64 {
        self.at_share(0.5)
    }

    pub(super) fn p99(&self) -> f64 {
        self.at_share(0.99)
    }

    pub(super) fn most(&self) -> f64 {
        self.at_share(1.0)
    }

    /// The smallest measurement that this share of all do not exceed; nought of nothing.
    fn at_share(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a few hundred samples"
        )]
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_measurement_that_was_made() {
        let mut samples = Samples::default();
        (1..=200).for_each(|n| samples.add(Duration::from_millis(n)));
        assert_eq!(
            (samples.median(), samples.p99(), samples.most()),
            (100.0, 198.0, 200.0)
        );
        let mut one = Samples::default();
        one.add_nanos(2_500_000);
        assert_eq!((one.median(), one.p99()), (2.5, 2.5));
        assert_eq!(Samples::default().p99(), 0.0);
    }
}
