//! The name of a new version of a volume's files: upstream's, Go's `..2006_01_02_15_04_05.` and a number.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 60 * 60;

/// Returns a name that has hardly been used before: the time and a random number.
pub(crate) fn version() -> String {
    let number = RandomState::new().hash_one(0) & u64::from(u32::MAX);
    format!("..{}.{number}", utc(now()))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one place where this plugin reads the wall"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn utc(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY);
    let second = seconds % DAY;
    format!(
        "{year:04}_{month:02}_{day:02}_{:02}_{:02}_{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The date of a day counted from 1970. Eras of 400 years begin on the first of March of a year that 400 divides.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // March is the first of the months that end with the leap day.
    let march = (5 * day + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month, day - (153 * march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_by_its_time_as_go_writes_it() {
        for (seconds, text) in [
            (0, "1970_01_01_00_00_00"),
            (951_782_399, "2000_02_28_23_59_59"),
            (951_782_400, "2000_02_29_00_00_00"),
            (1_136_214_245, "2006_01_02_15_04_05"),
            (1_709_251_199, "2024_02_29_23_59_59"),
            (4_102_444_800, "2100_01_01_00_00_00"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        let name = version();
        assert!(
            name.starts_with("..20")
                && name
                    .rsplit('.')
                    .next()
                    .is_some_and(|number| number.parse::<u32>().is_ok()),
            "{name}"
        );
        assert_ne!(name, version());
    }
}
