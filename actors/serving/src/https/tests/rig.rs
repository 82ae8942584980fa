//! A server with a node and an API server that answer as they are told, and clients of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus, EphemeralContainer, Pod,
    PodSpec, PodStatus,
};
use kernel::watch;
use kernel::{ChildSpec, Intensity, Supervisor, mailbox, system};
use logic_api::types::{ContainerId, PodUid};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::healthz::HealthChecks;
use crate::https::Https;
use crate::node::{
    Attach, ComponentInfo, ContainerCheckpointRequest, Detail, Exec, KubeletHost, Metrics,
    NodeError, PodsWithStatuses, RunCommand,
};
use crate::policy::{AuthenticationPolicy, AuthorizationPolicy, EndpointPolicy, Policy, TlsPolicy};
use crate::reviews::{
    Attributes, AuthenticatedUser, Decision, RequestHistory, ReviewError, Reviews,
};

pub(super) const SOON: Duration = Duration::from_secs(10);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// A request head that opens a WebSocket, without its protocols.
pub(super) const WEBSOCKET: &str = "host: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A node that answers as it is told, and remembers what it was asked.
#[derive(Default)]
pub(super) struct FakeNode {
    pub(super) pods: RefCell<Vec<Arc<Pod>>>,
    pub(super) logs: RefCell<BTreeMap<String, PathBuf>>,
    pub(super) stopped: Cell<bool>,
    pub(super) url: RefCell<String>,
    pub(super) trouble: RefCell<Option<NodeError>>,
    pub(super) asked: RefCell<Vec<String>>,
    /// Before it says which pods there are.
    pub(super) delay: Cell<Duration>,
}

impl FakeNode {
    fn said<T>(&self, what: String, answer: T) -> Result<T, NodeError> {
        self.asked.borrow_mut().push(what);
        match self.trouble.borrow().clone() {
            Some(trouble) => Err(trouble),
            None => Ok(answer),
        }
    }

    fn url(&self) -> String {
        self.url.borrow().clone()
    }
}

impl HealthChecks for FakeNode {
    fn names(&self) -> &'static [&'static str] {
        &["ping", "log", "syncloop"]
    }

    async fn check(&self, name: &str) -> Option<Result<(), String>> {
        match name {
            "syncloop" if self.stopped.get() => Some(Err("stuck".to_owned())),
            "ping" | "log" | "syncloop" => Some(Ok(())),
            _ => None,
        }
    }
}

impl KubeletHost for FakeNode {
    async fn pods(&self) -> Result<PodsWithStatuses, NodeError> {
        kernel::testing::pass(self.delay.get()).await;
        let status = PodStatus {
            container_statuses: Some(vec![ContainerStatus {
                name: "c".into(),
                container_id: Some("fake://id-c".into()),
                state: Some(ContainerState {
                    running: Some(ContainerStateRunning::default()),
                    ..ContainerState::default()
                }),
                ..ContainerStatus::default()
            }]),
            phase: Some("Running".into()),
            ..PodStatus::default()
        };
        Ok(PodsWithStatuses {
            pods: self.pods.borrow().clone(),
            statuses: BTreeMap::from([(PodUid::from("uid-p"), Arc::new(status))]),
        })
    }

    async fn running_pods(&self) -> Result<Vec<Pod>, NodeError> {
        self.said("running".into(), vec![Pod::clone(&pod("seen"))])
    }

    async fn exec(&self, wanted: Exec) -> Result<String, NodeError> {
        let Exec {
            container,
            command,
            streams,
            ..
        } = wanted;
        self.said(
            format!("exec {container} {command:?} {streams:?}"),
            self.url(),
        )
    }

    async fn attach(&self, wanted: Attach) -> Result<String, NodeError> {
        let Attach {
            container, streams, ..
        } = wanted;
        self.said(format!("attach {container} {streams:?}"), self.url())
    }

    async fn port_forward(&self, _: &Pod, ports: Vec<i32>) -> Result<String, NodeError> {
        self.said(format!("forward {ports:?}"), self.url())
    }

    async fn run(&self, wanted: RunCommand) -> Result<Vec<u8>, NodeError> {
        let said = format!("run {} {:?}", wanted.container, wanted.command);
        self.said(said, b"output".to_vec())
    }

    async fn checkpoint(&self, wanted: ContainerCheckpointRequest) -> Result<String, NodeError> {
        let said = format!("checkpoint {} {:?}", wanted.container, wanted.timeout);
        self.said(said, "/var/lib/kubelet/checkpoints/x.tar".into())
    }

    async fn log_path(&self, container: &ContainerId) -> Result<PathBuf, NodeError> {
        let path = self.logs.borrow().get(container.as_str()).cloned();
        path.ok_or_else(|| NodeError::NotFound("no such container".into()))
    }

    async fn is_running(&self, _: &ContainerId) -> Result<bool, NodeError> {
        Ok(!self.stopped.get())
    }

    async fn metrics(&self, which: Metrics) -> Result<String, NodeError> {
        self.said(format!("metrics {which:?}"), "a 1\n".into())
    }

    async fn summary(&self, detail: Detail) -> Result<Vec<u8>, NodeError> {
        self.said(format!("summary {detail:?}"), b"{}".to_vec())
    }

    async fn console(&self, path: &str) -> crate::http::HandlerResponse {
        let said = format!("console {path:?}");
        self.asked.borrow_mut().push(said.clone());
        crate::http::text(hyper::StatusCode::OK, said)
    }

    async fn configz(&self) -> Result<Vec<u8>, NodeError> {
        self.said("configz".into(), br#"{"kubeletconfig":{}}"#.to_vec())
    }

    fn flags(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("v".into(), "2".into())])
    }

    fn about(&self) -> ComponentInfo {
        ComponentInfo {
            started: UNIX_EPOCH,
            version: "0.1.0".into(),
            emulates: "1.36".into(),
        }
    }

    fn set_verbosity(&self, level: u32) -> Result<(), String> {
        match level {
            0..=10 => Ok(()),
            _ => Err("too much".into()),
        }
    }
}

/// An API server that knows some tokens, and lets some users do some things.
#[derive(Default)]
pub(super) struct FakeReviews {
    pub(super) tokens: RefCell<BTreeMap<String, AuthenticatedUser>>,
    /// User and subresource.
    pub(super) allowed: RefCell<Vec<(String, String)>>,
    pub(super) away: Cell<bool>,
    /// It answers no review of a token.
    pub(super) silent: Cell<bool>,
    pub(super) asked: RefCell<Vec<String>>,
}

impl Reviews for FakeReviews {
    async fn token(
        &self,
        token: &str,
        _: RequestHistory,
    ) -> Result<Option<AuthenticatedUser>, ReviewError> {
        self.asked.borrow_mut().push(format!("token {token}"));
        // Others may ask the same meanwhile.
        tokio::task::yield_now().await;
        if self.silent.get() {
            return std::future::pending().await;
        }
        match self.away.get() {
            true => Err(ReviewError::Unreachable { why: "away".into() }),
            false => Ok(self.tokens.borrow().get(token).cloned()),
        }
    }

    async fn access(&self, wanted: &Attributes) -> Result<Decision, ReviewError> {
        let name = &wanted.user.name;
        let said = format!(
            "{name} {} {} {}",
            wanted.verb, wanted.subresource, wanted.node
        );
        self.asked.borrow_mut().push(said);
        if self.away.get() {
            return Err(ReviewError::Unreachable { why: "away".into() });
        }
        let is_it = |(user, subresource): &(String, String)| {
            user == name && (subresource == "*" || subresource == wanted.subresource)
        };
        match self.allowed.borrow().iter().any(is_it) {
            true => Ok(Decision::Allowed),
            false => Ok(Decision::Refused),
        }
    }
}

/// Signs certificates.
pub(super) struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

/// A client's certificate and key.
#[derive(Clone)]
pub(super) struct TestCredentials {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl TestAuthority {
    pub(super) fn new(name: &str) -> TestAuthority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        TestAuthority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn client(&self, name: &str, groups: &[&str]) -> TestCredentials {
        self.signed(name, groups, |_| {})
    }

    pub(super) fn signed(
        &self,
        name: &str,
        groups: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> TestCredentials {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        // One attribute of a kind is all that this maker takes.
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        TestCredentials {
            chain: vec![certificate.der().clone()],
            key: key.serialize_der(),
        }
    }

    /// The certificate of a server of this name.
    pub(super) fn server(&self, name: &str) -> Arc<CertifiedKey> {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = rustls::crypto::ring::sign::any_supported_type(&der).unwrap();
        Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key))
    }

    fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }
}

/// A server in a test.
pub(super) struct Rig {
    pub(super) root: Supervisor,
    pub(super) address: SocketAddr,
    pub(super) node: Rc<FakeNode>,
    pub(super) reviews: Rc<FakeReviews>,
    pub(super) servers: TestAuthority,
    pub(super) clients: TestAuthority,
    pub(super) certificate: watch::Sender<Option<Arc<CertifiedKey>>>,
    pub(super) folder: TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct NodeCalls {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// Runs a test with a server whose policy it may change before.
pub(super) fn run(change: impl FnOnce(&mut Policy), test: impl AsyncFnOnce(Rig)) {
    system::run(async {
        let rig = Rig::start(change).await;
        test(rig).await;
    })
    .unwrap();
}

/// Every caller is let in.
pub(super) fn open(policy: &mut Policy) {
    policy.authentication.anonymous = true;
    policy.authorization = AuthorizationPolicy::AlwaysAllow;
}

impl Rig {
    async fn start(change: impl FnOnce(&mut Policy)) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let (servers, clients) = (TestAuthority::new("servers"), TestAuthority::new("clients"));
        let client_ca = folder.path().join("ca.crt");
        std::fs::write(&client_ca, clients.pem()).unwrap();
        let system_logs = folder.path().join("log");
        std::fs::create_dir(&system_logs).unwrap();
        let mut policy = Policy {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            node_name: "node-1".into(),
            tls: TlsPolicy::default(),
            authentication: AuthenticationPolicy {
                anonymous: false,
                tokens: Some(MINUTE * 2),
                client_ca: Some(client_ca),
            },
            authorization: AuthorizationPolicy::Webhook {
                allowed: MINUTE * 5,
                refused: MINUTE / 2,
            },
            paths: EndpointPolicy::default(),
            idle: MINUTE * 240,
            journalctl: folder.path().join("journalctl"),
            system_logs,
        };
        change(&mut policy);
        let (node, reviews) = (
            Rc::new(FakeNode::default()),
            Rc::new(FakeReviews::default()),
        );
        node.pods.borrow_mut().push(pod("p"));
        let (certificate, receiver) = watch::channel(Some(servers.server("localhost")));
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(crate::MAILBOX);
        let (same, ask) = (Rc::clone(&node), Rc::clone(&reviews));
        root.spawn(ChildSpec::permanent("https"), port, move || {
            Https::new(policy.clone(), same.clone(), ask.clone(), receiver.clone())
        });
        let tree = root.tree().await;
        let snapshot = &tree.find("test/https").unwrap().snapshot;
        let address = snapshot["address"].as_str().unwrap().parse().unwrap();
        Rig {
            root,
            address,
            node,
            reviews,
            servers,
            clients,
            certificate,
            folder,
        }
    }

    pub(super) fn allow(&self, user: &str, subresource: &str) {
        let pair = (user.to_owned(), subresource.to_owned());
        self.reviews.allowed.borrow_mut().push(pair);
    }

    pub(super) fn token(&self, token: &str, user: &str) {
        let user = AuthenticatedUser {
            name: user.to_owned(),
            ..AuthenticatedUser::default()
        };
        self.reviews
            .tokens
            .borrow_mut()
            .insert(token.to_owned(), user);
    }

    pub(super) fn client(&self, credentials: Option<&TestCredentials>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.servers.root()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match credentials {
            None => builder.with_no_client_auth(),
            Some(TestCredentials { chain, key }) => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
                builder.with_client_auth_cert(chain.clone(), key).unwrap()
            }
        }
    }

    pub(super) async fn connect(
        &self,
        credentials: Option<&TestCredentials>,
    ) -> TlsStream<TcpStream> {
        self.connect_with(self.client(credentials)).await
    }

    pub(super) async fn connect_with(&self, config: ClientConfig) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    /// Asks without credentials.
    pub(super) async fn ask(&self, line: &str) -> NodeCalls {
        self.ask_as(None, line, "").await
    }

    /// Asks with headers, each with its end.
    pub(super) async fn ask_as(
        &self,
        credentials: Option<&TestCredentials>,
        line: &str,
        headers: &str,
    ) -> NodeCalls {
        let mut stream = self.connect(credentials).await;
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        told(&mut stream).await
    }

    /// Asks with a token.
    pub(super) async fn ask_with(&self, token: &str, line: &str) -> NodeCalls {
        let header = format!("authorization: Bearer {token}\r\n");
        self.ask_as(None, line, &header).await
    }
}

/// Reads an answer to the end of its connection.
pub(super) async fn told(stream: &mut TlsStream<TcpStream>) -> NodeCalls {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
    drop(read.expect("the answer ends"));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let body = match head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        true => unchunked(body),
        false => body.to_owned(),
    };
    NodeCalls {
        status: head
            .get(9..12)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0),
        head: head.to_owned(),
        body,
    }
}

fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&rest[..size]);
        text = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}

pub(super) fn pod(name: &str) -> Arc<Pod> {
    let container = |name: &str| Container {
        name: name.into(),
        ..Container::default()
    };
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.into());
    pod.metadata.namespace = Some("ns".into());
    pod.metadata.uid = Some(format!("uid-{name}"));
    pod.spec = Some(PodSpec {
        containers: vec![container("c"), container("other")],
        init_containers: Some(vec![container("init")]),
        ephemeral_containers: Some(vec![EphemeralContainer {
            name: "debug".into(),
            ..EphemeralContainer::default()
        }]),
        ..PodSpec::default()
    });
    Arc::new(pod)
}

impl Rig {
    /// A server in a test that runs its own clock.
    pub(super) async fn start_with(change: impl FnOnce(&mut Policy)) -> Rig {
        Rig::start(change).await
    }

    /// A server that lets every caller in, in a test that runs its own clock.
    pub(super) async fn start_open() -> Rig {
        Rig::start(open).await
    }
}

impl TestCredentials {
    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

impl Rig {
    /// Asks for another protocol, and reads the refusal.
    pub(super) async fn ask_upgrade(&self, line: &str, headers: &str) -> NodeCalls {
        let mut stream = self.connect(None).await;
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let read = tokio::time::timeout(SOON, stream.read(&mut piece)).await;
            let read = read.expect("an answer").unwrap_or(0);
            bytes.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                assert_ne!(read, 0, "{text}");
                continue;
            };
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
            if read == 0 || body.len() >= length.unwrap_or(usize::MAX) {
                return NodeCalls {
                    status: head[9..12].parse().unwrap(),
                    head: head.to_owned(),
                    body: body.to_owned(),
                };
            }
        }
    }
}

/// A client of HTTP/2 that takes no byte of a body.
pub(super) struct Windowless {
    pub(super) answer: hyper::Response<Incoming>,
    /// Goes on until the server closes the connection.
    pub(super) connection: tokio::task::JoinHandle<()>,
    _sender: http2::SendRequest<Empty<Bytes>>,
}

/// Asks without credentials, and opens no window for the answer.
pub(super) async fn windowless(rig: &Rig, path: &str) -> Windowless {
    let mut config = rig.client(None);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = rig.connect_with(config).await;
    let handshake = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let connection = tokio::task::spawn_local(async move { drop(connection.await) });
    let request = hyper::Request::get(format!("https://localhost{path}"));
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    Windowless {
        answer: sender.send_request(request).await.unwrap(),
        connection,
        _sender: sender,
    }
}
