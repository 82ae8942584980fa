//! `/containerLogs/`.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::{Rig, SOON, open, run};

fn log(rig: &Rig, text: &str) -> PathBuf {
    let folder = rig.folder.path().join("pods");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("0.log");
    fs::write(&path, text).unwrap();
    rig.node
        .logs
        .borrow_mut()
        .insert("id-c".into(), path.clone());
    path
}

fn lines(range: std::ops::Range<usize>) -> String {
    let line = |n| format!("2026-01-01T00:00:{:02}.5Z stdout F line {n}\n", n % 60);
    range.map(line).collect()
}

/// Upstream's TestContainerLogs, ...WithTail, ...WithLegacyTail, ...WithTailAll, ...WithInvalidTail, ...WithFollow.
#[test]
fn logs_are_cut_to_what_was_asked_for() {
    run(open, async |rig: Rig| {
        log(&rig, &lines(0..5));
        let all: String = (0..5).map(|n| format!("line {n}\n")).collect();
        let cases = [
            ("", all.as_str()),
            ("?tailLines=2", "line 3\nline 4\n"),
            ("?tail=1", "line 4\n"),
            ("?tail=all&tailLines=1", &all),
            ("?tailLines=0", ""),
            ("?limitBytes=9", "line 0\nli"),
            ("?sinceTime=2026-01-01T00:00:03Z", "line 3\nline 4\n"),
            ("?sinceTime=2026-01-01T02:00:04%2B02:00", "line 4\n"),
            (
                "?timestamps=true&tailLines=1",
                "2026-01-01T00:00:04.500000000Z line 4\n",
            ),
            ("?stream=All", &all),
        ];
        for (query, expected) in cases {
            let told = rig.ask(&format!("GET /containerLogs/ns/p/c{query}")).await;
            assert_eq!(
                (told.status, told.body.as_str()),
                (200, expected),
                "{query}"
            );
            assert!(
                told.head
                    .to_ascii_lowercase()
                    .contains("transfer-encoding: chunked")
            );
        }
    });
}

/// The log's lines with their streams, the query, and the answer's status and text.
type StreamRow<'a> = (&'a [(&'a str, &'a str)], &'a str, u16, &'a str);

/// Upstream's TestContainerLogsWithSeparateStream.
#[test]
fn one_stream_is_shown_where_the_gate_is_on() {
    let split = |policy: &mut crate::policy::Policy| {
        open(policy);
        policy.paths.split_streams = true;
    };
    run(split, async |rig: Rig| {
        let write = |lines: &[(&str, &str)]| {
            let line = |(stream, text): &(&str, &str)| {
                format!("2026-01-01T00:00:00.5Z {stream} F {text}\n")
            };
            log(&rig, &lines.iter().map(line).collect::<String>());
        };
        let (one, mixed) = (
            [("stdout", "foo"), ("stderr", "bar")],
            [("stdout", "out1"), ("stderr", "err1"), ("stdout", "out2")],
        );
        let errors_first = [("stderr", "err1"), ("stderr", "err2"), ("stdout", "out1")];
        let both = [
            ("stderr", "err1"),
            ("stdout", "out1"),
            ("stderr", "err2"),
            ("stdout", "out2"),
        ];
        let invalid = "{\"message\": \"Invalid request.\"}";
        let rows: [StreamRow<'_>; 9] = [
            (&one, "", 200, "foo\nbar\n"),
            (&one, "?limitBytes=100", 200, "foo\nbar\n"),
            (&mixed, "?stream=Stdout", 200, "out1\nout2\n"),
            (&errors_first, "?stream=Stderr", 200, "err1\nerr2\n"),
            (&mixed, "?stream=All", 200, "out1\nerr1\nout2\n"),
            (&mixed, "?stream=All&tail=1", 200, "out2\n"),
            (&mixed, "?stream=All&tailLines=2", 200, "err1\nout2\n"),
            (&both, "?stream=Stdout&limitBytes=6", 200, "out1\no"),
            (&one, "?stream=invalid", 422, invalid),
        ];
        for (lines, query, status, expected) in rows {
            write(lines);
            let told = rig.ask(&format!("GET /containerLogs/ns/p/c{query}")).await;
            assert_eq!(
                (told.status, told.body.as_str()),
                (status, expected),
                "{query}"
            );
        }
    });
}

#[test]
fn what_cannot_be_shown_is_refused_in_upstreams_words() {
    run(open, async |rig: Rig| {
        log(&rig, &lines(0..5));
        let (unreadable, invalid) = (
            "{\"message\": \"Unable to decode query.\"}",
            "{\"message\": \"Invalid request.\"}",
        );
        let gate = "unable to return the given log stream: \"Stdout\". Please enable PodLogsQuerySplitStreams feature gate in kubelet";
        let cases = [
            ("?tailLines=x", 400, unreadable),
            ("?sinceTime=x", 400, unreadable),
            ("?tail=-1", 422, invalid),
            ("?tailLines=-1", 422, invalid),
            ("?limitBytes=0", 422, invalid),
            ("?sinceSeconds=0", 422, invalid),
            (
                "?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
                422,
                invalid,
            ),
            ("?stream=x", 422, invalid),
            ("?stream=Stdout", 400, gate),
            (
                "?previous=true",
                400,
                "previous terminated container \"c\" in pod \"p\" not found",
            ),
        ];
        for (query, status, text) in cases {
            let told = rig.ask(&format!("GET /containerLogs/ns/p/c{query}")).await;
            assert_eq!((told.status, told.body.as_str()), (status, text), "{query}");
        }
        let cases = [
            (
                "/containerLogs/ns/nope/c",
                404,
                "pod \"nope\" does not exist",
            ),
            ("/containerLogs/nope/p/c", 404, "pod \"p\" does not exist"),
            (
                "/containerLogs/ns/p/nope",
                404,
                "container \"nope\" not found in pod \"p\"",
            ),
            (
                "/containerLogs/ns/p/other",
                400,
                "container \"other\" in pod \"p\" is not available",
            ),
        ];
        for (path, status, text) in cases {
            let told = rig.ask(&format!("GET {path}")).await;
            assert_eq!((told.status, told.body.as_str()), (status, text), "{path}");
        }
    });
}

#[test]
fn missing_log_says_so_where_the_log_would_be() {
    run(open, async |rig: Rig| {
        let told = rig.ask("GET /containerLogs/ns/p/c").await;
        let text = "unable to retrieve container logs for id-c";
        assert_eq!((told.status, told.body.as_str()), (200, text));
        let path = log(&rig, "");
        fs::remove_file(path).unwrap();
        let told = rig.ask("GET /containerLogs/ns/p/c").await;
        assert!(
            told.body.starts_with("failed to open log file"),
            "{}",
            told.body
        );
    });
}

/// As a pod with the folder of all logs as a hostPath volume can make it.
#[test]
fn a_log_that_is_a_link_is_named_and_not_shown() {
    run(open, async |rig: Rig| {
        let path = log(&rig, "");
        let secret = path.with_file_name("secret");
        fs::write(&secret, "2016-10-06T00:17:09Z stdout F root:x:0\n").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let told = rig.ask("GET /containerLogs/ns/p/c").await;
        let start = format!("failed to open log file {path:?}: ");
        assert!(told.body.starts_with(&start), "{}", told.body);
        assert!(!told.body.contains("root:x:0"), "{}", told.body);
    });
}

/// Upstream's TestReadRotatedLog, over the wire and with many readers.
#[test]
fn ten_readers_follow_ten_thousand_lines_over_two_rotations() {
    run(open, async |rig: Rig| {
        let path = log(&rig, &lines(0..10));
        let mut readers = Vec::new();
        for _ in 0..10 {
            let mut stream = rig.connect(None).await;
            let ask = b"GET /containerLogs/ns/p/c?follow=true HTTP/1.0\r\n\r\n";
            stream.write_all(ask).await.unwrap();
            readers.push((stream, Vec::new()));
        }
        // Headers may come before the file is opened; its lines can't.
        for (reader, bytes) in &mut readers {
            while !bytes.ends_with(b"line 9\n") {
                let read = tokio::time::timeout(SOON, reader.read_buf(bytes));
                assert!(read.await.expect("what is there").unwrap() > 0);
            }
        }
        let append = |text: &str| {
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        for n in (10..5000).step_by(499) {
            append(&lines(n..(n + 499).min(5000)));
            tokio::task::yield_now().await;
        }
        fs::rename(&path, path.with_extension("log.20260101-000000")).unwrap();
        fs::write(&path, lines(5000..5100)).unwrap();
        fs::rename(&path, path.with_extension("log.20260101-000001")).unwrap();
        fs::write(&path, lines(5100..5200)).unwrap();
        append(&lines(5200..10_000));
        rig.node.stopped.set(true);
        let expected: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        for (mut reader, mut bytes) in readers {
            let read = tokio::time::timeout(SOON, reader.read_to_end(&mut bytes));
            drop(read.await.expect("the container has ended"));
            let text = String::from_utf8(bytes).unwrap();
            let body = text.split_once("\r\n\r\n").unwrap().1;
            assert_eq!(body.len(), expected.len());
            assert!(body == expected, "every line once, in order");
        }
    });
}

#[test]
fn whoever_leaves_is_not_read_for() {
    run(open, async |rig: Rig| {
        log(&rig, &lines(0..3));
        let mut stream = rig.connect(None).await;
        stream
            .write_all(b"GET /containerLogs/ns/p/c?follow=1 HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 64];
        assert!(stream.read(&mut first).await.unwrap() > 0);
        let labels = ["GET", "containerLogs", "readwrite", "false"];
        let gone = async || {
            while metrics::api::http::INFLIGHT
                .with_label_values(&labels)
                .get()
                > 0.0
            {
                kernel::testing::pass(std::time::Duration::from_millis(20)).await;
            }
        };
        assert!(
            metrics::api::http::INFLIGHT
                .with_label_values(&labels)
                .get()
                > 0.0
        );
        drop(stream);
        tokio::time::timeout(SOON, gone()).await.unwrap();
    });
}
