//! Lines against those of the kubelet.

use jiff::Timestamp;

use super::*;
use crate::logging::record::{Caller, FieldValue, Severity};

fn text(value: &str) -> FieldValue {
    FieldValue::Text(value.to_owned())
}

fn number(value: i32) -> FieldValue {
    FieldValue::Literal(value.to_string())
}

fn record(message: &str, fields: &[(&'static str, FieldValue)]) -> LogRecord<'static> {
    LogRecord {
        at: Timestamp::from_nanosecond(123).unwrap(),
        severity: Severity::Info,
        verbosity: 0,
        caller: Caller {
            path: "k8s.io/component-base/logs/json/json_test.go",
            line: 9,
        },
        message: message.to_owned(),
        fields: fields.to_vec(),
        error: None,
    }
}

fn line(form: LogForm, record: &LogRecord<'_>) -> String {
    let format = LogFormat {
        form,
        zone: TimeZone::UTC,
        pid: 5,
    };
    format.line(record)
}

/// Upstream's TestZapLoggerInfo, TestZapLoggerV and TestZapLoggerError; the cases of Go's untyped arguments and of
/// named loggers have nothing here that they could be.
#[test]
fn a_line_of_json_is_that_of_the_kubelet() {
    let start = r#"{"ts":0.000123,"caller":"json/json_test.go:9""#;
    let rows = [
        (
            record("test", &[("ns", text("default")), ("podnum", number(2))]),
            r#","msg":"test","v":0,"ns":"default","podnum":2}"#,
        ),
        (
            record(
                "test for duration value argument",
                &[("duration", text("5s"))],
            ),
            r#","msg":"test for duration value argument","v":0,"duration":"5s"}"#,
        ),
        (
            record(
                "test for duplicate keys",
                &[("akey", text("avalue")), ("akey", text("anothervalue"))],
            ),
            r#","msg":"test for duplicate keys","v":0,"akey":"avalue","akey":"anothervalue"}"#,
        ),
        (
            LogRecord {
                verbosity: 10,
                ..record("test", &[("time", text("1µs"))])
            },
            r#","msg":"test","v":10,"time":"1µs"}"#,
        ),
        (
            LogRecord {
                severity: Severity::Error,
                error: Some("invalid namespace:default".to_owned()),
                ..record("wrong namespace", &[("ns", text("default"))])
            },
            r#","msg":"wrong namespace","ns":"default","err":"invalid namespace:default"}"#,
        ),
        (
            LogRecord {
                severity: Severity::Warning,
                ..record(
                    "two\nlines \"quoted\"",
                    &[("is", FieldValue::Literal("true".to_owned()))],
                )
            },
            r#","msg":"two\nlines \"quoted\"","v":0,"is":true}"#,
        ),
    ];
    for (record, rest) in rows {
        assert_eq!(line(LogForm::Json, &record), format!("{start}{rest}\n"));
    }
}

#[test]
fn a_time_of_json_is_in_milliseconds_with_the_fraction_that_there_is() {
    let rows = [
        (1_580_306_777_047_280_000, "1580306777047.28"),
        (1_580_306_777_047_000_000, "1580306777047"),
        (1_580_306_777_000_000_001, "1580306777000.000001"),
        (0, "0"),
    ];
    for (nanos, expected) in rows {
        let record = LogRecord {
            at: Timestamp::from_nanosecond(nanos).unwrap(),
            ..record("", &[])
        };
        let line = line(LogForm::Json, &record);
        assert!(line.starts_with(&format!("{{\"ts\":{expected},")), "{line}");
    }
}

/// The forms of klog's own tests (`TestInfoS`, `TestErrorS`, `TestKvListFormat`) and lines as a kubelet writes them.
#[test]
fn a_line_of_text_is_that_of_the_kubelet() {
    let at = Timestamp::from_nanosecond(1_136_214_245_067_890_000).unwrap();
    let klog =
        |severity, message, fields: &[(&'static str, FieldValue)], error: Option<&str>| LogRecord {
            at,
            severity,
            caller: Caller {
                path: "pkg/kubelet/kubelet.go",
                line: 1234,
            },
            error: error.map(str::to_owned),
            ..record(message, fields)
        };
    let pod = ("pod", text("kubedns"));
    let rows = [
        (
            klog(Severity::Info, "test", std::slice::from_ref(&pod), None),
            r#"I0102 15:04:05.067890       5 kubelet.go:1234] "test" pod="kubedns""#,
        ),
        (
            klog(
                Severity::Info,
                "test",
                &[("replicaNum", number(20)), pod.clone()],
                None,
            ),
            r#"I0102 15:04:05.067890       5 kubelet.go:1234] "test" replicaNum=20 pod="kubedns""#,
        ),
        (
            klog(
                Severity::Error,
                "Failed to update pod status",
                std::slice::from_ref(&pod),
                Some("update status failed"),
            ),
            r#"E0102 15:04:05.067890       5 kubelet.go:1234] "Failed to update pod status" err="update status failed" pod="kubedns""#,
        ),
        (
            klog(
                Severity::Warning,
                "two\nlines",
                &[("a", text("\"\\\t\u{1}\u{a0}é\u{301}"))],
                None,
            ),
            r#"W0102 15:04:05.067890       5 kubelet.go:1234] "two\nlines" a="\"\\\t\x01\u00a0é"#,
        ),
        (
            klog(
                Severity::Info,
                "multi",
                &[
                    ("text", text("one\ntwo")),
                    ("is", FieldValue::Literal("true".to_owned())),
                ],
                None,
            ),
            "I0102 15:04:05.067890       5 kubelet.go:1234] \"multi\" text=<\n\tone\n\ttwo\n > is=true",
        ),
        (
            klog(Severity::Info, "multi", &[("text", text("one\n"))], None),
            "I0102 15:04:05.067890       5 kubelet.go:1234] \"multi\" text=<\n\tone\n >",
        ),
    ];
    for (record, expected) in rows {
        let line = line(LogForm::Text, &record);
        let expected = match expected.ends_with('é') {
            true => format!("{expected}\u{301}\"\n"),
            false => format!("{expected}\n"),
        };
        assert_eq!(line, expected);
    }
}

#[test]
fn text_is_stamped_by_the_nodes_clock() {
    let tokyo = TimeZone::fixed(jiff::tz::offset(9));
    let format = LogFormat {
        form: LogForm::Text,
        zone: tokyo,
        pid: 1_234_567,
    };
    let line = format.line(&record("", &[]));
    assert!(
        line.starts_with("I0101 09:00:00.000000 1234567 json_test.go:9] \"\""),
        "{line}"
    );
}

#[test]
fn a_person_reads_words_and_no_quotes_and_nothing_moves_the_cursor() {
    let warning = LogRecord {
        severity: Severity::Warning,
        error: Some("no room".to_owned()),
        ..record(
            "it\u{1b}[2J is full",
            &[("pod", text("a/b")), ("left", number(3))],
        )
    };
    let plain =
        "00:00:00 WARN  it\\u{1b}[2J is full  error=\"no room\"  pod=a/b  left=3  json_test.go:9\n";
    assert_eq!(line(LogForm::Terminal(Colours::None), &warning), plain);
    let coloured = line(LogForm::Terminal(Colours::BySeverity), &warning);
    assert!(
        coloured.starts_with("00:00:00 \u{1b}[33mWARN \u{1b}[0m it"),
        "{coloured}"
    );
    assert!(
        coloured.ends_with("\u{1b}[2mjson_test.go:9\u{1b}[0m\n"),
        "{coloured}"
    );
}

#[test]
fn a_caller_is_a_file_a_module_and_a_folder() {
    let rows = [
        (
            "actors/pods/src/runtime/pleg.rs",
            "pleg.rs",
            "runtime/pleg.rs",
            "pleg",
        ),
        (
            "actors/agent/src/tree/mod.rs",
            "tree/mod.rs",
            "tree/mod.rs",
            "tree",
        ),
        ("main.rs", "main.rs", "main.rs", "main"),
        ("src/main.rs", "main.rs", "src/main.rs", "main"),
    ];
    for (path, file, file_in_folder, module) in rows {
        let caller = Caller { path, line: 1 };
        assert_eq!(
            (caller.file(), caller.file_in_folder(), caller.module()),
            (file, file_in_folder, module)
        );
    }
}
