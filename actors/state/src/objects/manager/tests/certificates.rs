//! Pods' certificates: asked for, awaited, renewed with a new key, refused for good, and found again after a restart.

use jiff::SignedDuration;
use logic_api::objects::{
    GATE_IS_OFF, Issuance, PendingCertificateRequest, PodCertificate, PodCertificateSpec,
};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const REQUESTS: &str = "podcertificaterequests";
/// One block, which is all that these tests read.
const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nbGVhZg==\n-----END CERTIFICATE-----\n";

fn of_type(name: &str, key_type: &str) -> Arc<Pod> {
    let source = json!({"podCertificate": {
        "signerName": "example.com/a", "keyType": key_type, "maxExpirationSeconds": 86_400,
        "credentialBundlePath": "bundle.pem", "userAnnotations": {"example.com/b": "c"},
    }});
    pod(name, json!([{"projected": {"sources": [source]}}]))
}

fn certified(name: &str) -> Arc<Pod> {
    of_type(name, "ED25519")
}

fn wanted(pod: &Arc<Pod>) -> PodCertificateSpec {
    references(pod).certificates.into_iter().next().unwrap()
}

/// A server that knows the account and the node.
fn furnished(start: RigOptions) -> Rig {
    let rig = Rig::with(start);
    let uid = |uid: &str| json!({"metadata": {"uid": uid}});
    let account = "/api/v1/namespaces/apps/serviceaccounts/worker";
    rig.script.put(account, uid("worker-uid"));
    rig.script.put("/api/v1/nodes/worker-1", uid("node-uid"));
    rig
}

impl Rig {
    fn requests(&self) -> Vec<(String, Value)> {
        self.script.objects(REQUESTS)
    }

    /// The only one.
    fn request(&self) -> (String, Value) {
        let mut all = self.requests();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn found(&self, pod: &Arc<Pod>) -> PodCertificate {
        self.store.pod_certificate(&wanted(pod))
    }

    fn key(&self, pod: &Arc<Pod>) -> Option<Vec<u8>> {
        match self.found(pod) {
            PodCertificate::Issued(held) => Some(held.key_pem),
            PodCertificate::Denied { .. }
            | PodCertificate::Failed { .. }
            | PodCertificate::NotYet { .. } => None,
        }
    }

    fn missing(&self, pod: &Arc<Pod>) -> String {
        let found = self.found(pod);
        let PodCertificate::NotYet { missing } = found else {
            panic!("{found:?}");
        };
        missing
    }

    /// Signs a request, good for so long, to be renewed after `fresh`.
    fn issue(&self, path: &str, fresh: Duration, life: Duration) {
        let now = kernel::timestamp();
        let later = |time: Duration| now + SignedDuration::try_from(time).unwrap();
        self.answer(
            path,
            "Issued",
            json!({"certificateChain": CHAIN, "notBefore": now, "beginRefreshAt": later(fresh), "notAfter": later(life)}),
        );
    }

    fn answer(&self, path: &str, word: &str, mut status: Value) {
        let (_, mut request) = self
            .requests()
            .into_iter()
            .find(|(own, _)| own == path)
            .unwrap();
        status["conditions"] = json!([{"type": word, "status": "True", "reason": "R", "message": "M",
                                       "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
        request["status"] = status;
        self.script.put(path, request);
    }

    fn told(&mut self) -> Vec<String> {
        let told = self.events.drain().into_iter().map(|msg| {
            let events::Msg::Record(event) = msg else {
                panic!("{msg:?}");
            };
            format!("{} {}: {}", event.object.name, event.reason, event.message)
        });
        told.collect()
    }
}

/// Upstream's TestTransitionInitialToWait.
#[test]
fn a_certificate_is_asked_for_in_the_pods_name() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        let (path, request) = rig.request();
        let name = request["metadata"]["name"].as_str().unwrap();
        let collection = "/apis/certificates.k8s.io/v1beta1/namespaces/apps/podcertificaterequests";
        assert_eq!(path, format!("{collection}/{name}"));
        assert!(name.starts_with("req-"), "{name}");
        let mut spec = request["spec"].clone();
        assert!(spec["stubPKCS10Request"].take().as_str().unwrap().len() > 100);
        let expected = json!({
            "signerName": "example.com/a", "podName": "a", "podUID": "a-uid", "serviceAccountName": "worker",
            "serviceAccountUID": "worker-uid", "nodeName": "worker-1", "nodeUID": "node-uid",
            "maxExpirationSeconds": 86_400, "stubPKCS10Request": null,
            "unverifiedUserAnnotations": {"example.com/b": "c"},
        });
        assert_eq!(spec, expected);
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a-uid"}]);
        assert_eq!(request["metadata"]["ownerReferences"], owner);
        let expected = format!("PodCertificateRequest apps/{name} is not answered");
        assert_eq!(rig.missing(&a), expected);
        assert!(!rig.is_supplied("a"));
    });
}

/// Upstream's TestFullFlow.
#[test]
fn an_issued_certificate_supplies_the_pod_and_nobody_watches_any_more() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        rig.pods(&[]).await;
        let idle = rig.script.watchers();
        let a = certified("a");
        rig.pods(&[&a]).await;
        let (path, _) = rig.request();
        let watching = rig.script.watchers();
        rig.issue(&path, HOUR * 2, HOUR * 3);
        rig.settle().await;
        let PodCertificate::Issued(held) = rig.found(&a) else {
            panic!("it is not issued");
        };
        assert!(held.key_pem.starts_with(b"-----BEGIN PRIVATE KEY-----\n"));
        assert_eq!(held.chain_pem, CHAIN.as_bytes());
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.script.watchers(), watching - 1);
        assert!(watching > idle);
        assert_eq!(rig.view().await["certificates"], 1);
        assert_eq!(rig.script.heard("POST"), 1);
    });
}

/// Upstream's TestFullFlow, its second half.
#[test]
fn a_certificate_is_renewed_in_time_with_another_key_and_kept_until_then() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        let (path, _) = rig.request();
        rig.issue(&path, HOUR, HOUR * 2);
        rig.pass(HOUR - MINUTE).await;
        let first = rig.key(&a).unwrap();
        assert_eq!(rig.requests().len(), 1);
        // The jitter is five minutes at most, and it is looked at every five.
        rig.pass(MINUTE * 11).await;
        let requests = rig.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(rig.key(&a), Some(first.clone()));
        let (next, _) = requests.iter().find(|(own, _)| *own != path).unwrap();
        rig.issue(next, HOUR, HOUR * 2);
        rig.settle().await;
        let second = rig.key(&a).unwrap();
        assert_ne!(first, second);
        assert!(rig.told().is_empty());
        rig.pass(MINUTE * 50).await;
        assert_eq!(rig.requests().len(), 2);
    });
}

#[test]
fn what_the_signer_refuses_is_told_and_never_asked_for_again() {
    for (word, told) in [("Denied", "was denied"), ("Failed", "failed")] {
        run_paused(move || async move {
            let mut rig = furnished(RigOptions::default());
            let a = certified("a");
            rig.pods(&[&a]).await;
            let (path, request) = rig.request();
            rig.answer(&path, word, json!({}));
            rig.settle().await;
            assert!(rig.is_supplied("a"));
            let found = format!("{:?}", rig.found(&a));
            assert!(found.starts_with(word), "{found}");
            let name = request["metadata"]["name"].as_str().unwrap();
            let expected = format!(
                "a {word}: PodCertificateRequest apps/{name} {told}, reason=\"R\", message=\"M\""
            );
            assert_eq!(rig.told(), [expected]);
            rig.script.delete(&path);
            rig.pass(HOUR * 24).await;
            assert_eq!(rig.script.heard("POST"), 1);
            assert_eq!(rig.told(), [""; 0]);
        });
    }
}

/// Upstream's TestPCRDeletedWhileWaiting.
#[test]
fn a_request_that_somebody_takes_away_is_made_again_with_its_key() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        let (path, before) = rig.request();
        rig.script.delete(&path);
        rig.pass(MINUTE).await;
        let (again, after) = rig.request();
        assert_eq!((again, &after["spec"]), (path.clone(), &before["spec"]));
        rig.issue(&path, HOUR, HOUR * 2);
        rig.settle().await;
        assert!(rig.key(&a).is_some());
    });
}

#[test]
fn a_signer_that_says_nothing_is_waited_for_without_a_flood() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        rig.script.forget();
        rig.pass(HOUR * 10).await;
        assert!(!rig.is_supplied("a"));
        assert_eq!(rig.script.heard("POST"), 0);
        // A watch lasts five to ten minutes, and is resumed.
        let asked = rig.script.heard(REQUESTS);
        assert!((1..=130).contains(&asked), "{asked}");
        let (path, _) = rig.request();
        rig.issue(&path, HOUR, HOUR * 2);
        rig.settle().await;
        assert!(rig.is_supplied("a"));
    });
}

/// The answer to the first one was lost, or the agent ended before it came.
#[test]
fn who_starts_again_finds_the_request_that_he_made() {
    run_paused(|| async {
        let a = certified("a");
        let mut first = furnished(RigOptions::default());
        first.pods(&[&a]).await;
        let (path, request) = first.request();
        let remembered = StaticObjects::clone(&first.store.snapshot());
        let mut rig = furnished(RigOptions {
            remembered,
            ..RigOptions::default()
        });
        rig.script.put(&path, request);
        rig.pods(&[&a]).await;
        assert_eq!(rig.request().0, path);
        rig.issue(&path, HOUR, HOUR * 2);
        rig.settle().await;
        assert!(rig.key(&a).is_some());
        assert_eq!(rig.requests().len(), 1);
    });
}

#[test]
fn a_remembered_certificate_is_used_and_nothing_is_asked_while_it_is_fresh() {
    run_paused(|| async {
        let a = certified("a");
        let mut first = furnished(RigOptions::default());
        first.pods(&[&a]).await;
        first.issue(&first.request().0, HOUR, HOUR * 2);
        first.settle().await;
        let remembered = StaticObjects::clone(&first.store.snapshot());
        let mut rig = furnished(RigOptions {
            remembered,
            ..RigOptions::default()
        });
        rig.script.go_away();
        rig.pods(&[&a]).await;
        assert_eq!(rig.key(&a), first.key(&a));
        assert_eq!(rig.script.heard("POST"), 0);
        rig.script.come_back();
        rig.pass(MINUTE * 50).await;
        assert_eq!(rig.script.heard("POST"), 0);
        rig.pass(MINUTE * 25).await;
        assert_eq!(rig.script.heard("POST"), 1);
        assert_eq!(rig.key(&a), first.key(&a));
    });
}

#[test]
fn a_name_that_another_request_has_is_given_up() {
    run_paused(|| async {
        let a = certified("a");
        let mut remembered = StaticObjects::default();
        let asked = PendingCertificateRequest {
            name: "req-1".into(),
            key_pem: b"key".to_vec(),
            request: b"mine".to_vec(),
        };
        let issuance = Issuance {
            asked: Some(asked),
            ..Issuance::default()
        };
        remembered.issuances.insert(wanted(&a), Arc::new(issuance));
        let mut rig = furnished(RigOptions {
            remembered,
            ..RigOptions::default()
        });
        let path = "/apis/certificates.k8s.io/v1beta1/namespaces/apps/podcertificaterequests/req-1";
        rig.script
            .put(path, json!({"spec": {"stubPKCS10Request": "b3RoZXJz"}}));
        rig.pods(&[&a]).await;
        rig.pass(MINUTE).await;
        let requests = rig.requests();
        assert_eq!(requests.len(), 2);
        let (own, _) = requests.iter().find(|(own, _)| own != path).unwrap();
        rig.issue(own, HOUR, HOUR * 2);
        rig.settle().await;
        assert_ne!(rig.key(&a), Some(b"key".to_vec()));
        assert!(rig.key(&a).is_some());
    });
}

#[test]
fn where_the_gate_is_off_nobody_asks_and_the_pod_learns_why() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions {
            asking: IssuancePolicy::Never,
            ..RigOptions::default()
        });
        rig.pods(&[&certified("a")]).await;
        assert!(rig.is_supplied("a"));
        let why = rig.store.refused("PodCertificateRequest", "apps", "a");
        assert_eq!(why.as_deref(), Some(GATE_IS_OFF));
        assert_eq!(rig.requests().len(), 0);
    });
}

#[test]
fn a_key_that_this_node_cannot_make_is_named_in_an_event_and_asks_nobody() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        rig.pods(&[&of_type("a", "RSA4096")]).await;
        let why =
            "this node makes no keys of type \"RSA4096\", but ECDSAP256, ECDSAP384 and ED25519";
        let event = format!("a UnsupportedKeyType: cannot ask for a certificate of the pod: {why}");
        assert_eq!(rig.told(), [event]);
        let refused = rig.store.refused("PodCertificateRequest", "apps", "a");
        assert_eq!(refused.as_deref(), Some(why));
        assert!(rig.is_supplied("a"));
        rig.pass(HOUR).await;
        assert_eq!(rig.requests().len(), 0);
        assert_eq!(rig.told(), [""; 0]);
    });
}

#[test]
fn a_renewal_that_nobody_answers_is_told_when_it_is_overdue_and_when_it_is_too_late() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        rig.issue(&rig.request().0, HOUR, HOUR * 2);
        rig.pass(HOUR + MINUTE * 9).await;
        assert_eq!(rig.told(), [""; 0]);
        rig.pass(MINUTE * 13).await;
        let overdue = "a CertificateOverdueForRefresh: PodCertificate refresh overdue";
        assert_eq!(rig.told(), [overdue]);
        rig.pass(MINUTE * 40).await;
        assert_eq!(rig.told(), ["a CertificateExpired: PodCertificate expired"]);
        rig.pass(HOUR * 5).await;
        assert_eq!(rig.told(), [""; 0]);
        assert_eq!(rig.requests().len(), 2);
    });
}

#[test]
fn a_refused_request_is_told_in_the_apis_words_and_made_again_at_leisure() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.script.refuse(REQUESTS, 403, "forbidden: not yours");
        rig.pods(&[&a]).await;
        assert!(rig.is_supplied("a"));
        let why = rig.store.refused("PodCertificateRequest", "apps", "a");
        assert_eq!(why.as_deref(), Some("forbidden: not yours"));
        rig.pass(MINUTE * 10).await;
        let asked = rig.script.heard("POST");
        assert!((10..20).contains(&asked), "{asked}");
        rig.script.allow(REQUESTS);
        rig.pass(MINUTE * 2).await;
        rig.issue(&rig.request().0, HOUR, HOUR * 2);
        rig.settle().await;
        assert!(rig.key(&a).is_some());
        let why = rig.store.refused("PodCertificateRequest", "apps", "a");
        assert_eq!(why, None);
    });
}

#[test]
fn an_outage_loses_no_request_and_makes_none_twice() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.script.go_away();
        rig.pods(&[&a]).await;
        rig.pass(MINUTE * 5).await;
        rig.script.come_back();
        rig.pass(MINUTE).await;
        let (path, _) = rig.request();
        rig.script.go_away();
        rig.pass(MINUTE * 5).await;
        rig.issue(&path, HOUR, HOUR * 2);
        rig.script.come_back();
        rig.pass(MINUTE).await;
        assert!(rig.key(&a).is_some());
        assert_eq!(rig.requests().len(), 1);
    });
}

#[test]
fn nonsense_is_told_and_the_next_word_counts() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        let (path, request) = rig.request();
        rig.answer(&path, "Issued", json!({"certificateChain": "no PEM"}));
        rig.settle().await;
        let name = request["metadata"]["name"].as_str().unwrap();
        let why = rig.store.refused("PodCertificateRequest", "apps", "a");
        let expected = format!("PodCertificateRequest {name} is issued without a certificate");
        assert_eq!(why, Some(expected));
        rig.issue(&path, HOUR, HOUR * 2);
        rig.settle().await;
        assert!(rig.key(&a).is_some());
    });
}

#[test]
fn a_certificate_goes_with_its_pod() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let (a, b) = (certified("a"), certified("b"));
        rig.pods(&[&a, &b]).await;
        for (path, _) in rig.requests() {
            rig.issue(&path, HOUR, HOUR * 2);
        }
        rig.pods(&[&b]).await;
        assert_eq!(rig.key(&a), None);
        assert!(rig.key(&b).is_some());
        rig.pass(MINUTE * 75).await;
        assert_eq!(rig.script.heard("POST"), 3);
    });
}

#[test]
fn no_key_of_a_pod_is_shown() {
    run_paused(|| async {
        let mut rig = furnished(RigOptions::default());
        let a = certified("a");
        rig.pods(&[&a]).await;
        rig.issue(&rig.request().0, HOUR, HOUR * 2);
        rig.settle().await;
        let key = String::from_utf8(rig.key(&a).unwrap()).unwrap();
        let secret = key.lines().nth(1).unwrap();
        let snapshot = rig.store.snapshot();
        let shown = format!(
            "{} {:?} {:?} {:?}",
            rig.view().await,
            rig.store,
            snapshot.issuances,
            rig.found(&a)
        );
        assert!(!shown.contains(secret), "{shown}");
    });
}
