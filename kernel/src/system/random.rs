//! Randomness: one seeded generator a thread, for jitter and spread.
//!
//! It stands beside the clock: as a paused test has a simulated clock, so it has a fixed seed, and what
//! it saw can be replayed. In production a thread's generator is seeded by the operating system, through
//! the keys that the standard library draws for its hashers. Keys and tokens are not made from it: they
//! need the operating system's own generator.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// How far a double's mantissa reaches: 53 bits.
const MANTISSA: u32 = 53;

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// Returns a number from 0 up to, and not including, 1, evenly spread.
pub fn chance() -> f64 {
    let bits = next() >> (u64::BITS - MANTISSA);
    // Both are exact: neither has more than 53 bits.
    bits as f64 / (1_u64 << MANTISSA) as f64
}

/// Begins the thread's sequence anew, at `seed`.
#[cfg(feature = "testing")]
pub(crate) fn seed(seed: u64) {
    STATE.set(seed);
}

/// SplitMix64, by Guy Steele, Doug Lea and Christine Flood (OOPSLA 2014).
fn next() -> u64 {
    let state = STATE.get().wrapping_add(GAMMA);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        seed(1_234_567);
        let drawn = [next(), next(), next()];
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn chance_is_from_nought_to_one_and_evenly_spread() {
        seed(0);
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            let drawn = chance();
            assert!((0.0..1.0).contains(&drawn));
            #[allow(clippy::cast_possible_truncation, reason = "less than ten")]
            #[allow(clippy::cast_sign_loss, reason = "never negative")]
            let tenth = (drawn * 10.0) as usize;
            tenths[tenth] += 1;
        }
        assert!(
            tenths.iter().all(|count| (850..1_150).contains(count)),
            "{tenths:?}"
        );
    }

    #[test]
    fn two_threads_draw_different_sequences() {
        let draw = || std::thread::spawn(|| [next(), next()]).join().unwrap();
        assert_ne!(draw(), draw());
    }

    #[test]
    fn a_paused_test_is_replayed() {
        let draw = || crate::testing::run_paused(|| async { [chance(), chance()] });
        assert_eq!(draw(), draw());
    }
}
