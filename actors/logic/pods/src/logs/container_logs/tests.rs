//! Laws of logs: upstream's tables, and that no piece of a line is lost wherever the bytes are cut.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::line::{ContainerLogFormat, LogLineStream, nine_digits};
use super::{
    ContainerLogOptions, LogFormatter, LogOptionsError, LogQueryFields, MAX_LINE_BYTES,
    ReadProgress, StreamSelection, TailSearch,
};

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn all() -> ContainerLogOptions {
    ContainerLogOptions::read(&LogQueryFields::default(), now(), true).unwrap()
}

fn shown(options: &ContainerLogOptions, text: &[u8]) -> String {
    let (mut show, mut out) = (LogFormatter::new(options), Vec::new());
    if show.take(text, &mut out) == ReadProgress::More {
        show.finish(&mut out);
    }
    String::from_utf8(out).unwrap()
}

/// Upstream's TestLogOptions.
#[test]
fn options_are_what_the_query_says() {
    assert_eq!((all().tail, all().bytes, all().since), (None, None, None));
    let asked = LogQueryFields {
        tail_lines: Some("8"),
        limit_bytes: Some("64"),
        since_seconds: Some("10"),
        follow: true,
        ..LogQueryFields::default()
    };
    let options = ContainerLogOptions::read(&asked, now(), false).unwrap();
    assert_eq!((options.tail, options.bytes), (Some(8), Some(64)));
    let since = now().checked_sub(Duration::from_secs(10)).unwrap();
    assert_eq!(options.since, Some(since));
    let time = LogQueryFields {
        since_time: Some("2025-01-01T00:00:00Z"),
        ..LogQueryFields::default()
    };
    let since = ContainerLogOptions::read(&time, now(), false)
        .unwrap()
        .since;
    assert_eq!(since, Some("2025-01-01T00:00:00Z".parse().unwrap()));
    for nothing in ["", "null"] {
        let time = LogQueryFields {
            since_time: Some(nothing),
            ..LogQueryFields::default()
        };
        assert_eq!(
            ContainerLogOptions::read(&time, now(), false)
                .unwrap()
                .since,
            None
        );
    }
}

/// Upstream's TestValidatePodLogOptions (the cases of streams).
#[test]
fn one_stream_has_no_tail() {
    let asked = |stream, tail_lines| {
        let asked = LogQueryFields {
            stream: Some(stream),
            tail_lines,
            ..LogQueryFields::default()
        };
        ContainerLogOptions::read(&asked, now(), true).map(|options| options.stream)
    };
    assert_eq!(asked("Stdout", None), Ok(StreamSelection::Stdout));
    assert_eq!(asked("Stderr", None), Ok(StreamSelection::Stderr));
    assert_eq!(asked("All", Some("1")), Ok(StreamSelection::All));
    assert_eq!(asked("Stderr", Some("1")), Err(LogOptionsError::Invalid));
    assert_eq!(asked("stdout", None), Err(LogOptionsError::Invalid));
}

/// Upstream's TestParseLog.
#[test]
fn lines_are_read_in_both_formats() {
    let cases = [
        (
            r#"{"log":"out","stream":"stdout","time":"2016-10-20T18:39:20.57606443Z"}"#,
            LogLineStream::Stdout,
            "out",
        ),
        (
            r#"{"log":"err \"x\"\n","stream":"stderr","time":"2016-10-20T18:39:20.57606443Z"}"#,
            LogLineStream::Stderr,
            "err \"x\"\n",
        ),
        (
            "2016-10-20T18:39:20.57606443Z stdout F out\n",
            LogLineStream::Stdout,
            "out\n",
        ),
        (
            "2016-10-20T18:39:20.57606443Z stderr F err\n",
            LogLineStream::Stderr,
            "err\n",
        ),
        (
            "2016-10-20T18:39:20.57606443Z stdout P part\n",
            LogLineStream::Stdout,
            "part",
        ),
        (
            "2016-10-20T18:39:20.57606443Z stdout P:TAG1:TAG2 part\n",
            LogLineStream::Stdout,
            "part",
        ),
        (
            "2016-10-20T18:39:20.57606443Z stdout F \n",
            LogLineStream::Stdout,
            "\n",
        ),
    ];
    for (line, source, text) in cases {
        let format = ContainerLogFormat::of(line.as_bytes()).unwrap();
        let read = format.read(line.as_bytes()).unwrap();
        assert_eq!(
            (read.source, &*read.text),
            (source, text.as_bytes()),
            "{line}"
        );
        assert_eq!(read.at, "2016-10-20T18:39:20.57606443Z".parse().unwrap());
    }
    for strange in [
        "unsupported log format test log\n",
        "",
        "\n",
        "2016 stdout F x\n",
        "2016-10-20T18:39:20Z other F x\n",
        "2016-10-20T18:39:20Z stdout\n",
        "{}\n",
    ] {
        assert_eq!(
            ContainerLogFormat::of(strange.as_bytes()),
            None,
            "{strange:?}"
        );
    }
}

#[test]
fn timestamps_have_nine_digits_and_their_own_offset() {
    let cases = [
        (
            "2016-10-20T18:39:20.57606443Z",
            "2016-10-20T18:39:20.576064430Z",
        ),
        ("2016-10-20T18:39:20Z", "2016-10-20T18:39:20.000000000Z"),
        (
            "2016-10-20T18:39:20.1+02:00",
            "2016-10-20T18:39:20.100000000+02:00",
        ),
        (
            "2016-10-20T18:39:20.1234567891-07:00",
            "2016-10-20T18:39:20.123456789-07:00",
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(nine_digits(written), expected);
    }
}

/// Upstream's TestWriteLogs and TestWriteLogsWithBytesLimit.
#[test]
fn bytes_are_limited_across_streams() {
    let log = b"2026-01-01T00:00:00Z stdout F line0\n2026-01-01T00:00:00Z stderr F line1\n2026-01-01T00:00:00Z stdout F line2\n";
    let limited = |bytes, timestamps| {
        let options = ContainerLogOptions {
            bytes: Some(bytes),
            timestamps,
            ..all()
        };
        shown(&options, log)
    };
    assert_eq!(limited(3, false), "lin");
    assert_eq!(limited(6, false), "line0\n");
    assert_eq!(limited(8, false), "line0\nli");
    assert_eq!(limited(1000, false), "line0\nline1\nline2\n");
    assert_eq!(limited(14, true), "2026-01-01T00:");
    let only = ContainerLogOptions {
        stream: StreamSelection::Stderr,
        bytes: Some(5),
        ..all()
    };
    assert_eq!(
        shown(&only, log),
        "line1",
        "what is not shown is not counted"
    );
}

/// Upstream's TestReadLogsLimitsWithTimestamps: a broken line has one timestamp.
#[test]
fn parts_of_a_line_are_joined() {
    let log = b"2026-01-01T00:00:00Z stdout P one \n2026-01-01T00:00:01Z stdout P two \n2026-01-01T00:00:02Z stdout F three\n2026-01-01T00:00:03Z stdout F four\n";
    assert_eq!(shown(&all(), log), "one two three\nfour\n");
    let stamped = ContainerLogOptions {
        timestamps: true,
        ..all()
    };
    let expected =
        "2026-01-01T00:00:00.000000000Z one two three\n2026-01-01T00:00:03.000000000Z four\n";
    assert_eq!(shown(&stamped, log), expected);
}

#[test]
fn lines_that_are_none_are_left_out() {
    let log = b"2026-01-01T00:00:00Z stdout F a\ngarbage\n2026-01-01T00:00:00Z stdout F b\n2026-01-01T00:00:00Z stdout F no end";
    assert_eq!(shown(&all(), log), "a\nb\nno end");
    let (mut show, mut out) = (LogFormatter::new(&all()), Vec::new());
    assert_eq!(show.take(b"garbage\n", &mut out), ReadProgress::Strange);
}

#[test]
fn endless_line_is_passed_on_in_bounded_memory() {
    let mut log = b"2026-01-01T00:00:00Z stdout F ".to_vec();
    log.extend(std::iter::repeat_n(b'x', MAX_LINE_BYTES * 3));
    log.extend_from_slice(b"\n2026-01-01T00:00:00Z stdout F next\n");
    let (mut show, mut out) = (LogFormatter::new(&all()), Vec::new());
    for piece in log.chunks(10_000) {
        assert_eq!(show.take(piece, &mut out), ReadProgress::More);
    }
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.len(), MAX_LINE_BYTES * 3 + 1 + 5);
    assert!(text.ends_with("x\nnext\n"));
}

/// The last lines of a log, as a reader of the file finds and shows them.
fn shown_tail(lines: u64, log: &[u8]) -> String {
    let mut search = TailSearch::new(lines, log.len() as u64);
    let mut end = log.len();
    while end > 0 {
        let start = log[..end - 1].iter().rposition(|byte| *byte == b'\n');
        let start = start.map_or(0, |at| at + 1);
        let head = &log[start..end.min(start + TailSearch::HEAD_BYTES)];
        if search.take(start as u64, head) {
            break;
        }
        end = start;
    }
    let tail = search.found();
    let options = ContainerLogOptions {
        tail: Some(lines),
        ..all()
    };
    let mut show = LogFormatter::of_tail(&options, tail);
    let mut out = Vec::new();
    let from = usize::try_from(tail.start).unwrap();
    let mut progress = ReadProgress::More;
    for piece in log[from..].chunks(7_001) {
        if progress == ReadProgress::More {
            progress = show.take(piece, &mut out);
        }
    }
    if progress == ReadProgress::More {
        show.finish(&mut out);
    }
    String::from_utf8(out).unwrap()
}

/// Upstream counts each part of a long line as a line, and shows the last part alone.
#[test]
fn a_tail_has_whole_lines_however_they_are_written() {
    let at = "2026-01-01T00:00:00Z";
    let part = |stream: &str, tag: &str, text: &str| format!("{at} {stream} {tag} {text}\n");
    let mib = "m".repeat(1 << 20);
    let kib16 = "k".repeat(16 << 10);
    let mut parts = part("stdout", "F", "first");
    for _ in 0..64 {
        parts += &part("stdout", "P", &kib16);
    }
    let json =
        |text: &str| format!("{{\"log\":\"{text}\",\"stream\":\"stdout\",\"time\":\"{at}\"}}\n");
    let whole = part("stdout", "F", "first") + &part("stdout", "F", &mib);
    let in_json = json("first\\n") + &json("one ") + &json("two ") + &json("three\\n");
    let joined = format!("{}\n", kib16.repeat(64));
    let cases = [
        (1, whole.clone(), format!("{mib}\n")),
        (2, whole.clone(), format!("first\n{mib}\n")),
        (0, whole, String::new()),
        (1, parts.clone() + &part("stdout", "F", ""), joined.clone()),
        // A line that is not finished yet.
        (1, parts.clone(), kib16.repeat(64)),
        (1, in_json.clone(), "one two three\n".to_owned()),
        (2, in_json, "first\none two three\n".to_owned()),
        (
            2,
            parts + &part("stderr", "F", "other") + &part("stdout", "F", ""),
            // The order in which the parts were written.
            format!("{}other\n\n", kib16.repeat(64)),
        ),
    ];
    for (lines, log, expected) in cases {
        let shown = shown_tail(lines, log.as_bytes());
        assert!(
            shown == expected,
            "{lines}: {} bytes, expected {}",
            shown.len(),
            expected.len()
        );
    }
}

proptest! {
    /// Against all entries of the last lines, in the order in which they were written.
    #[test]
    fn a_tail_is_every_part_of_its_lines_and_nothing_else(
        parts in proptest::collection::vec(("[a-z]{1,9}", any::<bool>(), any::<bool>()), 0..30),
        lines in 0_u64..12,
    ) {
        let mut log = String::new();
        // The line of each part, by the place of its last part.
        let mut ends: Vec<usize> = Vec::new();
        for (index, (text, partial, stderr)) in parts.iter().enumerate() {
            let (tag, stream) = (if *partial { "P" } else { "F" }, if *stderr { "stderr" } else { "stdout" });
            log.push_str(&format!("2026-01-01T00:00:00Z {stream} {tag} {text}\n"));
            let mut rest = parts[index..].iter().enumerate().filter(|(_, part)| part.2 == *stderr);
            let end = rest.find(|(_, part)| !part.1).map(|(at, _)| at);
            let last = parts[index..].iter().rposition(|part| part.2 == *stderr);
            ends.push(index + end.or(last).unwrap_or_default());
        }
        let mut places: Vec<usize> = ends.clone();
        places.sort_unstable();
        places.dedup();
        let first = places.len().saturating_sub(usize::try_from(lines).unwrap());
        let chosen = &places[first..];
        let expected: String = parts
            .iter()
            .zip(&ends)
            .filter(|(_, end)| chosen.contains(end))
            .map(|((text, partial, _), _)| format!("{text}{}", if *partial { "" } else { "\n" }))
            .collect();
        prop_assert_eq!(shown_tail(lines, log.as_bytes()), expected);
    }

    #[test]
    fn cuts_change_nothing(
        lines in proptest::collection::vec(("[a-z ]{0,30}", any::<bool>(), any::<bool>()), 0..20),
        cut in 1_usize..50,
        timestamps: bool,
    ) {
        let mut log = String::new();
        for (text, partial, stderr) in &lines {
            let (tag, stream) = (if *partial { "P" } else { "F" }, if *stderr { "stderr" } else { "stdout" });
            log.push_str(&format!("2026-01-01T00:00:00.1Z {stream} {tag} {text}\n"));
        }
        let options = ContainerLogOptions { timestamps, ..all() };
        let whole = shown(&options, log.as_bytes());
        let (mut show, mut out) = (LogFormatter::new(&options), Vec::new());
        for piece in log.as_bytes().chunks(cut) {
            prop_assert_eq!(show.take(piece, &mut out), ReadProgress::More);
        }
        show.finish(&mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), whole);
    }
}
