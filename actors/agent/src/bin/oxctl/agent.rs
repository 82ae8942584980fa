//! The client of the agent's admin socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
pub(crate) use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::net::UnixStream;

use crate::diagnose::error::DiagnoseError;
use crate::image::ImageError;

/// Seconds longer than the agent's own timeout for a plugin.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);
/// Of an answer: the tree and the metrics of a full node have a few MiB.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Why the agent gave no answer to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("no agent answers at {}: is oxlet running?", socket.display())]
    NotRunning { socket: PathBuf },
    #[error("cannot connect to {}: {why}", socket.display())]
    NoAccess { socket: PathBuf, why: io::Error },
    #[error("the agent at {} broke off: {why}", socket.display())]
    BrokeOff { socket: PathBuf, why: hyper::Error },
    #[error("the agent at {} did not answer within {} s", socket.display(), within.as_secs())]
    Deadline { socket: PathBuf, within: Duration },
    #[error("{sentence}")]
    Refused { sentence: String },
    #[error("the agent's answer is not understood, are oxctl and oxlet of one version? {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Output(io::Error),
    #[error("{}", kernel::error_chain(.0))]
    Image(#[from] ImageError),
    #[error("the agent's answer to {path} has no end within {} MiB", MAX_ANSWER_BYTES >> 20)]
    TooLong { path: String },
    #[error("{}", kernel::error_chain(.0))]
    Diagnose(#[from] DiagnoseError),
}

#[derive(Debug)]
pub(crate) struct AgentClient {
    socket: PathBuf,
}

impl AgentClient {
    pub(crate) fn at(socket: &Path) -> Self {
        AgentClient {
            socket: socket.to_owned(),
        }
    }

    /// Sends a request and returns the whole body of the answer.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> Result<Bytes, AgentError> {
        self.ask_with_timeout(REQUEST_TIMEOUT, method, path).await
    }

    /// As [`ask`](Self::ask), with a timeout of its own for requests that take longer.
    pub(crate) async fn ask_with_timeout(
        &self,
        within: Duration,
        method: Method,
        path: &str,
    ) -> Result<Bytes, AgentError> {
        let asked = async {
            let answer = self.open(method, path).await?;
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES);
            let body = body.collect().await;
            body.map(http_body_util::Collected::to_bytes)
                .map_err(|why| match why.downcast::<hyper::Error>() {
                    Ok(why) => self.connection_error(*why),
                    Err(_) => AgentError::TooLong {
                        path: path.to_owned(),
                    },
                })
        };
        let answer = tokio::time::timeout(within, asked).await;
        answer.unwrap_or_else(|_| {
            Err(AgentError::Deadline {
                socket: self.socket.clone(),
                within,
            })
        })
    }

    /// Sends a request whose answer is a stream of lines without end.
    pub(crate) async fn follow(&self, path: &str) -> Result<ResponseLines<'_>, AgentError> {
        let answer = self.open(Method::GET, path).await?;
        Ok(ResponseLines {
            agent: self,
            body: answer.into_body(),
            rest: Vec::new(),
        })
    }

    async fn open(&self, method: Method, path: &str) -> Result<Response<Incoming>, AgentError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|why| self.access_error(why))?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|why| self.connection_error(why))?;
        // The request sees the connection's error as its own.
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "oxlet");
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| AgentError::Refused {
                sentence: format!("{path:?} cannot be asked for: {error}"),
            })?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|why| self.connection_error(why))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(|why| self.connection_error(why))?
            .to_bytes();
        let sentence = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(refusal) => refusal.error,
            Err(_) => format!("the agent answered {status}"),
        };
        Err(AgentError::Refused { sentence })
    }

    fn access_error(&self, why: io::Error) -> AgentError {
        let socket = self.socket.clone();
        let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        match nobody.contains(&why.kind()) {
            true => AgentError::NotRunning { socket },
            false => AgentError::NoAccess { socket, why },
        }
    }

    fn connection_error(&self, why: hyper::Error) -> AgentError {
        AgentError::BrokeOff {
            socket: self.socket.clone(),
            why,
        }
    }
}

#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: String,
}

/// The lines of an answer that has no end.
#[derive(Debug)]
pub(crate) struct ResponseLines<'a> {
    agent: &'a AgentClient,
    body: Incoming,
    rest: Vec<u8>,
}

impl ResponseLines<'_> {
    /// The next whole line; none when the agent ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, AgentError> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.drain(..=end).collect();
                return Ok(Some(line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend(frame.into_data().unwrap_or_default()),
                Some(Err(why)) => return Err(self.agent.connection_error(why)),
                None => return Ok(None),
            }
        }
    }
}

/// Percent-encodes reserved characters of URLs, and all but plain ASCII. Slashes stay.
pub(crate) fn encoded(text: &str) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b'/')
        .remove(b':');
    utf8_percent_encode(text, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_a_url_is_encoded() {
        assert_eq!(encoded("default/web-1"), "default/web-1");
        assert_eq!(encoded("a b?c&d#e%ü"), "a%20b%3Fc%26d%23e%25%C3%BC");
    }

    #[tokio::test]
    async fn a_missing_agent_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let trouble = AgentClient::at(&socket)
            .ask(Method::GET, "/tree")
            .await
            .unwrap_err();
        let expected = format!(
            "no agent answers at {}: is oxlet running?",
            socket.display()
        );
        assert_eq!(trouble.to_string(), expected);
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let trouble = AgentClient::at(&socket)
            .ask(Method::GET, "/tree")
            .await
            .unwrap_err();
        assert_eq!(
            trouble.to_string(),
            expected,
            "a socket that a dead agent left"
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_no_http_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let garbage = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"\0\xff\r\n\r\n")
                .await
                .unwrap();
        };
        let agent = AgentClient::at(&socket);
        let (trouble, ()) = tokio::join!(agent.ask(Method::GET, "/tree"), garbage);
        assert!(trouble.unwrap_err().to_string().contains("broke off"));
    }
}
