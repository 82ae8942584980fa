//! A container's last words: its termination message file, or the end of its log.
//!
//! Mirrors upstream's `getTerminationMessage`, `readLastStringFromContainerLogs` and
//! `convertToKubeContainerStatus` (kuberuntime_container.go), and cri-client's pkg/logs, at v1.36. The pod's
//! share of all its messages (12 KiB) is cut in [`crate::status`]. Bytes that are no UTF-8 become U+FFFD,
//! which is what the API makes of them.

use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::types::RuntimeContainer;
use logic_resources::node::policy::NodePolicy;
use serde::Deserialize;

use crate::container::pod_container_directory;

/// Bytes of the message file that count: its last ones.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// Bytes of the log that count, without times and streams: its last ones.
const MAX_LOG_FALLBACK_BYTES: usize = 2048;
/// Lines of the log that count, a part of a line being one: the last ones.
const LINES: usize = 80;
/// A runtime's reason for a container that never ran: it has no log.
const NEVER_RAN: &str = "ContainerCannotRun";

/// The file on the node into which a container instance writes its last words.
pub fn message_file(pod: &Pod, container: &str, attempt: u32, node: &NodePolicy) -> PathBuf {
    pod_container_directory(node, pod, container).join(format!("{attempt:08x}"))
}

/// Whether a container has a message file.
pub fn has_message_file(spec: &core::Container) -> bool {
    let path = spec.termination_message_path.as_deref();
    path.is_some_and(|path| !path.is_empty())
}

/// Whether the log stands in for the message of an ended container that left none.
pub fn falls_back_to_log(spec: &core::Container, ended: &RuntimeContainer) -> bool {
    let policy = spec.termination_message_policy.as_deref();
    policy == Some("FallbackToLogsOnError") && ended.exit_code != 0 && ended.reason != NEVER_RAN
}

/// The end of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// The end of the log, with whole lines where they fit.
    pub bytes: Vec<u8>,
    /// Whether the file begins before.
    pub cut: bool,
}

/// The message that a file holds.
pub fn from_file(tail: &LogTail) -> String {
    let mut bytes = tail.bytes.as_slice();
    if tail.cut {
        // The rest of a character whose beginning was cut off.
        let whole = bytes.iter().take(3).position(|byte| byte & 0xC0 != 0x80);
        bytes = bytes.get(whole.unwrap_or(0)..).unwrap_or_default();
    }
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    // What cannot be read takes three bytes where it was one.
    keep_end(&mut text, MAX_MESSAGE_BYTES);
    text
}

/// The message for a file that cannot be read.
pub fn unreadable_file(path: &str, error: &str) -> String {
    format!("Error on reading termination log {path}: {error}")
}

/// The message for a log that cannot be read.
pub fn unreadable_log(error: &str) -> String {
    format!("Error on reading termination message from logs: {error}")
}

/// The status's message: what the runtime says, then the container's last words.
pub fn joined(runtime: &str, words: &str) -> String {
    match (runtime.is_empty(), words.is_empty()) {
        (false, false) => format!("{runtime}: {words}"),
        (true, _) => words.to_owned(),
        (_, true) => runtime.to_owned(),
    }
}

/// The message that the end of a log holds: its last lines, as the container wrote them.
pub fn from_log(tail: &LogTail) -> String {
    let lines = last_lines(tail);
    let Some(format) = lines.first().map(|line| LogFormat::of(line)) else {
        return String::new();
    };
    let Some(format) = format else {
        // One line that is longer than all that was read.
        if tail.cut && lines.len() == 1 {
            return end_of(tail.bytes.clone());
        }
        let line = String::from_utf8_lossy(lines[0]);
        return unreadable_log(&format!(
            "failed to get parse function: unsupported log format: {line:?}"
        ));
    };
    let mut words = Vec::new();
    for line in lines {
        match format.read(line) {
            Some(LogTailLine::Of(text)) => words.extend(text),
            Some(LogTailLine::NoStream(stream)) => {
                return unreadable_log(&format!("unexpected stream type {stream:?}"));
            }
            None => {}
        }
    }
    end_of(words)
}

/// The last bytes that count, as text.
fn end_of(mut words: Vec<u8>) -> String {
    let excess = words.len().saturating_sub(MAX_LOG_FALLBACK_BYTES);
    let cut = excess > 0;
    let bytes = words.split_off(excess);
    let mut text = from_file(&LogTail { bytes, cut });
    keep_end(&mut text, MAX_LOG_FALLBACK_BYTES);
    text
}

/// Whole lines with their ends; a last one without an end only if the others are not enough.
fn last_lines(tail: &LogTail) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = tail.bytes.split_inclusive(|byte| *byte == b'\n').collect();
    // Where the file goes on before, the first line is a rest, unless it is all there is.
    if tail.cut && lines.len() > 1 {
        lines.remove(0);
    }
    let whole = lines.iter().filter(|line| line.ends_with(b"\n")).count();
    let start = whole.saturating_sub(LINES);
    lines.into_iter().skip(start).take(LINES).collect()
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    /// `2016-10-06T00:17:09.669794202Z stdout P log content`.
    Cri,
    /// `{"log":"content\n","stream":"stdout","time":"2016-10-20T18:39:20.57606443Z"}`.
    DockerJson,
}

enum LogTailLine {
    /// A line of the container's output.
    Of(Vec<u8>),
    /// Readable, but of neither stream.
    NoStream(String),
}

impl LogFormat {
    fn of(line: &[u8]) -> Option<LogFormat> {
        [LogFormat::Cri, LogFormat::DockerJson]
            .into_iter()
            .find(|format| format.read(line).is_some())
    }

    /// None for a line that is not of this form: it is passed over.
    fn read(self, line: &[u8]) -> Option<LogTailLine> {
        match self {
            LogFormat::Cri => cri_line(line),
            LogFormat::DockerJson => docker_line(line),
        }
    }
}

fn cri_line(line: &[u8]) -> Option<LogTailLine> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    let text = parts.next()?;
    std::str::from_utf8(time).ok()?.parse::<Timestamp>().ok()?;
    if stream != b"stdout" && stream != b"stderr" {
        return None;
    }
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    let text = match partial {
        true => text.strip_suffix(b"\n").unwrap_or(text),
        false => text,
    };
    Some(LogTailLine::Of(text.to_owned()))
}

#[derive(Deserialize)]
struct DockerLine {
    #[serde(default)]
    log: String,
    #[serde(default)]
    stream: String,
    #[serde(default)]
    #[allow(dead_code, reason = "a line whose time cannot be read is no line")]
    time: Option<Timestamp>,
}

fn docker_line(line: &[u8]) -> Option<LogTailLine> {
    let line: DockerLine = serde_json::from_slice(line).ok()?;
    Some(match line.stream.as_str() {
        "stdout" | "stderr" => LogTailLine::Of(line.log.into_bytes()),
        _ => LogTailLine::NoStream(line.stream),
    })
}

/// Cuts at the front, at a character's border.
fn keep_end(text: &mut String, longest: usize) {
    let mut start = text.len().saturating_sub(longest);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.drain(..start);
}

#[cfg(test)]
mod tests {
    use logic_api::pod::PodView;
    use logic_api::testing::*;
    use logic_api::types::ContainerState;
    use proptest::prelude::*;

    use super::*;

    const AT: &str = "2016-10-20T18:39:20.57606443Z";

    fn all(bytes: impl Into<Vec<u8>>) -> LogTail {
        let bytes = bytes.into();
        LogTail { bytes, cut: false }
    }

    fn cut(bytes: impl Into<Vec<u8>>) -> LogTail {
        let bytes = bytes.into();
        LogTail { bytes, cut: true }
    }

    /// Upstream's conditions in convertToKubeContainerStatus.
    #[test]
    fn the_log_speaks_only_for_a_failed_container_that_asks_for_it() {
        let cases = [
            (Some("FallbackToLogsOnError"), 1, "Error", true),
            (Some("FallbackToLogsOnError"), 0, "Completed", false),
            (
                Some("FallbackToLogsOnError"),
                128,
                "ContainerCannotRun",
                false,
            ),
            (Some("FallbackToLogsOnError"), 137, "OOMKilled", true),
            (Some("File"), 1, "Error", false),
            (None, 1, "Error", false),
        ];
        for (policy, code, reason, expected) in cases {
            let pod = pod("p").app_with("c", |c| {
                c.termination_message_policy = policy.map(str::to_owned);
            });
            let mut ended = instance(&pod, "c", ContainerState::Exited);
            ended.exit_code = code;
            ended.reason = reason.to_owned();
            let spec = &pod.app_containers()[0];
            assert_eq!(
                falls_back_to_log(spec, &ended),
                expected,
                "{policy:?} {code} {reason}"
            );
        }
    }

    #[test]
    fn a_container_without_a_path_has_no_message_file() {
        for (path, expected) in [
            (None, false),
            (Some(""), false),
            (Some("/dev/termination-log"), true),
        ] {
            let mut container = spec_container("c");
            container.termination_message_path = path.map(str::to_owned);
            assert_eq!(has_message_file(&container), expected, "{path:?}");
        }
    }

    /// Upstream's TestReadAtMost (pkg/util/tail): the end counts.
    #[test]
    fn a_file_is_its_last_bytes_as_text() {
        assert_eq!(from_file(&all("short\n")), "short\n");
        assert_eq!(from_file(&all("")), "");
        assert_eq!(from_file(&all(*b"bad \xff byte")), "bad \u{fffd} byte");
        let mut half = "ü".as_bytes()[1..].to_vec();
        half.extend(b"rest");
        assert_eq!(from_file(&cut(half)), "rest");
        let unreadable = from_file(&cut(vec![0xff; MAX_MESSAGE_BYTES]));
        assert_eq!(unreadable.len(), MAX_MESSAGE_BYTES / 3 * 3);
    }

    /// Upstream's convertToKubeContainerStatus.
    #[test]
    fn the_runtimes_word_stands_before_the_containers() {
        assert_eq!(joined("", ""), "");
        assert_eq!(joined("oom", ""), "oom");
        assert_eq!(joined("", "bye"), "bye");
        assert_eq!(joined("oom", "bye"), "oom: bye");
    }

    /// Upstream's TestParseLog (cri-client pkg/logs): both formats, parts and lines that cannot be read.
    #[test]
    fn lines_are_read_in_either_format() {
        let json = |log: &str, stream: &str| {
            format!("{{\"log\":\"{log}\",\"stream\":\"{stream}\",\"time\":\"{AT}\"}}\n")
        };
        let cases = [
            (json("docker stdout test log", "stdout"), "docker stdout test log".to_owned()),
            (json("docker stderr test log", "stderr"), "docker stderr test log".to_owned()),
            (format!("{AT} stdout F cri stdout test log\n"), "cri stdout test log\n".to_owned()),
            (format!("{AT} stderr F cri stderr test log\n"), "cri stderr test log\n".to_owned()),
            (format!("{AT} stdout P one \n{AT} stdout F two\n"), "one two\n".to_owned()),
            (format!("{AT} stdout F:TAG1:TAG2 tagged\n"), "tagged\n".to_owned()),
            (format!("{AT} stdout P:TAG1 part\n"), "part".to_owned()),
            (format!("{AT} stderr F \n"), "\n".to_owned()),
            (format!("{AT} stdout F good\nunreadable\n{AT} nowhere F lost\n"), "good\n".to_owned()),
            (format!("{AT} stdout F no end"), "no end".to_owned()),
            (
                "unsupported log format test log\n".to_owned(),
                "Error on reading termination message from logs: failed to get parse function: unsupported log format: \"unsupported log format test log\\n\"".to_owned(),
            ),
            (
                json("x", "nowhere"),
                "Error on reading termination message from logs: unexpected stream type \"nowhere\"".to_owned(),
            ),
            (String::new(), String::new()),
        ];
        for (log, expected) in cases {
            assert_eq!(from_log(&all(log.clone())), expected, "{log}");
        }
    }

    /// Upstream's TestTail (cri-client pkg/logs) with 80 lines: a last line without an end comes only
    /// where lines are missing.
    #[test]
    fn the_last_eighty_lines_count() {
        let lines = |from: usize, to: usize| -> String {
            (from..to).map(|n| format!("{AT} stdout F {n}\n")).collect()
        };
        let words =
            |from: usize, to: usize| -> String { (from..to).map(|n| format!("{n}\n")).collect() };
        assert_eq!(from_log(&all(lines(0, 3))), words(0, 3));
        assert_eq!(from_log(&all(lines(0, 100))), words(20, 100));
        assert_eq!(
            from_log(&cut(format!("rest of a line\n{}", lines(0, 3)))),
            words(0, 3)
        );
        let open = format!("{AT} stdout F open");
        assert_eq!(from_log(&all(lines(0, 3) + &open)), words(0, 3) + "open");
        assert_eq!(from_log(&all(lines(0, 100) + &open)), words(20, 100));
    }

    #[test]
    fn no_more_than_two_kibibytes_of_a_log_count() {
        let long = "x".repeat(3000) + "end";
        let log = format!("{AT} stdout F {long}\n");
        let expected = format!("{}end\n", "x".repeat(MAX_LOG_FALLBACK_BYTES - 4));
        assert_eq!(from_log(&all(log)), expected);
        let unreadable = from_log(&all([AT.as_bytes(), b" stdout F ", &[0xff; 5000]].concat()));
        assert_eq!(unreadable.len(), MAX_LOG_FALLBACK_BYTES / 3 * 3);
        assert_eq!(
            from_log(&cut("y".repeat(5000))),
            "y".repeat(MAX_LOG_FALLBACK_BYTES)
        );
    }

    proptest! {
        #[test]
        fn whatever_a_container_writes_the_message_is_short(bytes in prop::collection::vec(any::<u8>(), 0..9000), was_cut: bool) {
            let tail = LogTail { bytes, cut: was_cut };
            let cri = LogTail { bytes: [AT.as_bytes(), b" stdout F ", &tail.bytes].concat(), cut: false };
            prop_assert!(from_file(&tail).len() <= MAX_MESSAGE_BYTES);
            prop_assert!(from_log(&cri).len() <= MAX_LOG_FALLBACK_BYTES);
        }
    }
}
