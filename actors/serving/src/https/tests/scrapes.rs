//! `/metrics`, as scrapers ask for them.

use std::io::Read;

use flate2::read::GzDecoder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::{Rig, SOON, open, run};
use crate::node::NodeError;

/// Upstream's promhttp, TestNegotiateEncodingWriter, over the wire.
#[test]
fn scrapers_may_have_metrics_packed() {
    run(open, async |rig: Rig| {
        let mut stream = rig.connect(None).await;
        let ask = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: deflate, gzip\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
        drop(read.expect("the answer ends"));
        let at = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&bytes[..at]);
        assert!(head.contains("content-encoding: gzip"), "{head}");
        assert!(head.contains("process-start-time-unix: 0"), "{head}");
        let mut text = String::new();
        let mut unpacked = GzDecoder::new(&bytes[at + 4..]);
        unpacked.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a 1\n");
        let told = rig.ask("GET /metrics").await;
        assert!(!told.head.contains("content-encoding"), "{}", told.head);
    });
}

#[test]
fn metrics_that_cannot_be_had_say_so() {
    run(open, async |rig: Rig| {
        *rig.node.trouble.borrow_mut() = Some(NodeError::Failed("no runtime".into()));
        let told = rig.ask("GET /metrics/resource").await;
        let text = "An error has occurred while serving metrics:\n\nno runtime\n";
        assert_eq!((told.status, told.body.as_str()), (500, text));
    });
}

#[test]
fn outcomes_of_checks_are_forgotten_on_demand() {
    run(open, async |rig: Rig| {
        rig.ask("GET /healthz").await;
        assert!(metrics::slis::text().contains("name=\"ping\""));
        for path in ["/metrics", "/metrics/probes"] {
            let told = rig.ask(&format!("DELETE {path}")).await;
            assert_eq!(told.body, "a 1\n", "{path}");
        }
        let told = rig.ask("DELETE /metrics/slis").await;
        assert_eq!((told.status, told.body.as_str()), (200, "metrics reset\n"));
        assert_eq!(metrics::slis::text(), "");
    });
}
