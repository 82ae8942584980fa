//! `/logs/`: files and folders.

use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use super::rig::{Rig, open, run};

const CHANGED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// Writes what changed then.
fn write(rig: &Rig, path: &str, bytes: &[u8]) {
    let path = rig.folder.path().join("log").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    let then = UNIX_EPOCH + Duration::from_millis(1_767_225_600_500);
    let file = File::options().append(true).open(&path).unwrap();
    file.set_modified(then).unwrap();
}

/// Upstream's TestServeLogs.
#[test]
fn system_logs_are_files_beneath_their_folder() {
    run(open, async |rig: Rig| {
        let logs = rig.folder.path().join("log");
        fs::create_dir_all(logs.join("pods/a b")).unwrap();
        fs::write(logs.join("kubelet.log"), "line\n".repeat(100_000)).unwrap();
        fs::write(logs.join("<x>"), "").unwrap();
        fs::write(rig.folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", logs.join("out")).unwrap();
        std::os::unix::fs::symlink("/etc", logs.join("etc")).unwrap();
        std::os::unix::fs::symlink(logs.join("kubelet.log"), logs.join("in")).unwrap();
        let told = rig.ask("GET /logs/").await;
        assert!(told.head.contains("text/html"), "{}", told.head);
        for entry in [
            "<a href=\"kubelet.log\">kubelet.log</a>",
            "<a href=\"pods/\">pods/</a>",
            "<a href=\"%3Cx%3E\">&lt;x&gt;</a>",
        ] {
            assert!(told.body.contains(entry), "{entry} in {}", told.body);
        }
        let told = rig.ask("GET /logs/kubelet.log").await;
        assert_eq!((told.status, told.body.len()), (200, 500_000));
        assert_eq!(rig.ask("GET /logs/in").await.body.len(), 500_000);
        assert_eq!(rig.ask("GET /logs/pods/a%20b/").await.status, 200);
        for (path, status) in [
            ("/logs/nope", 404),
            ("/logs/out", 404),
            ("/logs/etc/passwd", 404),
            ("/logs/etc", 404),
            ("/logs/kubelet.log/x", 404),
            ("/logs/../secret", 400),
            ("/logs/%2e%2e/secret", 400),
            ("/logs/..%2Fsecret", 400),
            ("/logs/%2e%2e%2fsecret", 400),
            ("/logs/pods/../../secret", 400),
            ("/logs//etc/passwd", 307),
            ("/logs/%00", 400),
            ("/logs/..\\secret", 400),
        ] {
            let told = rig.ask(&format!("GET {path}")).await;
            assert_eq!(told.status, status, "{path}");
            assert!(
                !told.body.contains("secret\n") && told.body != "secret",
                "{path}"
            );
        }
    });
}

/// Go's TestServeContent.
#[test]
fn part_of_a_log_may_be_asked_for_and_one_that_has_not_changed_is_not_sent() {
    run(open, async |rig: Rig| {
        write(&rig, "a.log", b"0123456789");
        let told = rig.ask("GET /logs/a.log").await;
        for line in [
            format!("last-modified: {CHANGED}"),
            "accept-ranges: bytes".to_owned(),
            "content-length: 10".to_owned(),
            "content-type: text/plain; charset=utf-8".to_owned(),
        ] {
            assert!(told.head.contains(&line), "{line}: {}", told.head);
        }
        let stale = "if-range: Wed, 31 Dec 2025 00:00:00 GMT\r\n";
        let cases = [
            (
                "range: bytes=2-4\r\n",
                206,
                "234",
                "content-range: bytes 2-4/10",
            ),
            ("range: bytes=-3\r\n", 206, "789", "content-length: 3"),
            (
                "range: bytes=0-1,4-5\r\n",
                200,
                "0123456789",
                "content-length: 10",
            ),
            (
                "range: bytes=10-\r\n",
                416,
                "invalid range: failed to overlap\n",
                "content-range: bytes */10",
            ),
            (
                "range: lines=1\r\n",
                416,
                "invalid range\n",
                "content-range: bytes */10",
            ),
            (
                &format!("range: bytes=2-4\r\n{stale}"),
                200,
                "0123456789",
                "",
            ),
            (
                &format!("if-modified-since: {CHANGED}\r\n"),
                304,
                "",
                "last-modified: ",
            ),
            ("if-match: \"x\"\r\n", 412, "", ""),
        ];
        for (headers, status, body, words) in cases {
            let told = rig.ask_as(None, "GET /logs/a.log", headers).await;
            assert_eq!(
                (told.status, told.body.as_str()),
                (status, body),
                "{headers}"
            );
            assert!(told.head.contains(words), "{headers}: {}", told.head);
        }
        let folder = rig.ask("GET /logs/").await;
        let changed = folder.head.split("last-modified: ").nth(1).unwrap();
        let known = format!("if-modified-since: {}\r\n", changed.lines().next().unwrap());
        assert_eq!(rig.ask_as(None, "GET /logs/", &known).await.status, 304);
    });
}

/// Go's TestFSRedirect, TestServeIndexHtml.
#[test]
fn files_and_folders_are_where_their_slashes_say() {
    run(open, async |rig: Rig| {
        write(&rig, "pods/a b/0.log", b"line\n");
        write(&rig, "site/index.html", b"<script>");
        for (line, to) in [
            ("GET /logs/pods", "pods/"),
            ("GET /logs/pods/a%20b?x=y", "a%20b/?x=y"),
            ("GET /logs/pods/a%20b/0.log/", "../0.log"),
            ("GET /logs/site/index.html", "./"),
            ("GET /logs/site", "site/"),
        ] {
            let told = rig.ask(line).await;
            assert_eq!(told.status, 301, "{line}");
            assert!(
                told.head.contains(&format!("location: {to}\r\n")),
                "{}",
                told.head
            );
        }
        let told = rig.ask("GET /logs/site/").await;
        assert_eq!((told.status, told.body.as_str()), (200, "<script>"));
        assert!(
            told.head.contains("content-type: text/plain"),
            "never a page of its own"
        );
        write(&rig, "old.gz", b"\x1f\x8b\x08\0");
        write(&rig, "wtmp", b"\x02\0\0\0");
        for (path, kind) in [
            ("old.gz", "application/x-gzip"),
            ("wtmp", "application/octet-stream"),
        ] {
            let told = rig.ask(&format!("GET /logs/{path}")).await;
            assert!(
                told.head.contains(&format!("content-type: {kind}")),
                "{}",
                told.head
            );
        }
    });
}
