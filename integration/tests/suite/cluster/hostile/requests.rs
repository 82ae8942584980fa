//! Malformed and malicious requests of authorized callers.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// More than a node has room for at a time.
const CROWD: usize = 600;

/// Requests of a caller with every right, and the answers: the status, and words of the body.
const QUESTIONS: [(&str, u16, &str); 38] = [
    ("GET /logs/../../etc/shadow", 400, "segments"),
    ("GET /logs/%2e%2e/%2e%2e/etc/shadow", 400, "segments"),
    ("GET /logs/..%2f..%2fetc%2fshadow", 400, "segments"),
    ("GET /logs/%2e%2e%2f%2e%2e%2fetc/shadow", 400, "segments"),
    ("GET /logs//etc/shadow", 307, "location: /logs/etc/shadow"),
    ("GET /logs/%2fetc/shadow", 400, "segments"),
    ("GET /logs/x%00", 400, "segments"),
    ("GET /logs/x%5c..%5cy", 400, "segments"),
    ("GET /logs/%zz", 400, "segments"),
    ("GET /logs/etc/shadow", 404, "404 page not found"),
    ("GET //logs/", 307, "location: /logs/"),
    ("GET http://node/logs/../../etc/shadow", 400, "segments"),
    ("GET /logs/\0", 400, ""),
    ("GET /pods/../logs/", 400, "segments"),
    ("GET /containerLogs/default/../web/app", 400, "segments"),
    ("GET /containerLogs/default/web/%2e%2e", 400, "segments"),
    (
        "GET /containerLogs/default/web/..%2f..%2fetc",
        400,
        "segments",
    ),
    (
        "GET /containerLogs/default/web//app",
        307,
        "location: /containerlogs/default/web/app",
    ),
    ("GET /containerLogs/default/web/%00", 400, "segments"),
    (
        "GET /containerLogs/default/nobody/app",
        404,
        "pod \"nobody\" does not exist",
    ),
    (
        "GET /containerLogs/other/web/app",
        404,
        "pod \"web\" does not exist",
    ),
    (
        "GET /containerLogs/default/web/x",
        404,
        "container \"x\" not found in pod \"web\"",
    ),
    (
        "GET /containerLogs/default/web/app?tailLines=x",
        400,
        r#"{"message": "Unable to decode query."}"#,
    ),
    (
        "GET /containerLogs/default/web/app?sinceTime=noon",
        400,
        r#"{"message": "Unable to decode query."}"#,
    ),
    (
        "GET /containerLogs/default/web/app?tailLines=-1",
        422,
        r#"{"message": "Invalid request."}"#,
    ),
    (
        "GET /containerLogs/default/web/app?limitBytes=0",
        422,
        r#"{"message": "Invalid request."}"#,
    ),
    (
        "GET /containerLogs/default/web/app?previous=true",
        400,
        "previous terminated container",
    ),
    (
        "POST /exec/default/nobody/app?command=id&output=1",
        404,
        "pod does not exist",
    ),
    (
        "POST /exec/default/web/app?command=id",
        400,
        "at least 1 of stdin, stdout, stderr",
    ),
    (
        "POST /exec/default/web/app?command=id&output=1",
        500,
        "Upgrade request required",
    ),
    (
        "POST /attach/default/nobody/app?output=1",
        404,
        "pod does not exist",
    ),
    (
        "POST /portForward/default/nobody",
        404,
        "pod does not exist",
    ),
    (
        "POST /run/default/nobody/app?cmd=id",
        404,
        "pod does not exist",
    ),
    ("DELETE /pods", 405, "allow: get"),
    ("PUT /containerLogs/default/web/app", 405, "allow: get"),
    ("PATCH /exec/default/web/app", 405, "allow: get, post"),
    ("GET /run/default/web/app", 405, "allow: post"),
    ("GET /nothing", 404, "404 page not found"),
];

#[tokio::test]
async fn hostile_requests_end_in_clear_answers_and_hold_nobody_up() {
    for which in ServerKind::available() {
        let cluster = guarded_by(which).await;
        let may = cluster
            .server
            .client_certificate("kubernetes-admin", "system:masters", 3600);
        let may = may.unwrap();
        let port = cluster.node.https_port();
        let mut slow = tls::connect(port, Some(&may)).await.unwrap();
        slow.write_all(b"GET /pods HTTP/1.1\r\nhost: no")
            .await
            .unwrap();
        let plain = ("127.0.0.1", cluster.node.read_only_port());
        let mut slow_reader = TcpStream::connect(plain).await.unwrap();
        slow_reader
            .write_all(b"GET /pods HTTP/1.1\r\n")
            .await
            .unwrap();

        for (line, status, words) in QUESTIONS {
            let told = ask(&cluster, Some(&may), line, "").await;
            let said = told.body.contains(words) || told.head.contains(words);
            assert!(told.status == status && said, "{line}: {told:?}");
        }
        let upgrade = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n";
        for (line, words) in [
            (
                "POST /exec/default/web/x?command=id&output=1",
                "container not found (\"x\")",
            ),
            (
                "POST /attach/default/web/x?output=1",
                "container x not found in pod web_default",
            ),
        ] {
            let told = ask(&cluster, Some(&may), line, upgrade).await;
            assert!(told.status == 500 && told.body == words, "{line}: {told:?}");
        }
        for (line, status) in [
            ("GET /pods", 200),
            ("POST /pods", 405),
            ("GET /logs/../../etc/shadow", 400),
            ("GET /containerLogs/default/web/app", 405),
            ("POST /exec/default/web/app?command=id&output=1", 405),
            ("GET /configz", 404),
        ] {
            let mut stream = TcpStream::connect(plain).await.unwrap();
            stream.write_all(&request(line, "")).await.unwrap();
            let told = tls::read_response(&mut stream).await.unwrap();
            assert_eq!(told.status, status, "read-only, {line}: {told:?}");
        }

        for told in [
            tls::read_response(&mut slow).await,
            tls::read_response(&mut slow_reader).await,
        ] {
            assert!(matches!(told.unwrap().status, 0 | 408));
        }
        assert_unhurt(&cluster, &[]).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_decent_request_hurt_nobody() {
    let cluster = guarded().await;
    let may = master(cluster.double(), 3600);
    let port = cluster.node.https_port();
    let long = "x".repeat(500_000);
    let huge = "content-length: 99999999999\r\n";
    let raw: [(&str, Vec<u8>, &[u16]); 9] = [
        (
            "a header",
            request("GET /pods", &format!("a: {long}\r\n")),
            &[0, 431],
        ),
        (
            "a path",
            request(&format!("GET /{long}"), ""),
            &[0, 414, 431],
        ),
        (
            "headers",
            request("GET /pods", &"a: b\r\n".repeat(20_000)),
            &[0, 431],
        ),
        (
            "a body",
            request("POST /run/default/web/app?cmd=true", huge),
            &[200],
        ),
        (
            "two lengths",
            request(
                "POST /pods",
                &format!("{huge}transfer-encoding: chunked\r\n"),
            ),
            &[0, 400, 405],
        ),
        (
            "HTTP/1.0",
            b"GET /healthz HTTP/1.0\r\n\r\n".to_vec(),
            &[200],
        ),
        ("no HTTP", b"\x00\xff\r\n\r\n".to_vec(), &[0, 400]),
        (
            "HTTP/2 unasked",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            &[0, 400, 505],
        ),
        ("CONNECT", request("CONNECT node:1", ""), &[400, 404, 405]),
    ];
    for (what, bytes, statuses) in &raw {
        let told = tls::send(port, Some(&may), bytes).await.unwrap();
        assert!(statuses.contains(&told.status), "{what}: {told:?}");
    }
    let pipelined = "GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n";
    let pipelined = [pipelined.as_bytes(), &request("GET /nothing", "")].concat();
    let told = tls::send(port, Some(&may), &pipelined).await.unwrap();
    assert!(
        told.status == 200 && told.body.contains("HTTP/1.1 404"),
        "{told:?}"
    );
    let mut half = tls::connect(port, Some(&may)).await.unwrap();
    half.write_all(b"GET /pods HT").await.unwrap();
    half.shutdown().await.unwrap();
    let told = tls::read_response(&mut half).await.unwrap();
    assert!(matches!(told.status, 0 | 400), "{told:?}");
    let mut no_tls = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    no_tls.write_all(&request("GET /pods", "")).await.unwrap();
    assert_ne!(tls::read_response(&mut no_tls).await.unwrap().status, 200);
    assert_unhurt(&cluster, &[]).await;
}

#[tokio::test]
async fn a_crowd_that_does_nothing_keeps_nobody_out_and_ends_no_work() {
    let cluster = guarded().await;
    let may = master(cluster.double(), 3600);
    let port = cluster.node.https_port();
    let mut working = tls::connect(port, Some(&may)).await.unwrap();
    let follow = request("GET /containerLogs/default/web/app?follow=true", "");
    working.write_all(&follow).await.unwrap();
    let mut answer = vec![0; 4096];
    let read = working.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    for caller in [Some(&may), None] {
        let began = tokio::time::Instant::now();
        let told = ask(&cluster, caller, "GET /healthz", "").await;
        assert_eq!(told.status, if caller.is_some() { 200 } else { 401 });
        // Less than the timeout of connections that send no request.
        let took = tokio::time::Instant::now() - began;
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    let web = uid(&cluster.pod("web").unwrap());
    let log = format!("default_web_{web}/app/0.log");
    let log = cluster.node.pod_logs().join(log);
    let line = "2026-01-01T00:00:00.000000000Z stdout F still here\n";
    std::fs::write(log, line).unwrap();
    let mut said = String::new();
    let told = async {
        while !said.contains("still here") {
            let read = working.read(&mut answer).await.unwrap();
            assert!(read > 0, "the work was ended");
            said.push_str(&String::from_utf8_lossy(&answer[..read]));
        }
    };
    tokio::time::timeout(CONVERGENCE_TIMEOUT, told)
        .await
        .unwrap();
    assert_unhurt(&cluster, &[]).await;
}
