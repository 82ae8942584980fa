//! Hostile clients do no harm.

use std::time::Duration;

use kernel::testing::run_paused;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, SOON, open, run, told};
use crate::https::CONNECTIONS;

#[test]
fn oversized_heads_are_refused() {
    run(open, async |rig: Rig| {
        let long = format!("x: {}\r\n", "y".repeat(1 << 20));
        let many = "a: b\r\n".repeat(5000);
        let path = format!("GET /{}", "z".repeat(1 << 20));
        for (line, headers) in [
            ("GET /healthz", long.as_str()),
            ("GET /healthz", &many),
            (&path, ""),
        ] {
            let mut stream = rig.connect(None).await;
            let head = format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
            // It may be cut off while it is sent.
            drop(stream.write_all(head.as_bytes()).await);
            let told = told(&mut stream).await;
            assert!(matches!(told.status, 0 | 414 | 431), "{}", told.status);
        }
        assert_eq!(rig.ask("GET /healthz").await.status, 200);
    });
}

#[test]
fn garbage_is_one_connections_trouble() {
    run(open, async |rig: Rig| {
        let mut kept = Vec::new();
        for bytes in [
            &b"\0\xff\x16\x03\x01garbage"[..],
            b"GET / HTTP/1.1\r\n\r\n",
            b"",
            b"\x16\x03\x01\xff\xff",
        ] {
            let mut stream = TcpStream::connect(rig.address).await.unwrap();
            drop(stream.write_all(bytes).await);
            kept.push(stream);
        }
        for bytes in [
            &b"\0\xffgarbage\r\n\r\n"[..],
            b"GET",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            b"POST /run/ns/p/c HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
            b"GET /%zz HTTP/1.1\r\nhost: x\r\n\r\n",
            b"GET * HTTP/1.1\r\nhost: x\r\n\r\n",
            b"GET http://x HTTP/1.1\r\nhost: x\r\n\r\n",
            b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        ] {
            let mut stream = rig.connect(None).await;
            drop(stream.write_all(bytes).await);
            assert_eq!(rig.ask("GET /healthz").await.body, "ok");
        }
        drop(kept);
        assert_eq!(
            rig.root.tree().await.find("test/https").unwrap().restarts,
            0
        );
    });
}

#[test]
fn whoever_dawdles_is_shown_out() {
    run_paused(|| async {
        let rig = Rig::start_open().await;
        let mut silent = TcpStream::connect(rig.address).await.unwrap();
        let mut idle = rig.connect(None).await;
        let mut slow = rig.connect(None).await;
        slow.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
        let mut bytes = Vec::new();
        let began = tokio::time::Instant::now();
        drop(silent.read_to_end(&mut bytes).await);
        drop(slow.read_to_end(&mut bytes).await);
        assert!(
            tokio::time::Instant::now().duration_since(began) < Duration::from_secs(15),
            "handshakes and heads take 10 s"
        );
        drop(idle.read_to_end(&mut bytes).await);
        assert!(bytes.is_empty());
        let took = tokio::time::Instant::now().duration_since(began);
        assert!(
            took > Duration::from_secs(80) && took < Duration::from_secs(110),
            "{took:?}"
        );
        assert_eq!(rig.ask("GET /healthz").await.body, "ok");
    });
}

#[test]
fn a_crowd_that_does_nothing_keeps_nobody_out() {
    run(open, async |rig: Rig| {
        let began = kernel::now();
        let mut kept = rig.connect(None).await;
        let mut crowd = Vec::new();
        for _ in 0..CONNECTIONS {
            crowd.push(rig.connect(None).await);
            // A client that asks from time to time is not idle.
            let ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
            kept.write_all(ask).await.unwrap();
            let mut answer = [0; 4096];
            let read = kept.read(&mut answer).await.unwrap();
            assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
        }
        assert_eq!(rig.ask("GET /healthz").await.body, "ok");
        let mut bytes = Vec::new();
        drop(crowd[0].read_to_end(&mut bytes).await);
        assert_eq!(bytes, b"", "the first made room");
        let took = kernel::now() - began;
        assert!(
            took < Duration::from_secs(30),
            "{took:?}: it was waited for"
        );
    });
}

#[test]
fn unread_bodies_hold_nobody_up() {
    run(open, async |rig: Rig| {
        let mut stream = rig.connect(None).await;
        let head = b"PUT /debug/flags/v HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        drop(stream.write_all(&vec![b'1'; 100_000]).await);
        let mut answer = vec![0; 1024];
        let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await;
        let read = read.unwrap().unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 400"));
    });
}
