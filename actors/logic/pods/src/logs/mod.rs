//! Container logs on disk: when one is rotated, under which name, and which of its files stay.
//!
//! Mirrors upstream's pkg/kubelet/logs/container_log_manager.go at v1.36: `N.log` is written,
//! `N.log.20060102-150405` was rotated, `.gz` is compressed, `.tmp` is what a compression left behind.
//! Upstream checks every log each `containerLogMonitorInterval`; here a log is checked when its writer could have
//! filled it ([`LogRotationPolicy::rest`]), so that a fast writer stays within twice the limit as well.
//! Unlike upstream names are in UTC, whose order no daylight saving time upsets, and a second rotation
//! within one second gets a name of its own instead of the first one's file.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use logic_api::quantity::Quantity;

const STAMP: &str = "%Y%m%d-%H%M%S";
/// The length of a time in [`STAMP`]'s form.
const STAMP_LENGTH: usize = 15;
/// Ends the name of a rotated file that is compressed.
pub const COMPRESSED: &str = ".gz";
const TEMPORARY: &str = ".tmp";
/// Further rotations within one second are `_001`, `_002`: that sorts behind the first one and its `.gz`.
const MAX_ROTATIONS_PER_SECOND: u16 = 999;
/// The fastest writer that the bound is made for, in bytes a second.
const MAX_WRITE_RATE: u64 = 128 << 20;
/// No wait is shorter: a timer has no finer steps.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Upstream's default, for a size that validation has let pass and that still cannot be read.
const DEFAULT_LIMIT: u64 = 10 << 20;

/// The section of the configuration about container logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRotationPolicy {
    /// Bytes from which on a log is rotated; none for never.
    pub limit: Option<u64>,
    /// Files that one container may have, the one being written among them.
    pub files: usize,
    /// Compressions at a time.
    pub workers: usize,
    /// Between two checks of a log for which inotify reports no writes.
    pub interval: Duration,
}

impl Default for LogRotationPolicy {
    fn default() -> Self {
        LogRotationPolicy {
            limit: Some(DEFAULT_LIMIT),
            files: 5,
            workers: 1,
            interval: Duration::from_secs(10),
        }
    }
}

/// A log's size, and when it was that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes.
    pub size: u64,
    /// Since any fixed moment.
    pub at: Duration,
}

impl LogRotationPolicy {
    /// From `containerLogMaxSize` (negative: no rotation), `containerLogMaxFiles`, `containerLogMaxWorkers`
    /// and `containerLogMonitorInterval`.
    pub fn new(max_size: &str, max_files: i32, max_workers: i32, interval: Duration) -> Self {
        let limit = match Quantity::parse(max_size) {
            Ok(size) if size.is_negative() => None,
            Ok(size) => u64::try_from(size.value()).ok(),
            Err(_) => Some(DEFAULT_LIMIT),
        };
        LogRotationPolicy {
            limit,
            files: usize::try_from(max_files).unwrap_or(0).max(2),
            workers: usize::try_from(max_workers).unwrap_or(0).max(1),
            interval,
        }
    }

    /// Whether a log of this size is rotated.
    pub fn is_due(&self, size: u64) -> bool {
        // An empty log is left alone even under a limit of zero.
        self.limit.is_some_and(|limit| size >= limit.max(1))
    }

    /// How long a log of this size may be written to, from the first write on, before it is looked at: then
    /// the fastest writer has filled it one and a half times.
    pub fn rest(&self, size: u64) -> Duration {
        let limit = self.limit.unwrap_or(u64::MAX);
        let room = limit.saturating_add(limit / 2).saturating_sub(size);
        time_to_write(room, MAX_WRITE_RATE).clamp(MIN_POLL_INTERVAL, self.interval)
    }

    /// How long write notifications may be collected before they are acted on: an eighth of the limit.
    pub fn gather(&self) -> Duration {
        let eighth = self.limit.unwrap_or(u64::MAX) / 8;
        time_to_write(eighth, MAX_WRITE_RATE).clamp(MIN_POLL_INTERVAL, self.interval)
    }

    /// When to check a log again for which inotify reports no writes, if it grows as between the last two checks, or
    /// twice as fast.
    pub fn poll(&self, before: Option<LogSize>, now: LogSize) -> Duration {
        let Some((limit, before)) = self.limit.zip(before) else {
            return self.interval;
        };
        let (grown, took) = (
            now.size.saturating_sub(before.size),
            now.at.saturating_sub(before.at),
        );
        if grown == 0 || took.is_zero() {
            return self.interval;
        }
        let a_second = u128::from(grown) * 1000 / took.as_millis().max(1);
        let rate = u64::try_from(a_second * 2).unwrap_or(u64::MAX);
        let room = limit.saturating_sub(now.size);
        time_to_write(room, rate).clamp(MIN_POLL_INTERVAL.min(self.interval), self.interval)
    }
}

fn time_to_write(bytes: u64, a_second: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(a_second.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// The files of one log, as its directory lists them.
#[derive(Clone, Copy, Debug)]
pub struct LogFiles<'a> {
    /// The live log's file name: `N.log`.
    pub log: &'a str,
    pub names: &'a [String],
    /// Rotated too short a time ago to be compressed: under a flood they are removed before they would be.
    pub fresh: &'a BTreeSet<String>,
    /// The file that is being compressed.
    pub compressing: Option<&'a str>,
}

/// What is done with a log's rotated files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCleanup {
    /// Left behind or excess, oldest first.
    pub remove: Vec<String>,
    /// Files to compress, oldest first.
    pub compress: Vec<String>,
}

/// Decides about the rotated files: leftovers are removed, and the oldest until the limit of files is kept; all but
/// the newest are compressed.
pub fn tidy(files: &LogFiles<'_>, policy: &LogRotationPolicy) -> LogCleanup {
    let (mut used, unused) = sorted(files);
    let excess = (used.len() + 1).saturating_sub(policy.files);
    let kept = used.split_off(excess);
    let compress = kept.iter().rev().skip(1).rev().filter(|name| {
        !name.ends_with(COMPRESSED)
            && !files.fresh.contains(**name)
            && files.compressing != Some(name.as_str())
    });
    LogCleanup {
        compress: compress.copied().cloned().collect(),
        remove: unused.into_iter().chain(used).cloned().collect(),
    }
}

/// The files that hold a log, oldest first, the one being written last.
pub fn find(log: &str, names: &[String]) -> Vec<String> {
    let files = LogFiles {
        log,
        names,
        fresh: &BTreeSet::new(),
        compressing: None,
    };
    let live = names.iter().filter(|name| *name == log);
    let (used, _) = sorted(&files);
    used.into_iter().chain(live).cloned().collect()
}

/// The rotated files in use, oldest first, and those that are not in use.
fn sorted<'a>(files: &LogFiles<'a>) -> (Vec<&'a String>, Vec<&'a String>) {
    let names: BTreeSet<&String> = files
        .names
        .iter()
        .filter(|name| suffix(files.log, name).is_some())
        .collect();
    let being_made = files.compressing.map(temporary);
    let names = names.iter().copied();
    let names = names.filter(|name| being_made.as_ref() != Some(*name));
    names.partition(|name| {
        let twin = compressed(name);
        !name.ends_with(TEMPORARY) && (name.ends_with(COMPRESSED) || !files.names.contains(&twin))
    })
}

/// What follows `N.log.` in the name of a rotated file.
fn suffix<'a>(log: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(log)?.strip_prefix('.')
}

/// The name of a file once it is compressed.
pub fn compressed(name: &str) -> String {
    format!("{name}{COMPRESSED}")
}

/// Where a file is compressed to.
pub fn temporary(name: &str) -> String {
    format!("{name}{TEMPORARY}")
}

/// The name under which `log` is rotated now: the time, or what sorts next behind the newest file, if that
/// bears this second or a later one.
pub fn rotated(log: &str, names: &[String], now: Timestamp) -> String {
    let stamps = names.iter().filter_map(|name| stamp(suffix(log, name)?));
    let now = Offset::UTC.to_datetime(now).strftime(STAMP).to_string();
    let stamp = match stamps.max() {
        Some(newest) if newest >= now.as_str() => after(newest),
        Some(_) | None => now,
    };
    format!("{log}.{stamp}")
}

/// The time in a rotated file's name, with its number within the second; none in a foreign name.
fn stamp(suffix: &str) -> Option<&str> {
    let stamp = suffix.split('.').next()?;
    let (time, number) = stamp.split_at_checked(STAMP_LENGTH)?;
    let numbered = number.strip_prefix('_').is_some_and(|number| {
        number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let known = DateTime::strptime(STAMP, time).is_ok() && (number.is_empty() || numbered);
    known.then_some(stamp)
}

fn after(stamp: &str) -> String {
    let (time, number) = stamp.split_at(STAMP_LENGTH);
    let number = number.trim_start_matches('_').parse().unwrap_or(0_u16);
    if number < MAX_ROTATIONS_PER_SECOND {
        return format!("{time}_{:03}", number + 1);
    }
    let second = jiff::Span::new().seconds(1);
    let next = DateTime::strptime(STAMP, time).and_then(|time| time.checked_add(second));
    next.map_or_else(
        // Only the last second of the year 9999 has none after it.
        |_| stamp.to_owned(),
        |next| next.strftime(STAMP).to_string(),
    )
}

pub mod container_logs;
#[cfg(test)]
mod tests;
