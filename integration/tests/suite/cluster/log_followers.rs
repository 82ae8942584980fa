//! Many follow one log, and the agent takes no more memory for it.

use std::fs::{self, File};
use std::io::Write as _;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use integration::tls;

use super::*;

const CLIENTS: usize = 10;
const LINES: usize = 10_000;
/// What ten connections take, and what the allocator leaves about.
const GROWTH_MIB: f64 = 6.0;

/// The memory that a process has taken for itself: what others map as well comes and goes with them.
fn memory(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse::<f64>().unwrap() / 1024.0
}

/// Asks for the log, and returns the answer's body.
async fn follow(port: u16, may: &apiserver::CertificateWithKey) -> Incoming {
    let stream = tls::connect(port, Some(may)).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get("/containerLogs/default/web/app?follow=true")
        .header("host", "node")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

/// Reads lines up to the last one; each must be the next.
async fn read(mut log: Incoming) {
    let (mut next, mut rest) = (0, String::new());
    while next < LINES {
        let frame = log.frame().await.expect("the log goes on").unwrap();
        rest.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        while let Some((line, more)) = rest.split_once('\n') {
            assert_eq!(line, text(next));
            next += 1;
            rest = more.to_owned();
        }
    }
}

fn text(n: usize) -> String {
    format!("line {n} {}", "of a log that many follow ".repeat(4))
}

/// Writes as a runtime does, in bursts that the readers cannot foresee.
fn write(log: &mut File, lines: std::ops::Range<usize>) {
    let mut all = String::new();
    for n in lines {
        all.push_str(&format!(
            "2026-01-01T00:00:00.000000000Z stdout F {}\n",
            text(n)
        ));
    }
    log.write_all(all.as_bytes()).unwrap();
}

#[tokio::test]
async fn ten_clients_follow_ten_thousand_lines_without_growing_memory() {
    let cluster = started().await;
    cluster.apply(&pod("web")).unwrap();
    let web = cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let path = format!("default_web_{}/app/0.log", uid(&web));
    let path = cluster.node.pod_logs().join(path);
    let mut log = File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    let made = cluster
        .server
        .client_certificate("kubernetes-admin", "system:masters", 600);
    let (may, port) = (made.unwrap(), cluster.node.https_port());
    let pid = cluster.node.pid().unwrap();

    let mut readers = Vec::new();
    for _ in 0..CLIENTS {
        readers.push(tokio::spawn(read(follow(port, &may).await)));
    }
    // A client that does not read costs the agent no memory.
    let sleeper = follow(port, &may).await;
    let (before, mut most) = (memory(pid), 0.0_f64);
    for burst in 0..LINES / 250 {
        write(&mut log, burst * 250..(burst + 1) * 250);
        most = most.max(memory(pid));
        tokio::task::yield_now().await;
    }
    let all = async || {
        most = most.max(memory(pid));
        readers.iter().all(tokio::task::JoinHandle::is_finished)
    };
    cluster.wait("all lines have come", all).await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    drop(sleeper);
    let grown = most - before;
    assert!(grown < GROWTH_MIB, "from {before:.1} to {most:.1} MiB");
    let quiet = async || memory(pid) - before < GROWTH_MIB / 2.0;
    cluster
        .wait("the memory is given back", quiet)
        .await
        .unwrap();
}
