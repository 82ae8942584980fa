//! Laws of the certificate manager: over an API in this process, on a paused clock, with real keys and files.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kernel::testing::run_paused;
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use kube::client::Body;
use logic_node::certificates::CertificateSubject;
use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair};
use serde_json::{Value, json};

use super::*;

const AN_HOUR: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_secs(3_600 * 24);

/// What the API does with a request.
#[derive(Clone, Copy, PartialEq)]
enum SignerBehaviour {
    Signed,
    /// Signed, but for no name.
    Nameless,
    Denied,
    Away,
}

/// An API that knows nothing but certificate signing requests, and signs for an hour.
struct FakeSigner {
    verdict: SignerBehaviour,
    requests: Vec<Value>,
    issuer: Issuer<'static, KeyPair>,
}

type FakeSignerApi = Arc<Mutex<FakeSigner>>;

fn api(verdict: SignerBehaviour) -> FakeSignerApi {
    let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
    Arc::new(Mutex::new(FakeSigner {
        verdict,
        requests: Vec::new(),
        issuer,
    }))
}

impl FakeSigner {
    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, Value) {
        if self.verdict == SignerBehaviour::Away {
            return (
                503,
                json!({"kind": "Status", "status": "Failure", "code": 503}),
            );
        }
        if method == Method::POST {
            let mut request: Value = serde_json::from_slice(body).unwrap();
            let number = self.requests.len();
            request["metadata"]["name"] = json!(format!("csr-{number}"));
            request["metadata"]["uid"] = json!(format!("uid-{number}"));
            request["metadata"]["resourceVersion"] = json!("1");
            self.requests.push(request.clone());
            return (201, request);
        }
        let items: Vec<Value> = self
            .requests
            .last()
            .map(|last| self.judged(last))
            .into_iter()
            .collect();
        (
            200,
            json!({"kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": items}),
        )
    }

    fn judged(&self, request: &Value) -> Value {
        let mut request = request.clone();
        request["status"] = match self.verdict {
            SignerBehaviour::Signed | SignerBehaviour::Nameless => json!({
                "conditions": [{"type": "Approved", "status": "True"}],
                "certificate": base64(self.sign(&request).as_bytes()),
            }),
            SignerBehaviour::Denied => json!({
                "conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "never"}],
            }),
            SignerBehaviour::Away => json!({}),
        };
        request
    }

    fn sign(&self, request: &Value) -> String {
        let pem: k8s_openapi::ByteString =
            serde_json::from_value(request["spec"]["request"].clone()).unwrap();
        let pem = String::from_utf8(pem.0).unwrap();
        let mut wanted = CertificateSigningRequestParams::from_pem(&pem).unwrap();
        if self.verdict == SignerBehaviour::Nameless {
            wanted.params.subject_alt_names.clear();
        }
        wanted.params.not_before = kernel::wall().into();
        wanted.params.not_after = (kernel::wall() + AN_HOUR).into();
        wanted.signed_by(&self.issuer).unwrap().pem()
    }
}

fn base64(bytes: &[u8]) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap()
}

fn client(api: &FakeSignerApi) -> ApiClient {
    let api = Arc::clone(api);
    let service = tower::service_fn(move |request: Request<Body>| {
        let api = Arc::clone(&api);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let (code, answer) = api.lock().unwrap().answer(&head.method, &body);
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, kube::Error>(answer.unwrap())
        }
    });
    ApiClient::from(kube::Client::new(service, "default"))
}

struct RotationFixture {
    folder: tempfile::TempDir,
    keeper: Addr<Msg>,
    identity: IdentityReceiver,
}

fn world(
    purpose: CertificatePurpose,
    peers: Peers,
    wanted: Option<CertificateSubject>,
) -> RotationFixture {
    renewed(RotationPolicy::InTime, purpose, peers, wanted)
}

fn renewed(
    renewal: RotationPolicy,
    purpose: CertificatePurpose,
    peers: Peers,
    wanted: Option<CertificateSubject>,
) -> RotationFixture {
    let folder = tempfile::tempdir().unwrap();
    let store = CertificateStore::new(folder.path().join("pki"), "kubelet-client", None);
    let (sender, identity) = watch::channel(None);
    let (keeper, port) = mailbox(MAILBOX);
    Supervisor::root("test", Intensity::UNLIMITED).spawn(
        ChildSpec::permanent("certificate"),
        port,
        move || {
            let kept = (wanted.clone(), sender.clone());
            Rotation::new(purpose, store.clone(), peers.clone(), kept).renewed(renewal)
        },
    );
    RotationFixture {
        folder,
        keeper,
        identity,
    }
}

impl RotationFixture {
    async fn offered(&mut self) -> Arc<CertifiedKey> {
        let changed = tokio::time::timeout(SOON, self.identity.wait_for(Option::is_some));
        changed.await.unwrap().unwrap().clone().unwrap()
    }

    async fn next(&mut self) -> Option<Arc<CertifiedKey>> {
        self.identity.mark_unchanged();
        tokio::time::timeout(SOON, self.identity.changed())
            .await
            .unwrap()
            .unwrap();
        self.identity.borrow().clone()
    }
}

fn alone(api: &FakeSignerApi) -> Peers {
    Peers {
        client: client(api),
        bootstrap: None,
    }
}

/// Upstream's TestNewManagerBootstrap and TestRotateCertCreateCSRError.
#[test]
fn a_node_without_a_certificate_asks_with_its_bootstrap_credentials() {
    run_paused(|| async {
        let (own, bootstrap) = (api(SignerBehaviour::Away), api(SignerBehaviour::Signed));
        let peers = Peers {
            client: client(&own),
            bootstrap: Some(client(&bootstrap)),
        };
        let mut world = world(
            CertificatePurpose::Client,
            peers,
            Some(CertificateSubject::node("n1")),
        );
        let offered = world.offered().await;
        let current = world.folder.path().join("pki/kubelet-client-current.pem");
        let kept = load(&current, &current).unwrap();
        assert_eq!(kept.certified.cert, offered.cert);
        assert_eq!(kept.subject.common_name, "system:node:n1");
        let request = bootstrap.lock().unwrap().requests[0]["spec"].clone();
        assert_eq!(
            request["signerName"],
            "kubernetes.io/kube-apiserver-client-kubelet"
        );
        assert_eq!(
            request["usages"],
            json!(["digital signature", "client auth"])
        );
    });
}

/// Upstream's TestRotateCertWaitingForResultError and TestServerHealth.
#[test]
fn a_server_that_is_away_is_asked_until_it_is_back() {
    run_paused(|| async {
        let api = api(SignerBehaviour::Away);
        let mut world = world(
            CertificatePurpose::Client,
            alone(&api),
            Some(CertificateSubject::node("n1")),
        );
        let offered = tokio::time::timeout(Duration::from_secs(120), world.offered()).await;
        assert!(offered.is_err());
        api.lock().unwrap().verdict = SignerBehaviour::Signed;
        world.offered().await;
    });
}

#[test]
fn a_refused_request_is_made_again() {
    run_paused(|| async {
        let api = api(SignerBehaviour::Denied);
        let mut world = world(
            CertificatePurpose::Client,
            alone(&api),
            Some(CertificateSubject::node("n1")),
        );
        drop(tokio::time::timeout(Duration::from_secs(60), world.offered()).await);
        let asked = api.lock().unwrap().requests.len();
        assert!((2..10).contains(&asked), "{asked}");
        api.lock().unwrap().verdict = SignerBehaviour::Signed;
        world.offered().await;
    });
}

/// Upstream's TestShouldRotate: the next one comes before the first one is over.
#[test]
fn a_certificate_is_replaced_before_it_is_over() {
    run_paused(|| async {
        let api = api(SignerBehaviour::Signed);
        let mut world = world(
            CertificatePurpose::Client,
            alone(&api),
            Some(CertificateSubject::node("n1")),
        );
        let first = world.offered().await;
        let before = kernel::wall();
        let next = world.next().await.unwrap();
        assert_ne!(first.cert, next.cert);
        let used = kernel::wall().duration_since(before).unwrap();
        assert!(used > AN_HOUR * 6 / 10 && used < AN_HOUR, "{used:?}");
    });
}

/// Upstream's LoadClientCert: one at the start, and none after it, be it over.
#[test]
fn a_certificate_that_is_never_renewed_is_asked_for_once() {
    run_paused(|| async {
        let (own, bootstrap) = (api(SignerBehaviour::Signed), api(SignerBehaviour::Signed));
        let peers = Peers {
            client: client(&own),
            bootstrap: Some(client(&bootstrap)),
        };
        let subject = Some(CertificateSubject::node("n1"));
        let mut world = renewed(
            RotationPolicy::Never,
            CertificatePurpose::Client,
            peers,
            subject,
        );
        world.offered().await;
        let before = kernel::wall();
        assert!(world.next().await.is_none());
        let used = kernel::wall().duration_since(before).unwrap();
        assert!(used > AN_HOUR * 9 / 10, "{used:?}");
        tokio::time::sleep(SOON).await;
        assert_eq!(bootstrap.lock().unwrap().requests.len(), 1);
        assert_eq!(own.lock().unwrap().requests.len(), 0);
    });
}

#[test]
fn a_certificate_that_is_over_is_offered_no_more_and_asked_for_with_the_bootstrap_again() {
    run_paused(|| async {
        let (own, bootstrap) = (api(SignerBehaviour::Away), api(SignerBehaviour::Signed));
        let peers = Peers {
            client: client(&own),
            bootstrap: Some(client(&bootstrap)),
        };
        let mut world = world(
            CertificatePurpose::Client,
            peers,
            Some(CertificateSubject::node("n1")),
        );
        world.offered().await;
        assert!(world.next().await.is_none());
        assert!(world.next().await.is_some());
        assert_eq!(bootstrap.lock().unwrap().requests.len(), 2);
    });
}

#[test]
fn a_serving_certificate_waits_for_addresses_and_follows_them() {
    run_paused(|| async {
        let api = api(SignerBehaviour::Signed);
        let mut world = world(CertificatePurpose::Server, alone(&api), None);
        let early = tokio::time::timeout(AN_HOUR, world.offered()).await;
        assert!(early.is_err());
        for name in ["a.example.com", "b.example.com"] {
            let mut subject = CertificateSubject::node("n1");
            subject.names.insert(name.to_owned());
            let wanted = Msg::Wanted {
                subject: Some(subject),
            };
            world.keeper.tell(wanted).unwrap();
            let offered = world.next().await.unwrap();
            let (_, leaf) = x509_parser::parse_x509_certificate(&offered.cert[0]).unwrap();
            let names = leaf.subject_alternative_name().unwrap().unwrap();
            assert!(format!("{names:?}").contains(name));
        }
        let spec = api.lock().unwrap().requests[0]["spec"].clone();
        assert_eq!(spec["signerName"], "kubernetes.io/kubelet-serving");
    });
}

/// Upstream asks again each second; a signer that never does it right is not worth that.
#[test]
fn a_certificate_that_lacks_a_name_is_used_and_another_is_asked_for_in_peace() {
    run_paused(|| async {
        let api = api(SignerBehaviour::Nameless);
        let mut subject = CertificateSubject::node("n1");
        subject.names.insert("a.example.com".to_owned());
        let mut world = world(CertificatePurpose::Server, alone(&api), Some(subject));
        world.offered().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = api.lock().unwrap().requests.len();
        assert!((2..8).contains(&asked), "{asked}");
        api.lock().unwrap().verdict = SignerBehaviour::Signed;
        let offered = world.next().await.unwrap();
        let (_, leaf) = x509_parser::parse_x509_certificate(&offered.cert[0]).unwrap();
        assert!(leaf.subject_alternative_name().unwrap().is_some());
    });
}
