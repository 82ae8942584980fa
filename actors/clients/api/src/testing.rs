//! A server in the test's own runtime, so that its clock may be paused: it answers by a script.

#![expect(
    missing_debug_implementations,
    reason = "a rig of closures and servers"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::ConfigMap;
use kernel::testing::pass;
use kernel::watch;
use kube::Api;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{ApiClient, ByValue, RequestLane, RestConfig, RestConfigError};

/// What is waited for has happened by then, or does not.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer: its head, then its parts.
pub struct ScriptedReply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub parts: Vec<BodyPart>,
}

/// A piece of a body.
pub enum BodyPart {
    Text(String),
    /// So many bytes of it.
    Blanks(usize),
    Wait(Duration),
    /// Nothing more, for ever.
    Hang,
    /// The body ends where it must not.
    Cut,
}

/// Before its head an answer waits for ever, or its connection breaks.
pub enum ReplyScript {
    Reply(ScriptedReply),
    Late(Duration, ScriptedReply),
    Hang,
    Break,
}

impl ScriptedReply {
    pub fn json(value: &Value) -> ReplyScript {
        ScriptedReply::of(200, value)
    }

    pub fn of(status: u16, value: &Value) -> ReplyScript {
        ScriptedReply::parts(status, vec![BodyPart::Text(value.to_string())])
    }

    pub fn parts(status: u16, parts: Vec<BodyPart>) -> ReplyScript {
        ReplyScript::Reply(ScriptedReply {
            status,
            headers: Vec::new(),
            parts,
        })
    }

    pub fn again_after(status: u16, seconds: &str) -> ReplyScript {
        ReplyScript::Reply(ScriptedReply {
            status,
            headers: vec![("retry-after", seconds.to_owned())],
            parts: vec![BodyPart::Text(
                json!({"kind": "Status", "code": status, "message": "busy"}).to_string(),
            )],
        })
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub connection: usize,
    /// Of the client's certificate, DER.
    pub certificate: Option<Vec<u8>>,
    pub at: tokio::time::Instant,
}

type ReplyFn = Arc<dyn Fn(usize, &ReceivedRequest) -> ReplyScript + Send + Sync>;

/// The server; it ends with the test's runtime.
pub struct Rig {
    pub port: u16,
    pub authority: CertifiedIssuer<'static, KeyPair>,
    pub folder: tempfile::TempDir,
    received: watch::Sender<Vec<ReceivedRequest>>,
    secured: RigSecurity,
}

#[derive(Clone, Copy, PartialEq)]
enum RigSecurity {
    Not,
    Tls,
}

impl Rig {
    /// Answers the nth request, from 0, over TLS.
    pub async fn tls(
        answer: impl Fn(usize, &ReceivedRequest) -> ReplyScript + Send + Sync + 'static,
    ) -> Rig {
        Rig::start(RigSecurity::Tls, Arc::new(answer)).await
    }

    /// The same without TLS.
    pub async fn plain(
        answer: impl Fn(usize, &ReceivedRequest) -> ReplyScript + Send + Sync + 'static,
    ) -> Rig {
        Rig::start(RigSecurity::Not, Arc::new(answer)).await
    }

    async fn start(secured: RigSecurity, answer: ReplyFn) -> Rig {
        let authority = authority();
        let acceptor = acceptor(&authority, b"h2");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = watch::Sender::new(Vec::new());
        let told = heard.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                // A paused clock does not wait for what Nagle holds back.
                stream.set_nodelay(true).unwrap();
                let (told, answer, acceptor) = (told.clone(), answer.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let serving = RigServer {
                        connection,
                        told,
                        answer,
                    };
                    match secured {
                        RigSecurity::Not => serving.plain(stream).await,
                        RigSecurity::Tls => serving.tls(stream, acceptor).await,
                    }
                });
            }
        });
        Rig {
            port,
            authority,
            folder: tempfile::tempdir().unwrap(),
            received: heard,
            secured,
        }
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.received.borrow().clone()
    }

    /// Waits until so many requests that are like this have come.
    pub async fn hears(&self, count: usize, like: impl Fn(&ReceivedRequest) -> bool) {
        let mut heard = self.received.subscribe();
        let enough = heard.wait_for(|all| all.iter().filter(|heard| like(heard)).count() >= count);
        let enough = tokio::time::timeout(PATIENCE, enough).await;
        drop(enough.expect("they come in time").unwrap());
    }

    pub fn connections(&self) -> usize {
        let mut all: Vec<_> = self
            .requests()
            .iter()
            .map(|heard| heard.connection)
            .collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    /// A kubeconfig with what is given of the cluster and the user.
    pub fn kubeconfig(&self, cluster: Value, user: Value) -> PathBuf {
        let scheme = match self.secured {
            RigSecurity::Not => "http",
            RigSecurity::Tls => "https",
        };
        let mut entry = json!({"server": format!("{scheme}://127.0.0.1:{}", self.port)});
        if self.secured == RigSecurity::Tls {
            std::fs::write(self.folder.path().join("ca.crt"), self.authority.pem()).unwrap();
            entry["certificate-authority"] = "ca.crt".into();
        }
        for (key, value) in cluster.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "there", "user": "me"}}],
            "clusters": [{"name": "there", "cluster": entry}],
            "users": [{"name": "me", "user": user}],
        });
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, file.to_string()).unwrap();
        path
    }

    pub fn client(&self) -> ApiClient {
        self.client_of(json!({}), json!({})).unwrap()
    }

    pub fn client_of(&self, cluster: Value, user: Value) -> Result<ApiClient, RestConfigError> {
        ApiClient::new(access(self.kubeconfig(cluster, user)), nobody())
    }

    /// A certificate of the server's own authority, for a client.
    pub fn identity(&self, name: &str) -> Arc<CertifiedKey> {
        let (certificate, key) = self.pair(name);
        crate::auth::client_certificate::parse(certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    pub fn pair(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&key, &self.authority).unwrap();
        (signed.pem(), key.serialize_pem())
    }
}

pub fn nobody() -> watch::Receiver<Option<Arc<CertifiedKey>>> {
    watch::channel(None).1
}

pub fn access(kubeconfig: PathBuf) -> RestConfig {
    RestConfig {
        kubeconfig,
        user_agent: "kubelet/v1.36.0 (linux/amd64)".into(),
        content_type: "application/vnd.kubernetes.protobuf".into(),
        ..RestConfig::unlimited()
    }
}

pub fn maps(client: &ApiClient) -> Api<ConfigMap> {
    Api::namespaced(client.kube(RequestLane::Work), "default")
}

/// The same, to be watched.
pub fn watched_maps(client: &ApiClient) -> Api<ByValue<ConfigMap>> {
    Api::namespaced(client.kube(RequestLane::Work), "default")
}

pub fn map(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "x"}],
        },
    })
}

pub fn list(version: u64, items: &[Value]) -> ReplyScript {
    ScriptedReply::json(&json!({
        "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": version.to_string()}, "items": items,
    }))
}

pub fn event(kind: &str, object: &Value) -> BodyPart {
    BodyPart::Text(format!("{}\n", json!({"type": kind, "object": object})))
}

pub fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// TLS with a certificate of this authority, and one protocol within (ALPN).
pub(crate) fn acceptor(
    authority: &CertifiedIssuer<'static, KeyPair>,
    protocol: &[u8],
) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned(), "api.example.com".to_owned()];
    let signed = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, authority)
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
        .with_single_cert(
            vec![signed.der().clone()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// One connection being served.
#[derive(Clone)]
struct RigServer {
    connection: usize,
    told: watch::Sender<Vec<ReceivedRequest>>,
    answer: ReplyFn,
}

impl RigServer {
    async fn plain(self, stream: TcpStream) {
        let service = service_fn(move |request| self.clone().reply(request, None));
        drop(
            http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await,
        );
    }

    async fn tls(self, stream: TcpStream, acceptor: TlsAcceptor) {
        let Ok(stream) = acceptor.accept(stream).await else {
            return;
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates
            .and_then(|all| all.first())
            .map(|first| first.to_vec());
        let service = service_fn(move |request| self.clone().reply(request, certificate.clone()));
        let io = TokioIo::new(stream);
        drop(
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await,
        );
    }

    async fn reply(
        self,
        request: Request<Incoming>,
        certificate: Option<Vec<u8>>,
    ) -> Result<
        Response<impl hyper::body::Body<Data = Bytes, Error = std::io::Error>>,
        std::io::Error,
    > {
        let heard = ReceivedRequest {
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
            connection: self.connection,
            certificate,
            at: tokio::time::Instant::now(),
        };
        let mut nth = 0;
        self.told.send_modify(|told| {
            nth = told.len();
            told.push(heard.clone());
        });
        let reply = match (self.answer)(nth, &heard) {
            ReplyScript::Reply(reply) => reply,
            ReplyScript::Late(wait, reply) => {
                pass(wait).await;
                reply
            }
            ReplyScript::Hang => std::future::pending().await,
            ReplyScript::Break => return Err(std::io::Error::other("broken")),
        };
        let mut head = Response::builder().status(reply.status);
        for (name, value) in reply.headers {
            head = head.header(name, value);
        }
        let parts = stream::iter(reply.parts).filter_map(|part| async move {
            match part {
                BodyPart::Text(text) => Some(Ok(Frame::data(Bytes::from(text)))),
                BodyPart::Blanks(size) => Some(Ok(Frame::data(Bytes::from(vec![b' '; size])))),
                BodyPart::Wait(wait) => {
                    pass(wait).await;
                    None
                }
                BodyPart::Hang => std::future::pending().await,
                BodyPart::Cut => Some(Err(std::io::Error::other("cut"))),
            }
        });
        Ok(head.body(StreamBody::new(parts.boxed())).unwrap())
    }
}
