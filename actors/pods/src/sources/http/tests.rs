//! Invariants of the HTTP source, against a scripted server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kernel::testing::{Inbox, inbox};
use kernel::{ChildSpec, InjectedFault, Intensity, Supervisor, mailbox, system};
use logic_api::manifest::MAX_MANIFEST_BYTES;
use logic_api::pod::PodView;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use state::events;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(5);
const FAST_PERIOD: Duration = Duration::from_millis(100);
/// Self-signed, for localhost, until 2126.
const CERTIFICATE: &[u8] =
    include_bytes!("../../../../clients/src/probe_client/testdata/localhost.pem");
const KEY: &[u8] = include_bytes!("../../../../clients/src/probe_client/testdata/localhost.key");

/// Answers each request with the answer set last, and records the requests' heads.
#[derive(Debug, Clone, Default)]
struct ManifestServer {
    answer: Rc<RefCell<Vec<u8>>>,
    /// Answers by path, before the general one.
    paths: Rc<RefCell<BTreeMap<String, Vec<u8>>>>,
    heads: Rc<RefCell<Vec<String>>>,
    port: Rc<Cell<u16>>,
}

impl ManifestServer {
    async fn start(tls: Option<TlsAcceptor>) -> ManifestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ManifestServer::default();
        server.port.set(listener.local_addr().unwrap().port());
        let here = server.clone();
        tokio::task::spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (here, tls) = (here.clone(), tls.clone());
                tokio::task::spawn_local(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                here.serve(stream).await;
                            }
                        }
                        None => here.serve(stream).await,
                    }
                });
            }
        });
        server
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        self.heads.borrow_mut().push(head);
        let answer = self.paths.borrow().get(&path).cloned();
        let answer = answer.unwrap_or_else(|| self.answer.borrow().clone());
        // A client that disconnects early is no failure of the server.
        drop(stream.write_all(&answer).await);
        drop(stream.shutdown().await);
    }

    fn says(&self, body: &str) {
        self.says_raw(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    }

    fn says_raw(&self, raw: &str) {
        *self.answer.borrow_mut() = raw.as_bytes().to_vec();
    }

    fn redirects(&self, path: &str, location: &str) {
        let raw =
            format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        self.paths
            .borrow_mut()
            .insert(path.to_owned(), raw.into_bytes());
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://localhost:{}{path}", self.port.get())
    }
}

struct Rig {
    root: Supervisor,
    sets: Inbox<pod_manager::Msg>,
    events: Inbox<events::Msg>,
}

impl Rig {
    fn start(url: String, headers: &[(&str, &str)], roots: RootCertStore) -> Rig {
        let (pod_manager, sets) = inbox(64);
        let (events, heard) = inbox(64);
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(MAILBOX);
        let headers: BTreeMap<String, Vec<String>> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()]))
            .collect();
        root.spawn(ChildSpec::permanent("http"), port, move || {
            let client = UrlClient::new(url.as_str().into(), &headers, Roots::These(roots.clone()));
            UrlSource::with_client(
                client,
                FAST_PERIOD,
                "node".into(),
                pod_manager.clone(),
                Recorder::new(events.clone()),
            )
        });
        Rig {
            root,
            sets,
            events: heard,
        }
    }

    /// The sets that nobody has taken yet.
    fn drained_sets(&mut self) -> Vec<pod_manager::Msg> {
        let mut told = self.sets.drain();
        told.retain(|msg| !matches!(msg, pod_manager::Msg::SetRefused { .. }));
        told
    }

    async fn pods(&mut self) -> Vec<Arc<Pod>> {
        loop {
            match self.sets.next(TEST_TIMEOUT).await {
                Some(pod_manager::Msg::SetPods {
                    source: PodSource::Http,
                    pods,
                }) => return pods,
                Some(pod_manager::Msg::SetRefused { .. }) => {}
                other => panic!("expected a set of pods, got {other:?}"),
            }
        }
    }

    async fn complaint(&mut self) -> String {
        match self.events.next(TEST_TIMEOUT).await {
            Some(events::Msg::Record(event)) => event.message,
            other => panic!("expected an event, got {other:?}"),
        }
    }

    /// The source's snapshot once its last error contains this.
    async fn failure(&self, words: &str) -> String {
        let said = async {
            loop {
                let tree = self.root.tree().await;
                let error = tree.children[0].snapshot["last_error"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if error.contains(words) {
                    return error;
                }
                kernel::testing::pass(FAST_PERIOD / 4).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, said)
            .await
            .unwrap_or_else(|_| panic!("no failure with {words:?}"))
    }
}

fn serving(body: &str, test: impl AsyncFnOnce(ManifestServer, Rig)) {
    let body = body.to_owned();
    let run = system::run(async move {
        let server = ManifestServer::start(None).await;
        server.says(&body);
        let rig = Rig::start(
            server.url("http", "/pods"),
            &[("X-Key", "value"), ("Authorization", "secret")],
            RootCertStore::empty(),
        );
        test(server, rig).await;
    });
    run.unwrap();
}

fn pod(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}"#
    )
}

fn list(pods: &[String]) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"PodList","items":[{}]}}"#,
        pods.join(",")
    )
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name()).collect()
}

#[test]
fn one_pod_or_a_list_of_them_is_the_whole_set() {
    serving(&pod("a"), async |server, mut rig| {
        let first = rig.pods().await;
        assert_eq!(names(&first), ["a-node"]);
        assert_eq!(
            first[0].annotations()["kubernetes.io/config.source"],
            "http"
        );
        assert!(
            Arc::ptr_eq(&rig.pods().await[0], &first[0]),
            "unchanged is the very same object"
        );
        server.says(&list(&[pod("a"), pod("b")]));
        let mut second = rig.pods().await;
        while second.len() == 1 {
            second = rig.pods().await;
        }
        assert_eq!(names(&second), ["a-node", "b-node"]);
        assert!(Arc::ptr_eq(&second[0], &first[0]));
        server.says(&list(&[]));
        while !rig.pods().await.is_empty() {}
    });
}

#[test]
fn configured_headers_go_with_each_request() {
    serving(&pod("a"), async |server, mut rig| {
        rig.pods().await;
        let head = server.heads.borrow()[0].to_lowercase();
        for line in [
            "get /pods http/1.1",
            "x-key: value",
            "authorization: secret",
            "host: localhost:",
            "user-agent: oxlet/",
        ] {
            assert!(head.contains(line), "{line} in {head}");
        }
    });
}

#[test]
fn nothing_is_told_before_the_first_good_answer() {
    serving("nonsense", async |server, mut rig| {
        assert!(rig.complaint().await.contains("localhost"));
        server.says_raw("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
        rig.failure("found status 503").await;
        assert!(rig.drained_sets().is_empty());
        server.says(&pod("a"));
        assert_eq!(names(&rig.pods().await), ["a-node"]);
    });
}

/// Upstream's extractFromURL, whose pods stay ended if the answer is the same again as before it was empty.
#[test]
fn an_answer_without_a_body_is_an_empty_set_and_a_failure() {
    serving("", async |server, mut rig| {
        assert!(rig.pods().await.is_empty());
        rig.failure("the answer is empty, expected a v1 Pod").await;
        for _ in 0..2 {
            server.says(&pod("a"));
            while names(&rig.pods().await) != ["a-node"] {}
            server.says("");
            while !rig.pods().await.is_empty() {}
        }
    });
}

#[test]
fn no_bad_answer_ends_what_runs() {
    serving(&pod("a"), async |server, mut rig| {
        let first = rig.pods().await;
        let endless = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            MAX_MANIFEST_BYTES + 1
        );
        let answers = [
            (
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
                "found status 404",
            ),
            ("\0\u{1}garbage\r\n\r\n", "no http is spoken"),
            ("", "no http is spoken"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
                "broke off",
            ),
            (&endless, "is longer than"),
            (
                "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
                "it has no location",
            ),
            (
                "HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n",
                "leads nowhere",
            ),
            (
                "HTTP/1.1 301 Moved\r\nlocation: /pods\r\ncontent-length: 0\r\n\r\n",
                "stopped after 10 redirects",
            ),
        ];
        for (raw, words) in answers {
            server.says_raw(raw);
            rig.failure(words).await;
        }
        server.says("kind: Pod\n");
        let said = rig.complaint().await;
        assert!(
            said.contains("apiVersion") && said.contains("expected v1"),
            "{said}"
        );
        server.says(&pod("a"));
        let tree = rig.root.tree().await;
        assert_eq!(tree.children[0].restarts, 0);
        let unchanged = |pods: &[Arc<Pod>]| pods.len() == 1 && Arc::ptr_eq(&pods[0], &first[0]);
        let told = rig.drained_sets();
        assert!(
            told.iter().all(
                |set| matches!(set, pod_manager::Msg::SetPods { pods, .. } if unchanged(pods))
            )
        );
    });
}

#[test]
fn one_bad_pod_of_a_list_is_named_and_hides_no_good_one() {
    let bad = pod("b").replace("\"image\"", "\"imge\"");
    serving(
        &list(&[pod("a"), bad, pod("a")]),
        async |_server, mut rig| {
            assert_eq!(names(&rig.pods().await), ["a-node"]);
            let mut said = [
                rig.complaint().await,
                rig.complaint().await,
                rig.complaint().await,
            ];
            said.sort();
            let words = [
                "items[1].spec.containers[0].imge: unknown field",
                "items[1]: spec.containers[0].image: Required value",
                "metadata.name",
            ];
            for word in words {
                assert!(
                    said.iter().any(|text| text.contains(word)),
                    "{word}: {said:?}"
                );
            }
        },
    );
}

#[test]
fn redirects_are_followed_but_secrets_stay_with_their_host() {
    serving(&pod("a"), async |server, mut rig| {
        rig.pods().await;
        let other = format!("http://127.0.0.1:{}/there", server.port.get());
        server.redirects("/pods", "/moved");
        server.redirects("/moved", &other);
        server.heads.borrow_mut().clear();
        rig.pods().await;
        rig.pods().await;
        let heads = server.heads.borrow();
        let of = |path: &str| {
            heads
                .iter()
                .find(|head| head.starts_with(&format!("GET {path} ")))
                .unwrap()
                .to_lowercase()
        };
        assert!(of("/moved").contains("authorization: secret"));
        assert!(!of("/there").contains("authorization"));
        assert!(of("/there").contains("x-key: value"));
    });
}

#[test]
fn unreachable_server_is_named() {
    let run = system::run(async {
        let rig = Rig::start(
            "http://127.0.0.1:1/pods?token=secret".into(),
            &[],
            RootCertStore::empty(),
        );
        let error = rig.failure("cannot connect").await;
        assert!(
            error.contains("http://127.0.0.1:1/pods") && !error.contains("secret"),
            "{error}"
        );
        let rig = Rig::start("no url".into(), &[], RootCertStore::empty());
        rig.failure("no url: ").await;
        let named = "http://someone:secret@node.example/pods?token=secret";
        let rig = Rig::start(named.into(), &[], RootCertStore::empty());
        let error = rig.failure("found a user in the URL").await;
        assert!(error.starts_with("http://node.example/pods: "), "{error}");
        let shown = rig.root.tree().await.children[0].snapshot.to_string();
        assert!(!shown.contains("secret"), "{shown}");
    });
    run.unwrap();
}

fn secure(trusted: &[CertificateDer<'static>], test: impl AsyncFnOnce(Rig)) {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let run = system::run(async move {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates(), PrivateKeyDer::from_pem_slice(KEY).unwrap())
            .unwrap();
        let server = ManifestServer::start(Some(TlsAcceptor::from(Arc::new(config)))).await;
        server.says(&pod("a"));
        test(Rig::start(server.url("https", "/pods"), &[], roots)).await;
    });
    run.unwrap();
}

fn certificates() -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(CERTIFICATE)
        .map(|certificate| certificate.unwrap())
        .collect()
}

#[test]
fn https_is_spoken_with_servers_that_the_roots_vouch_for() {
    secure(&certificates(), async |mut rig| {
        assert_eq!(names(&rig.pods().await), ["a-node"])
    });
}

#[test]
fn https_server_without_a_root_is_refused() {
    secure(&[], async |rig| {
        drop(rig.failure("no certificate to trust").await)
    });
}

#[test]
fn source_that_broke_fetches_again() {
    serving(&pod("a"), async |_server, mut rig| {
        rig.pods().await;
        rig.root.inject("test/http", InjectedFault::Panic).unwrap();
        for _ in 0..3 {
            assert_eq!(names(&rig.pods().await), ["a-node"]);
        }
        assert_eq!(rig.root.tree().await.children[0].restarts, 1);
    });
}
