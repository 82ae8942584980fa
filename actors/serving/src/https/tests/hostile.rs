//! Hostile clients do no harm.

use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use kernel::testing::run_paused;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, SOON, open, run, told, windowless};
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
        for _ in 0..CONNECTIONS.all {
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

/// A caller who opens no window of HTTP/2 cannot be sent the refusal, and answers pings for ever.
#[test]
fn refused_callers_hold_nothing() {
    run_paused(|| async {
        let rig = Rig::start_with(|_| {}).await;
        let began = kernel::now();
        let client = windowless(&rig, "/pods").await;
        assert_eq!(client.answer.status(), 401);
        let ended = tokio::time::timeout(Duration::from_secs(3600), client.connection).await;
        assert!(ended.is_ok(), "the connection stays");
        let took = kernel::now() - began;
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}

#[test]
fn responses_that_nobody_takes_end_with_their_connection() {
    run_paused(|| async {
        let rig = Rig::start_open().await;
        let began = kernel::now();
        let client = windowless(&rig, "/pods").await;
        assert_eq!(client.answer.status(), 200);
        let ended = tokio::time::timeout(Duration::from_secs(3600), client.connection).await;
        assert!(ended.is_ok(), "the connection stays");
        let took = kernel::now() - began;
        let minute = Duration::from_secs(60);
        assert!(took >= minute && took < minute * 2, "{took:?}");
    });
}

#[test]
fn a_refused_connection_is_closed_and_a_permitted_one_stays() {
    run(
        |_| {},
        async |rig: Rig| {
            rig.allow("alice", "healthz");
            let alice = rig.clients.client("alice", &[]);
            let mut kept = rig.connect(Some(&alice)).await;
            let mut barred = rig.connect(Some(&alice)).await;
            let mut status = async |line: &str| {
                let ask = format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n");
                kept.write_all(ask.as_bytes()).await.unwrap();
                let mut answer = vec![0; 4096];
                let read = kept.read(&mut answer).await.unwrap();
                String::from_utf8_lossy(&answer[9..12.min(read)]).into_owned()
            };
            assert_eq!(status("GET /healthz").await, "200");
            assert_eq!(status("GET /pods").await, "403");
            assert_eq!(status("GET /healthz").await, "200", "it was permitted once");
            let ask = b"GET /pods HTTP/1.1\r\nhost: x\r\n\r\n";
            barred.write_all(ask).await.unwrap();
            let told = told(&mut barred).await;
            assert_eq!(told.status, 403);
            assert!(told.head.contains("connection: close"), "{}", told.head);
        },
    );
}

/// A handshake computes for long, most of all with an RSA key: whoever comes in numbers would hold up every probe.
#[test]
fn no_handshake_is_computed_on_the_thread_of_the_actors() {
    run(open, async |rig: Rig| {
        let signer = Arc::new(SigningThreads::default());
        let current = rig.certificate.borrow().clone().unwrap();
        let key = RecordedKey(Arc::clone(&current.key), Arc::clone(&signer));
        let recorded = CertifiedKey::new(current.cert.clone(), Arc::new(key));
        rig.certificate.send(Some(Arc::new(recorded))).unwrap();
        for _ in 0..20 {
            assert_eq!(rig.ask("GET /healthz").await.status, 200);
        }
        let threads = signer.0.lock().unwrap();
        assert_eq!(threads.len(), 20);
        assert!(!threads.contains(&std::thread::current().id()));
    });
}

/// The threads on which a server has signed.
#[derive(Debug, Default)]
struct SigningThreads(Mutex<Vec<ThreadId>>);

#[derive(Debug)]
struct RecordedKey(Arc<dyn SigningKey>, Arc<SigningThreads>);

impl SigningKey for RecordedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.1.0.lock().unwrap().push(std::thread::current().id());
        self.0.choose_scheme(offered)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[test]
fn invented_tokens_neither_push_out_nor_hold_up_a_good_one() {
    run(
        |_| {},
        async |rig: Rig| {
            rig.token("good", "alice");
            rig.allow("alice", "*");
            let bob = rig.clients.client("bob", &[]);
            rig.allow("bob", "*");
            assert_eq!(rig.ask_with("good", "GET /pods").await.status, 200);
            rig.reviews.silent.set(true);
            let mut waiting = Vec::new();
            for number in 0..20 {
                let mut stream = rig.connect(None).await;
                let ask = format!(
                    "GET /pods HTTP/1.1\r\nhost: x\r\nauthorization: Bearer bad{number}\r\n\r\n"
                );
                stream.write_all(ask.as_bytes()).await.unwrap();
                waiting.push(stream);
            }
            let crowded = told(waiting.last_mut().unwrap()).await;
            assert_eq!(crowded.status, 429);
            assert!(crowded.head.contains("retry-after: 1"), "{}", crowded.head);
            let asked = rig.reviews.asked.borrow().clone();
            let bad = asked.iter().filter(|one| one.starts_with("token bad"));
            assert_eq!(bad.count(), 8, "reviews of one address");
            assert_eq!(rig.ask_with("good", "GET /pods").await.status, 200);
            assert_eq!(rig.ask_as(Some(&bob), "GET /pods", "").await.status, 200);
        },
    );
}
