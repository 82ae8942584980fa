//! The same over HTTP/2, which clients choose where they can.

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::rig::{Rig, open, run};

#[test]
fn requests_share_a_connection() {
    run(open, async |rig: Rig| {
        let mut config = rig.client(None);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = rig.connect_with(config).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::task::spawn_local(connection);
        let ask = |path: &'static str| {
            let mut sender = sender.clone();
            async move {
                let request = Request::get(format!("https://localhost{path}"));
                let request = request.body(Empty::<Bytes>::new()).unwrap();
                let answer = sender.send_request(request).await.unwrap();
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                (status, String::from_utf8_lossy(&body).into_owned())
            }
        };
        let (health, pods, exec) = tokio::join!(
            ask("/healthz"),
            ask("/pods"),
            ask("/exec/ns/p/c?output=1&command=ls")
        );
        assert_eq!(health, (200, "ok".to_owned()));
        assert_eq!(pods.0, 200);
        assert_eq!(exec, (500, "Upgrade request required\n".to_owned()));
    });
}
