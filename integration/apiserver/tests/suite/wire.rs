//! A plain HTTP client, which shows what came and how it ended.

use std::net::SocketAddr;
use std::time::Duration;

use apiserver::Server;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything here takes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection a request.
pub(crate) struct TestClient(SocketAddr);

pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    /// None if it did not come whole.
    pub(crate) text: Option<String>,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text.as_deref().expect("the answer came whole"))
            .expect("the answer is JSON")
    }
}

impl TestClient {
    pub(crate) fn to(server: &Server) -> TestClient {
        TestClient(server.address())
    }

    pub(crate) async fn get(&self, path: &str) -> Result<TestResponse, String> {
        self.send("GET", path, ("accept", "application/json"), "")
            .await
    }

    /// Sends a request; an error is a connection that ended without an answer.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        header: (&str, &str),
        body: &str,
    ) -> Result<TestResponse, String> {
        let response = self.open(method, path, header, body).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = timeout(RESPONSE_TIMEOUT, response.into_body().collect())
            .await
            .expect("the answer ends");
        let text = body
            .ok()
            .map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
        Ok(TestResponse {
            status,
            headers,
            text,
        })
    }

    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        header: (&str, &str),
        body: &str,
    ) -> Result<http::Response<Incoming>, String> {
        let stream = TcpStream::connect(self.0)
            .await
            .map_err(|why| why.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|why| why.to_string())?;
        tokio::spawn(connection);
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "x")
            .header("user-agent", "wire")
            .header(header.0, header.1);
        let request = request
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        timeout(RESPONSE_TIMEOUT, sender.send_request(request))
            .await
            .expect("an answer begins")
            .map_err(|why| why.to_string())
    }

    pub(crate) async fn watch(&self, path: &str) -> TestWatch {
        let response = self
            .open("GET", path, ("accept", "application/json"), "")
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{path}");
        TestWatch {
            body: response.into_body(),
            text: String::new(),
        }
    }
}

/// A watch that is read line by line.
pub(crate) struct TestWatch {
    body: Incoming,
    text: String,
}

/// The next message of a watch.
#[derive(Debug, PartialEq)]
pub(crate) enum WatchMessage {
    Event(Value),
    /// A line that is no JSON.
    Garbage(String),
    /// The end; with what was left of a line.
    End(String),
    /// The connection was cut; with what was left of a line.
    Cut(String),
}

impl TestWatch {
    pub(crate) async fn next(&mut self) -> WatchMessage {
        timeout(RESPONSE_TIMEOUT, self.line())
            .await
            .expect("the watch says something")
    }

    async fn line(&mut self) -> WatchMessage {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let said = serde_json::from_str(line).map_or_else(
                    |_| WatchMessage::Garbage(line.to_string()),
                    WatchMessage::Event,
                );
                self.text = rest.to_string();
                return said;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self
                    .text
                    .push_str(&String::from_utf8_lossy(frame.data_ref().unwrap())),
                Some(Err(_)) => return WatchMessage::Cut(std::mem::take(&mut self.text)),
                None => return WatchMessage::End(std::mem::take(&mut self.text)),
            }
        }
    }

    /// Returns the next event's type and its object's name.
    pub(crate) async fn named(&mut self) -> (String, String) {
        let event = self.event().await;
        let text = |pointer| {
            event
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        (text("/type"), text("/object/metadata/name"))
    }

    pub(crate) async fn event(&mut self) -> Value {
        match self.next().await {
            WatchMessage::Event(event) => event,
            other @ (WatchMessage::Garbage(_) | WatchMessage::End(_) | WatchMessage::Cut(_)) => {
                panic!("no event: {other:?}")
            }
        }
    }
}
