//! Conditional and range requests: all of a file is sent, a part, or nothing, because the caller has it already.
//!
//! A file has no tag here, only the second in which it changed. Upstream: Go's net/http (ServeContent).

use std::ops::Range;
use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// What is sent of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConditionOutcome {
    Whole,
    Bytes(Range<u64>),
    /// 304: the caller has this version.
    Unchanged,
    /// 412: a precondition fails.
    Another,
    /// 416: there is no such range; the reason in upstream's words.
    NoRange(&'static str),
}

/// The range header cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BadRange;

/// Returns the requested part of a file of this length. A request for several ranges gets the whole.
pub(super) fn part(
    headers: &HeaderMap,
    length: u64,
    changed: Option<Timestamp>,
) -> ConditionOutcome {
    let matched = text(headers, IF_MATCH).map(is_any);
    let unmodified =
        || !time(headers, IF_UNMODIFIED_SINCE).is_some_and(|since| later(changed, since));
    if !matched.unwrap_or_else(unmodified) {
        return ConditionOutcome::Another;
    }
    if is_known(headers, changed) {
        return ConditionOutcome::Unchanged;
    }
    match text(headers, RANGE).filter(|_| is_still(headers, changed)) {
        Some(asked) if length > 0 => range(asked, length),
        Some(_) | None => ConditionOutcome::Whole,
    }
}

/// Whether the caller has the version that was changed then.
pub(super) fn is_known(headers: &HeaderMap, changed: Option<Timestamp>) -> bool {
    let unmatched = text(headers, IF_NONE_MATCH).map(is_any);
    let unmodified = || {
        time(headers, IF_MODIFIED_SINCE)
            .is_some_and(|since| changed.is_some() && !later(changed, since))
    };
    unmatched.unwrap_or_else(unmodified)
}

/// The time of a change in whole seconds, as headers can express it; none if they cannot.
pub(super) fn moment(changed: SystemTime) -> Option<Timestamp> {
    let changed = Timestamp::try_from(changed).ok()?;
    let second = Timestamp::from_second(changed.as_second()).ok()?;
    Some(second).filter(|second| *second != Timestamp::UNIX_EPOCH)
}

/// Returns a time as headers express it.
pub(super) fn told(moment: Timestamp) -> Option<String> {
    let printer = rfc2822::DateTimePrinter::new();
    printer.timestamp_to_rfc9110_string(&moment).ok()
}

fn later(changed: Option<Timestamp>, since: Timestamp) -> bool {
    changed.is_some_and(|changed| changed > since)
}

/// Whether a range of the version that the caller has is a range of this one.
fn is_still(headers: &HeaderMap, changed: Option<Timestamp>) -> bool {
    match text(headers, IF_RANGE) {
        None => true,
        Some(_) => changed.is_some() && time(headers, IF_RANGE) == changed,
    }
}

fn range(asked: &str, length: u64) -> ConditionOutcome {
    let Some(list) = asked.strip_prefix("bytes=") else {
        return ConditionOutcome::NoRange("invalid range\n");
    };
    let list = list.split(',').map(str::trim).filter(|one| !one.is_empty());
    let ranges: Result<Vec<Option<Range<u64>>>, BadRange> =
        list.map(|one| bytes(one, length)).collect();
    let Ok(ranges) = ranges else {
        return ConditionOutcome::NoRange("invalid range\n");
    };
    let mut there = ranges.iter().flatten();
    match (there.next(), there.next()) {
        (None, _) if !ranges.is_empty() => {
            ConditionOutcome::NoRange("invalid range: failed to overlap\n")
        }
        (Some(one), None) => ConditionOutcome::Bytes(one.clone()),
        (None | Some(_), _) => ConditionOutcome::Whole,
    }
}

/// One range; none if it lies behind the end.
fn bytes(one: &str, length: u64) -> Result<Option<Range<u64>>, BadRange> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| BadRange);
    let (from, to) = one.split_once('-').ok_or(BadRange)?;
    if from.trim().is_empty() {
        return Ok(Some(length - number(to)?.min(length)..length));
    }
    let from = number(from)?;
    let to = match to.trim() {
        "" => u64::MAX,
        to => number(to)?,
    };
    match () {
        () if from >= length => Ok(None),
        () if from > to => Err(BadRange),
        () => Ok(Some(from..to.saturating_add(1).min(length))),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    Some(text).filter(|text| !text.is_empty())
}

fn time(headers: &HeaderMap, name: HeaderName) -> Option<Timestamp> {
    let parser = rfc2822::DateTimeParser::new();
    parser.parse_timestamp(text(headers, name)?).ok()
}

/// Whether a list of tags matches any file (`*`).
fn is_any(tags: &str) -> bool {
    tags.split(',').any(|tag| tag.trim() == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

    fn asked(pairs: &[(HeaderName, &str)], length: u64) -> ConditionOutcome {
        let changed = "2026-01-01T00:00:00Z".parse().ok();
        let headers = pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        part(&headers.collect(), length, changed)
    }

    /// Go's TestServeContent and TestParseRange, the cases without tags.
    #[test]
    fn ranges_are_cut_to_what_there_is() {
        let (bad, behind) = ("invalid range\n", "invalid range: failed to overlap\n");
        let cases = [
            ("bytes=0-4", ConditionOutcome::Bytes(0..5)),
            ("bytes=2-", ConditionOutcome::Bytes(2..10)),
            ("bytes=-5", ConditionOutcome::Bytes(5..10)),
            ("bytes=-15", ConditionOutcome::Bytes(0..10)),
            ("bytes=8-99", ConditionOutcome::Bytes(8..10)),
            ("bytes= 9 - 9 ,, ", ConditionOutcome::Bytes(9..10)),
            ("bytes=1-2, 20-30", ConditionOutcome::Bytes(1..3)),
            ("bytes=0-1,4-5", ConditionOutcome::Whole),
            ("bytes=", ConditionOutcome::Whole),
            ("bytes=10-", ConditionOutcome::NoRange(behind)),
            ("bytes=20-30,40-", ConditionOutcome::NoRange(behind)),
            ("bytes=5-4", ConditionOutcome::NoRange(bad)),
            ("bytes=a-b", ConditionOutcome::NoRange(bad)),
            ("bytes=--5", ConditionOutcome::NoRange(bad)),
            ("bytes=7", ConditionOutcome::NoRange(bad)),
            ("lines=1-2", ConditionOutcome::NoRange(bad)),
        ];
        for (range, expected) in cases {
            assert_eq!(asked(&[(RANGE, range)], 10), expected, "{range}");
        }
        assert_eq!(
            asked(&[(RANGE, "bytes=0-4")], 0),
            ConditionOutcome::Whole,
            "some ask always"
        );
    }

    #[test]
    fn whoever_has_it_is_told_so_and_a_part_is_of_what_he_means() {
        let (old, next) = (
            "Wed, 31 Dec 2025 00:00:00 GMT",
            "Fri, 02 Jan 2026 00:00:00 GMT",
        );
        let part = (RANGE, "bytes=0-0");
        let first = || ConditionOutcome::Bytes(0..1);
        let cases: [(&[(HeaderName, &str)], ConditionOutcome); 13] = [
            (&[(IF_MODIFIED_SINCE, NEW)], ConditionOutcome::Unchanged),
            (&[(IF_MODIFIED_SINCE, next)], ConditionOutcome::Unchanged),
            (&[(IF_MODIFIED_SINCE, old)], ConditionOutcome::Whole),
            (&[(IF_MODIFIED_SINCE, "noon")], ConditionOutcome::Whole),
            (
                &[(IF_MODIFIED_SINCE, NEW), (IF_NONE_MATCH, "\"x\"")],
                ConditionOutcome::Whole,
            ),
            (&[(IF_NONE_MATCH, "\"x\", *")], ConditionOutcome::Unchanged),
            (&[(IF_MATCH, "\"x\"")], ConditionOutcome::Another),
            (
                &[(IF_MATCH, "*"), (IF_UNMODIFIED_SINCE, old)],
                ConditionOutcome::Whole,
            ),
            (&[(IF_UNMODIFIED_SINCE, old)], ConditionOutcome::Another),
            (&[(IF_UNMODIFIED_SINCE, NEW)], ConditionOutcome::Whole),
            (&[part.clone(), (IF_RANGE, NEW)], first()),
            (&[part.clone(), (IF_RANGE, old)], ConditionOutcome::Whole),
            (&[part, (IF_RANGE, "\"x\"")], ConditionOutcome::Whole),
        ];
        for (headers, expected) in cases {
            assert_eq!(asked(headers, 10), expected, "{headers:?}");
        }
        let changed = moment(
            "2026-01-01T00:00:00.9Z"
                .parse::<Timestamp>()
                .unwrap()
                .into(),
        );
        assert_eq!(told(changed.unwrap()).as_deref(), Some(NEW));
        assert_eq!(moment(SystemTime::UNIX_EPOCH), None);
    }
}
