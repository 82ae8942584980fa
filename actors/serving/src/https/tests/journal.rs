//! The logs of services.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};

use flate2::read::GzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::{Rig, SOON, open, run};
use crate::policy::Policy;

/// Says which services it knows, and does the rest of its text for everything else.
const KNOWS: &str = "#!/bin/sh\nif [ \"$1\" = --field ]; then echo init.scope; echo foo.service; echo bar@1.service; exit; fi\n";

fn queried(policy: &mut Policy) {
    open(policy);
    policy.paths.log_query = true;
}

impl Rig {
    /// Has a journalctl that does this once it knows what is asked for.
    fn journalctl(&self, script: &str) {
        let path = self.folder.path().join("journalctl");
        fs::write(&path, format!("{KNOWS}{script}")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// Upstream's Test_getLoggingCmd, from the request on.
#[test]
fn services_are_shown_by_journalctl() {
    run(queried, async |rig: Rig| {
        rig.journalctl("for word in \"$@\"; do echo \"[$word]\"; done; echo complaint >&2");
        let line = "GET /logs/?query=foo&query=bar@1&tailLines=3&pattern=a%20%24%28b%29&boot=-1&sinceTime=2026-01-02T03:04:05Z";
        let told = rig.ask(line).await;
        assert_eq!(told.status, 200, "{told:?}");
        let kind = "content-type: text/plain;charset=UTF-8";
        assert!(told.head.contains(kind), "{}", told.head);
        let expected = "[--utc]\n[--no-pager]\n[--output=short-precise]\n[--since=2026-1-2 3:4:5]\n[--pager-end]\n[--lines=3]\n[--unit=foo]\n[--unit=bar@1]\n[--grep=a $(b)]\n[--boot]\n[-1]\ncomplaint\n";
        assert_eq!(told.body, expected);
        rig.journalctl("exit 3");
        let told = rig.ask("GET /logs/?query=foo").await;
        assert_eq!((told.status, told.body.as_str()), (200, ""));
    });
}

#[test]
fn wrong_and_hostile_queries_run_nothing() {
    run(queried, async |rig: Rig| {
        let ran = rig.folder.path().join("ran");
        let path = rig.folder.path().join("journalctl");
        fs::write(&path, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let name = "input contains unsupported characters";
        for (path, status, words) in [
            (
                "/logs/?query=",
                400,
                "query: Invalid value: []string{\"\"}: query cannot be empty\n",
            ),
            (
                "/logs/?query=foo&boot=x",
                400,
                "strconv.Atoi: parsing \"x\": invalid syntax\n",
            ),
            (
                "/logs/?query=foo&sinceTime=noon",
                400,
                "invalid time format\n",
            ),
            ("/logs/x?query=foo", 406, "path not allowed in query mode\n"),
            (
                "/logs/?tailLines=1",
                406,
                "query: Required value: cannot be empty with options\n",
            ),
            (
                "/logs/?query=foo&tailLines=100001",
                406,
                "must be between 0 and 100000, inclusive\n",
            ),
            (
                "/logs/?query=foo&pattern=%28",
                406,
                "missing closing ): `(`\n",
            ),
            (
                "/logs/?query=a&query=b&query=c&query=d&query=e",
                406,
                "must have at most 4 items\n",
            ),
            ("/logs/?query=foo%0a--file=x", 406, name),
            ("/logs/?query=%24%28touch+ran%29", 406, name),
            ("/logs/?query=foo%00", 406, name),
            ("/logs/?query=foo%3Btouch+ran", 406, name),
            ("/logs/?query=--file%3Dx", 406, name),
            (
                "/logs/?query=foo&query=/bar",
                406,
                "cannot specify a file and service",
            ),
            ("/logs/../?query=foo", 400, ""),
        ] {
            let told = rig.ask(&format!("GET {path}")).await;
            assert!(
                told.status == status && told.body.contains(words),
                "{path}: {told:?}"
            );
        }
        assert!(!ran.exists());
        assert_eq!(rig.ask("POST /logs/?query=foo").await.status, 405);
    });
}

/// Upstream's Test_heuristicsCopyFileLogs.
#[test]
fn services_that_write_their_own_files_are_shown_from_them() {
    run(queried, async |rig: Rig| {
        let logs = rig.folder.path().join("log");
        let missing = "\nlog not found for own\n";
        assert_eq!(rig.ask("GET /logs/?query=own").await.body, missing);
        fs::create_dir(logs.join("own")).unwrap();
        assert_eq!(rig.ask("GET /logs/?query=own").await.body, missing);
        fs::write(logs.join("own/own.log"), "inner\n").unwrap();
        assert_eq!(rig.ask("GET /logs/?query=own").await.body, "inner\n");
        fs::write(logs.join("own.log"), "outer\n").unwrap();
        assert_eq!(rig.ask("GET /logs/?query=own").await.body, "outer\n");
        assert_eq!(rig.ask("GET /logs/?query=own.log").await.body, "outer\n");
        let options = rig.ask("GET /logs/?query=own&query=b&boot=0").await;
        let text = "\noptions present and query resolved to log files for [own b]\ntry without specifying options\n";
        assert_eq!((options.status, options.body.as_str()), (200, text));

        rig.journalctl("echo native");
        let told = rig.ask("GET /logs/?query=own&query=foo").await;
        assert_eq!(told.body, "native\nouter\n");

        fs::write(rig.folder.path().join("secret"), "secret").unwrap();
        symlink("../secret", logs.join("out.log")).unwrap();
        for (name, text) in [
            ("out", "\nlog not found for out\n"),
            ("..", "\nlog not found for ..\n"),
        ] {
            let told = rig.ask(&format!("GET /logs/?query={name}")).await;
            assert_eq!((told.status, told.body.as_str()), (200, text));
        }
    });
}

#[test]
fn file_of_a_query_is_one_beneath_the_folder() {
    run(queried, async |rig: Rig| {
        let logs = rig.folder.path().join("log");
        fs::create_dir(logs.join("a")).unwrap();
        fs::write(logs.join("a/b.log"), "inside\n").unwrap();
        fs::write(rig.folder.path().join("secret"), "secret").unwrap();
        for path in ["/a/b.log", "a/b.log", "/../a/b.log", "/./a//b.log"] {
            let told = rig.ask(&format!("GET /logs/?query={path}")).await;
            assert_eq!(
                (told.status, told.body.as_str()),
                (200, "inside\n"),
                "{path}"
            );
        }
        assert!(rig.ask("GET /logs/?query=/a").await.body.contains("b.log"));
        for path in ["/../secret", "/nope", "\\nope"] {
            let told = rig.ask(&format!("GET /logs/?query={path}")).await;
            let inner = path.trim_start_matches("/../").trim_start_matches('/');
            let why = format!(
                "stat {}: no such file or directory\n",
                logs.join(inner).display()
            );
            assert!(
                told.status == 406 && told.body.ends_with(&why),
                "{path}: {told:?}"
            );
        }
    });
}

#[test]
fn big_output_comes_whole_and_packed_where_it_is_wanted() {
    run(queried, async |rig: Rig| {
        rig.journalctl("exec head -c 20000000 /dev/zero");
        let told = rig.ask("GET /logs/?query=foo").await;
        assert_eq!(told.body.len(), 20_000_000);
        let mut stream = rig.connect(None).await;
        let ask = b"GET /logs/?query=foo HTTP/1.0\r\naccept-encoding: gzip\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
        drop(read.unwrap());
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        assert!(head.contains("content-encoding: gzip"), "{head}");
        let mut unpacked = Vec::new();
        let mut unpacking = GzDecoder::new(&bytes[end + 4..]);
        unpacking.read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked.len(), 20_000_000);
    });
}

#[test]
fn journalctl_ends_with_whoever_asked_and_there_are_not_too_many() {
    run(queried, async |rig: Rig| {
        rig.journalctl("echo begun $$; exec sleep 1000");
        let mut callers = Vec::new();
        for _ in 0..8 {
            let mut caller = rig.connect(None).await;
            let ask = b"GET /logs/?query=foo HTTP/1.1\r\nhost: x\r\n\r\n";
            caller.write_all(ask).await.unwrap();
            let mut said = String::new();
            while !said.trim_end().ends_with(|c: char| c.is_ascii_digit())
                || !said.contains("begun")
            {
                let mut piece = [0; 1024];
                let read = tokio::time::timeout(SOON, caller.read(&mut piece)).await;
                said.push_str(&String::from_utf8_lossy(&piece[..read.unwrap().unwrap()]));
            }
            let (_, pid) = said.split_once("begun ").unwrap();
            let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
            let alive: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            callers.push((caller, alive));
        }
        assert_eq!(rig.ask("GET /logs/?query=foo").await.status, 429);
        for (caller, alive) in callers {
            drop(caller);
            let ended = kernel::spawn_blocking(move || {
                let mut watched = [PollFd::new(&alive, PollFlags::IN)];
                let within = Timespec::try_from(SOON).unwrap();
                poll(&mut watched, Some(&within)).unwrap()
            });
            assert_eq!(ended.await.unwrap(), 1, "it ends");
        }
    });
}

#[test]
fn queries_are_no_queries_where_the_operator_wants_none() {
    run(open, async |rig: Rig| {
        fs::write(rig.folder.path().join("log/a.log"), "a").unwrap();
        let told = rig.ask("GET /logs/?query=foo").await;
        assert!(
            told.status == 200 && told.body.contains("a.log"),
            "{told:?}"
        );
        assert_eq!(rig.ask("GET /logs/a.log?query=foo").await.body, "a");
    });
}
