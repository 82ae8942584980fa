//! Terminals, logs that are followed, and many forwarded connections, on containerd.

use std::fs::{self, File};

use integration::cluster::Cluster;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::on_containerd;
use crate::suite::cluster::*;

/// The user's end of a terminal, with a program at the other.
struct Terminal {
    keyboard: tokio::fs::File,
    screen: tokio::fs::File,
    seen: String,
    program: Child,
}

impl Terminal {
    fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let end = name.to_str().unwrap();
        let end = File::options().read(true).write(true).open(end).unwrap();
        let person = File::from(person);
        let terminal = Terminal {
            keyboard: person.try_clone().unwrap().into(),
            screen: person.into(),
            seen: String::new(),
            program: cluster.kubectl_on(&end, arguments).unwrap(),
        };
        terminal.resize(40, 100);
        terminal
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.screen, size).unwrap();
    }

    async fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).await.unwrap();
        self.keyboard.flush().await.unwrap();
    }

    async fn until_shown(&mut self, text: &str) {
        let reading = async {
            let mut bytes = [0; 4096];
            while !self.seen.contains(text) {
                // Fails when the program has left.
                let Ok(read @ 1..) = self.screen.read(&mut bytes).await else {
                    break;
                };
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        };
        drop(tokio::time::timeout(CONVERGENCE_TIMEOUT, reading).await);
        assert!(
            self.seen.contains(text),
            "{text:?} is not in {:?}",
            self.seen
        );
    }

    async fn code(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(CONVERGENCE_TIMEOUT, self.program.wait()).await;
        ended.expect("it ends").unwrap().code()
    }
}

#[tokio::test]
async fn a_terminal_follows_its_windows_size_and_gives_the_exit_code() {
    on_containerd(json!({}), async |cluster| {
        let mut shell = Terminal::kubectl(cluster, &["exec", "-it", "web", "--", "sh"]);
        for (n, (rows, columns)) in [(40, 100), (53, 131)].into_iter().enumerate() {
            shell.resize(rows, columns);
            let size =
                format!("while ! busybox stty size | grep -q '{rows} {columns}'; do :; done");
            // What is typed is shown as well: only the shell makes a sum of it.
            shell
                .type_in(&format!("{size}; echo size-$((n+{n}))-seen\n"))
                .await;
            shell.until_shown(&format!("size-{n}-seen")).await;
        }
        shell.type_in("tty -s; test -t 0 && exit 7\n").await;
        assert_eq!(shell.code().await, Some(7), "{}", shell.seen);
    })
    .await;
}

#[tokio::test]
async fn a_container_is_attached_to_and_one_is_run_for_a_while() {
    on_containerd(json!({}), async |cluster| {
        let mut talker = pod("talker");
        let container = &mut talker["spec"]["containers"][0];
        container["command"] = json!(["sh", "-c", "while read word; do echo heard $word; done"]);
        container["stdin"] = json!(true);
        cluster.apply(&talker).unwrap();
        cluster
            .until_pod("talker", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        for word in ["one", "two"] {
            let mut attached = cluster.kubectl_child(&["attach", "-i", "talker"]).unwrap();
            let mut lines = BufReader::new(attached.stdout.take().unwrap()).lines();
            let mut input = attached.stdin.take().unwrap();
            input
                .write_all(format!("{word}\n").as_bytes())
                .await
                .unwrap();
            let line = tokio::time::timeout(CONVERGENCE_TIMEOUT, lines.next_line())
                .await
                .unwrap();
            assert_eq!(line.unwrap().unwrap(), format!("heard {word}"));
            attached.kill().await.unwrap();
        }
        let image = "--image=localhost/oxlet/busybox:1";
        let script = "echo ready; read word; echo heard $word; exit 3";
        let arguments = [
            "run",
            "once",
            "--rm",
            "-it",
            "--restart=Never",
            image,
            "--",
            "sh",
            "-c",
            script,
        ];
        let mut once = Terminal::kubectl(cluster, &arguments);
        // A client that attaches late sees only later output.
        once.type_in("three\n").await;
        once.until_shown("heard three").await;
        assert_eq!(once.code().await, Some(3), "{}", once.seen);
        cluster
            .until_pod("once", CONVERGENCE_TIMEOUT, Value::is_null)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_log_is_followed_through_rotations_to_its_containers_end_and_read_after_it() {
    let config = json!({ "containerLogMaxSize": "64Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s" });
    on_containerd(config, async |cluster| {
    let padding = "x".repeat(200);
    let script = format!(
        "n=0; while ! test -f /enough; do n=$((n+1)); echo line $n {padding}; busybox usleep 2000; done; \
         echo last $n; exit 1"
    );
    let mut counts = pod("counts");
    counts["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    cluster.apply(&counts).unwrap();
    let running = cluster
        .until_pod("counts", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let mut following = cluster.kubectl_child(&["logs", "-f", "counts"]).unwrap();
    let mut said = String::new();
    let mut output = following.stdout.take().unwrap();
    let folder = format!("default_counts_{}/app", uid(&running));
    let folder = cluster.node.pod_logs().join(folder);
    let rotated_twice = async {
        let rotated = |file: &fs::DirEntry| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.starts_with("0.log.") && !name.ends_with(".tmp")
        };
        let twice = async || {
            let files = fs::read_dir(&folder).into_iter().flatten().flatten();
            // Not about to be rotated once more: the last line alone would be in a file that `--previous` does not show.
            let live = fs::metadata(folder.join("0.log"));
            files.filter(rotated).count() >= 2 && live.is_ok_and(|live| live.len() < 16 << 10)
        };
        let waited = cluster.wait("the log is rotated twice", twice).await;
        waited.unwrap();
        // The container may end before the command in it has.
        let enough = ["exec", "counts", "--", "touch", "/enough"];
        drop(cluster.kubectl(&enough).await.unwrap());
    };
    let (read, ()) = tokio::join!(output.read_to_string(&mut said), rotated_twice);
    read.unwrap();
    assert!(following.wait().await.unwrap().success());
    let lines: Vec<&str> = said.lines().collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!(
        *last,
        format!("last {}", lines.len()),
        "{} lines",
        lines.len()
    );
    for (n, line) in lines.iter().enumerate() {
        assert!(
            line.starts_with(&format!("line {} x", n + 1)),
            "{n}: {line}"
        );
    }
    let restarted = |pod: &Value| restarts(pod) == 1 && is_running(pod);
    cluster
        .until_pod("counts", CONVERGENCE_TIMEOUT, restarted)
        .await
        .unwrap();
    let previous = ["logs", "counts", "--previous", "--tail=1"];
    assert_eq!(cluster.kubectl_ok(&previous).await.unwrap().trim(), *last);
    // Its first lines may have been rotated away already, and nothing have come since.
    let anew = async || {
        let now = cluster.kubectl_ok(&["logs", "counts", "--tail=1"]);
        now.await.unwrap().starts_with("line ")
    };
    cluster.wait("the new one has a log", anew).await.unwrap();
    }).await;
}

#[tokio::test]
async fn many_connections_are_forwarded_both_ways_and_folders_are_copied() {
    on_containerd(json!({}), async |cluster| {
        let echo = [
            "exec",
            "web",
            "--",
            "sh",
            "-c",
            "nc -ll -p 9000 -e cat >/dev/null 2>&1 &",
        ];
        cluster.kubectl_ok(&echo).await.unwrap();
        let mut forwarding = cluster
            .kubectl_child(&["port-forward", "web", ":9000"])
            .unwrap();
        let mut lines = BufReader::new(forwarding.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let (_, rest) = line.split_once("127.0.0.1:").unwrap();
        let port: u16 = rest.split(' ').next().unwrap().parse().unwrap();
        let talk = async |nth: u8| {
            let sent: Vec<u8> = (0..256_000_u32)
                .map(|at| at.to_le_bytes()[0] ^ nth)
                .collect();
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from, mut to) = stream.into_split();
            let mut heard = vec![0; sent.len()];
            let both = async { tokio::join!(to.write_all(&sent), from.read_exact(&mut heard)) };
            let (wrote, read) = tokio::time::timeout(CONVERGENCE_TIMEOUT, both)
                .await
                .unwrap();
            wrote.unwrap();
            read.unwrap();
            assert!(heard == sent, "connection {nth}");
        };
        tokio::join!(talk(1), talk(2), talk(3), talk(4));
        forwarding.kill().await.unwrap();

        let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let sent = cluster.folder().join("sent.pem");
        fs::create_dir_all(sent.join("inner")).unwrap();
        fs::write(sent.join("inner/bytes"), &bytes).unwrap();
        let back = cluster.folder().join("back.pem");
        let (sent, back_to) = (sent.to_str().unwrap(), back.to_str().unwrap());
        cluster
            .kubectl_ok(&["cp", sent, "web:/tmp/copied"])
            .await
            .unwrap();
        cluster
            .kubectl_ok(&["cp", "web:/tmp/copied", back_to])
            .await
            .unwrap();
        assert!(fs::read(back.join("inner/bytes")).unwrap() == bytes);
    })
    .await;
}
