//! A proxy between this program and a server: named by a URL, or by the environment's rules.
//!
//! The caller connects to the proxy, by TLS where it speaks that; [`Proxy::open`] then has it connect to the server.
//! Upstream: Go's net/http and golang.org/x/net/http/httpproxy.

mod environment;
mod socks;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;

use tokio::io::{AsyncRead, AsyncWrite};

pub use self::environment::{ProxyEnvironment, VARIABLES};

/// A stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for S {}

/// Any of them.
pub type BoxedStream = Box<dyn ByteStream>;

/// What is spoken with a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// CONNECT of HTTP/1.1.
    Http,
    /// The same within TLS.
    Https,
    /// SOCKS 5, with names that the proxy resolves.
    Socks5,
}

/// A proxy that connections to a server go through.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// What is spoken with it.
    pub protocol: ProxyProtocol,
    host: String,
    port: u16,
    login: Option<Login>,
}

/// A user of the proxy.
#[derive(Clone, PartialEq, Eq)]
struct Login {
    user: String,
    password: String,
}

/// Why a text names no proxy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyUrlError {
    /// It is not a URL with a scheme and a host.
    #[error("a URL such as http://10.0.0.9:3128")]
    Malformed,
    /// Nobody speaks its scheme.
    #[error("the scheme http, https or socks5, not {0:?}")]
    Scheme(String),
}

/// Why there is no way through a proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Connecting to it failed, or the connection broke.
    #[error("the proxy {proxy} cannot be reached")]
    Unreachable {
        /// Where it listens.
        proxy: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It speaks something else than HTTP.
    #[error("the proxy {proxy} answers what is no HTTP")]
    Http {
        /// Where it listens.
        proxy: String,
        /// What is wrong with the answer.
        #[source]
        source: hyper::Error,
    },
    /// It does not connect to the server.
    #[error("the proxy {proxy} refuses the connection: {answer}")]
    Refused {
        /// Where it listens.
        proxy: String,
        /// Its status or code.
        answer: String,
    },
}

impl Proxy {
    /// Reads a URL with a scheme, such as `http://user:password@10.0.0.9:3128`.
    ///
    /// # Errors
    /// [`ProxyUrlError`] says what was expected.
    pub fn parse(url: &str) -> Result<Proxy, ProxyUrlError> {
        let uri: Uri = url.parse().map_err(|_| ProxyUrlError::Malformed)?;
        let scheme = uri.scheme_str().ok_or(ProxyUrlError::Malformed)?;
        let (protocol, usual) = match scheme {
            "http" => (ProxyProtocol::Http, 80),
            "https" => (ProxyProtocol::Https, 443),
            "socks5" | "socks5h" => (ProxyProtocol::Socks5, 1080),
            other => return Err(ProxyUrlError::Scheme(other.to_owned())),
        };
        let authority = uri.authority().ok_or(ProxyUrlError::Malformed)?;
        let host = without_brackets(authority.host());
        if host.is_empty() {
            return Err(ProxyUrlError::Malformed);
        }
        let login = authority.as_str().rsplit_once('@');
        Ok(Proxy {
            protocol,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(usual),
            login: login.map(|(login, _)| Login::parse(login)),
        })
    }

    /// Returns the name or address that it is reached by, which its certificate must have; IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the value of `Proxy-Authorization`, if it has a user: for requests that it passes on itself.
    pub fn authorization(&self) -> Option<HeaderValue> {
        self.login.as_ref().map(Login::basic)
    }

    /// Has the proxy at the other end of `stream` connect to a server; returns the stream to that server.
    ///
    /// # Errors
    /// The proxy refuses, or does not speak its protocol.
    pub async fn open(
        &self,
        mut stream: BoxedStream,
        host: &str,
        port: u16,
    ) -> Result<BoxedStream, ProxyError> {
        match self.protocol {
            ProxyProtocol::Http | ProxyProtocol::Https => self.tunnel(stream, host, port).await,
            ProxyProtocol::Socks5 => {
                let login = self.login.as_ref();
                let login = login.map(|login| (login.user.as_str(), login.password.as_str()));
                match socks::connect(&mut stream, (host, port), login).await {
                    Ok(Ok(())) => Ok(stream),
                    Ok(Err(answer)) => Err(self.refused(answer)),
                    Err(source) => Err(self.unreachable(source)),
                }
            }
        }
    }

    async fn tunnel(
        &self,
        stream: BoxedStream,
        host: &str,
        port: u16,
    ) -> Result<BoxedStream, ProxyError> {
        let http = |source| ProxyError::Http {
            proxy: self.to_string(),
            source,
        };
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(http)?;
        // It ends with the tunnel, or with the sender.
        tokio::spawn(connection.with_upgrades());
        let request = self.request(host, port)?;
        let response = sender.send_request(request).await.map_err(http)?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(response.status().to_string()));
        }
        let tunnel = hyper::upgrade::on(response).await.map_err(http)?;
        Ok(Box::new(TokioIo::new(tunnel)))
    }

    fn request(&self, host: &str, port: u16) -> Result<Request<String>, ProxyError> {
        let target = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(&target)
            .header(HOST, &target);
        if let Some(login) = &self.login {
            request = request.header(PROXY_AUTHORIZATION, login.basic());
        }
        request
            .body(String::new())
            .map_err(|error| self.refused(error.to_string()))
    }

    /// Returns the error of a connection to it that failed.
    pub fn unreachable(&self, source: io::Error) -> ProxyError {
        ProxyError::Unreachable {
            proxy: self.to_string(),
            source,
        }
    }

    fn refused(&self, answer: String) -> ProxyError {
        ProxyError::Refused {
            proxy: self.to_string(),
            answer,
        }
    }
}

impl Login {
    fn parse(text: &str) -> Login {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Login {
            user: decoded(user),
            password: decoded(password),
        }
    }

    fn basic(&self) -> HeaderValue {
        let login = BASE64.encode(format!("{}:{}", self.user, self.password));
        let mut value =
            HeaderValue::try_from(format!("Basic {login}")).expect("base64 is visible ASCII");
        value.set_sensitive(true);
        value
    }
}

/// Where the proxy listens, without its user.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({:?} {self})", self.protocol)
    }
}

/// Returns a host as it is without a URL around it: IPv6 has brackets there.
fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
