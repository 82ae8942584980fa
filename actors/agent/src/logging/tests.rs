//! What is shown of records, where, and in which form.

use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::time::Duration;

use config::VModule;
use jiff::tz::TimeZone;

use super::*;

fn pipe() -> (PipeReader, LogStream) {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = File::from(OwnedFd::from(writer));
    (reader, LogStream::new(file, Duration::ZERO))
}

fn log(filter: LogFilter, form: LogForm, streams: LogStreams) -> AgentLog {
    AgentLog {
        filter,
        format: LogFormat {
            form,
            zone: TimeZone::UTC,
            pid: 7,
        },
        streams,
    }
}

fn read(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

/// The lines that are shown of a record of each level, without their stamps.
fn shown(verbosity: u32, modules: &[VModule], directives: &str) -> Vec<&'static str> {
    let (reader, stream) = pipe();
    let directives = Directives::parse(directives);
    let filter = LogFilter::new(verbosity, modules, directives);
    let log = log(filter, LogForm::Json, LogStreams::one(stream));
    tracing::subscriber::with_default(log, || {
        tracing::error!("error");
        tracing::warn!("warn");
        tracing::info!("info");
        tracing::debug!("debug");
        tracing::trace!("trace");
        tracing::error!(target: "kube_client::client", "decoding");
        tracing::warn!(target: "kube_client::client", "a secret");
        tracing::trace_span!("span").in_scope(|| ());
    });
    let text = read(reader);
    let words = [
        "error", "warn", "info", "debug", "trace", "decoding", "a secret",
    ];
    let is_shown = |word: &&str| text.contains(&format!("\"msg\":\"{word}\""));
    let shown: Vec<_> = words.into_iter().filter(is_shown).collect();
    assert_eq!(text.lines().count(), shown.len(), "{text}");
    shown
}

#[test]
fn a_record_is_shown_from_its_verbosity_on() {
    let all = ["error", "warn", "info", "debug", "trace", "decoding"];
    let up_to = |shown: &[&'static str]| [shown, &["decoding"]].concat();
    for verbosity in [0, 1, 2, 3] {
        assert_eq!(shown(verbosity, &[], ""), up_to(&all[..3]), "{verbosity}");
    }
    assert_eq!(shown(4, &[], ""), up_to(&all[..4]));
    for verbosity in [5, 10, u32::MAX] {
        assert_eq!(shown(verbosity, &[], ""), all, "{verbosity}");
    }
}

#[test]
fn a_module_has_a_verbosity_of_its_own() {
    let module = |pattern: &str, verbosity| {
        [VModule {
            file_pattern: pattern.to_owned(),
            verbosity,
        }]
    };
    let debug = ["error", "warn", "info", "debug", "decoding"];
    let trace = ["error", "warn", "info", "debug", "trace", "decoding"];
    let info = ["error", "warn", "info", "decoding"];
    assert_eq!(shown(0, &module("tests", 4), ""), debug);
    assert_eq!(shown(0, &module("te*", 5), ""), trace);
    assert_eq!(shown(0, &module("pleg", 9), ""), info);
    assert_eq!(
        shown(5, &module("tests", 0), ""),
        trace,
        "as klog: never less"
    );
}

#[test]
fn the_environment_overrules_verbosities_by_module() {
    let here = module_path!();
    let rows: [(String, &[&str]); 6] = [
        ("warn".to_owned(), &["error", "warn", "decoding"]),
        (
            format!("{here}=debug,error"),
            &["error", "warn", "info", "debug", "decoding"],
        ),
        (
            "agent=trace,agent::logging=error".to_owned(),
            &["error", "decoding"],
        ),
        (
            "agent::log=trace,warn".to_owned(),
            &["error", "warn", "decoding"],
        ),
        (
            "trace".to_owned(),
            &["error", "warn", "info", "debug", "trace", "decoding"],
        ),
        ("off".to_owned(), &[]),
    ];
    for (directives, expected) in rows {
        assert_eq!(shown(0, &[], &directives), expected, "{directives}");
    }
    for malformed in ["", "loud", "agent=loud", "info,,debug"] {
        assert_eq!(Directives::parse(malformed), None, "{malformed}");
    }
}

#[test]
fn a_field_may_have_the_name_of_the_message() {
    let (reader, stream) = pipe();
    let filter = LogFilter::new(0, &[], None);
    let log = log(filter, LogForm::Text, LogStreams::one(stream));
    tracing::subscriber::with_default(log, || {
        let message = "Stick";
        tracing::error!(actor = %"a", message, "it hangs");
    });
    let line = read(reader);
    assert!(
        line.ends_with("] \"it hangs\" actor=\"a\" message=\"Stick\"\n"),
        "{line}"
    );
}

#[test]
fn a_panic_is_a_record_like_any_other() {
    let (reader, stream) = pipe();
    let filter = LogFilter::new(0, &[], None);
    let log = log(filter, LogForm::Json, LogStreams::one(stream));
    panics::log_panics();
    let caught = tracing::subscriber::with_default(log, || {
        std::panic::catch_unwind(|| panic!("out of {}", "words"))
    });
    drop(std::panic::take_hook());
    assert!(caught.is_err());
    let record: serde_json::Value = serde_json::from_str(&read(reader)).unwrap();
    assert_eq!(record["msg"], "panicked: out of words");
    let location = record["location"].as_str().unwrap();
    assert!(location.contains("logging/tests.rs:"), "{location}");
}

/// Upstream's TestZapLoggerStreams, and its splitting of klog's text.
#[test]
fn a_split_stream_takes_what_is_no_error_elsewhere() {
    let both = |streams: fn(LogStream, LogStream) -> LogStreams, form| {
        let ((errors, to_errors), (rest, to_rest)) = (pipe(), pipe());
        let filter = LogFilter::new(0, &[], None);
        let log = log(filter, form, streams(to_errors, to_rest));
        tracing::subscriber::with_default(log, || {
            tracing::error!("bad");
            tracing::warn!("worse");
            tracing::info!("good");
        });
        [read(errors), read(rest)].map(|text| text.lines().count())
    };
    assert_eq!(both(LogStreams::errors_apart, LogForm::Json), [1, 2]);
    assert_eq!(both(LogStreams::warnings_apart, LogForm::Text), [2, 1]);
}

#[test]
fn lines_that_were_lost_are_told_of_in_the_form_of_the_log() {
    let (mut reader, stream) = pipe();
    let filter = LogFilter::new(0, &[], None);
    let log = log(filter, LogForm::Json, LogStreams::one(stream));
    let filling = "x".repeat(4000);
    tracing::subscriber::with_default(log, || {
        for _ in 0..20 {
            tracing::info!("{filling}");
        }
        let mut taken = vec![0; 60_000];
        reader.read_exact(&mut taken).unwrap();
        tracing::error!("after");
    });
    let text = read(reader);
    let lines: Vec<&str> = text.lines().collect();
    let [.., notice, after] = lines.as_slice() else {
        panic!("{text}");
    };
    assert!(
        notice.contains("\"caller\":\"logging/subscriber.rs:"),
        "{notice}"
    );
    assert!(
        notice.contains("\"msg\":\"lines of the log are lost: "),
        "{notice}"
    );
    assert!(notice.contains("\"v\":0,\"lines\":"), "{notice}");
    assert!(after.contains("\"msg\":\"after\""), "{after}");
}
