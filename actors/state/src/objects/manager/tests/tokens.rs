//! Tokens: requested, renewed, kept while the server does not answer, gone with the pod.

use logic_api::objects::TokenSpec;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn tokened(name: &str) -> Arc<Pod> {
    let source = json!({"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 7200}});
    pod(name, json!([{"projected": {"sources": [source]}}]))
}

fn token(rig: &Rig, name: &str) -> Option<String> {
    token_for(rig, name, 7200)
}

fn token_for(rig: &Rig, name: &str, expiration_seconds: i64) -> Option<String> {
    let wanted = wanted(name, expiration_seconds);
    rig.store.token(&wanted).map(|found| found.token)
}

fn wanted(name: &str, expiration_seconds: i64) -> TokenSpec {
    TokenSpec {
        namespace: "apps".into(),
        service_account: "worker".into(),
        audiences: vec!["vault".into()],
        expiration_seconds,
        pod_name: name.into(),
        pod_uid: format!("{name}-uid"),
    }
}

#[test]
fn a_token_is_asked_for_in_the_pods_name() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&tokened("a")]).await;
        assert!(rig.is_supplied("a"));
        assert_eq!(token(&rig, "a").as_deref(), Some("token-1"));
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a-uid"});
        let expected = json!({
            "path": "/api/v1/namespaces/apps/serviceaccounts/worker/token",
            "spec": {"audiences": ["vault"], "expirationSeconds": 7200, "boundObjectRef": bound},
        });
        assert_eq!(rig.script.asked(), [expected]);
    });
}

/// Upstream's TestTokenCachingAndExpiration.
#[test]
fn a_token_is_renewed_when_a_fifth_of_its_life_is_left() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&tokened("a")]).await;
        rig.pass(HOUR * 4 / 5 - Duration::from_secs(12)).await;
        assert_eq!(token(&rig, "a").as_deref(), Some("token-1"));
        // It is looked at every five minutes, and a little later.
        rig.pass(7 * MINUTE).await;
        assert_eq!(token(&rig, "a").as_deref(), Some("token-2"));
        rig.pass(24 * HOUR).await;
        let asked = rig.script.asked().len();
        assert!((25..36).contains(&asked), "{asked}");
    });
}

/// Upstream's TestKeyFunc: a token is asked for again for another pod, life or audience.
#[test]
fn a_token_is_for_exactly_what_was_asked_for() {
    run_paused(|| async {
        let mut rig = Rig::new();
        let source = |audience: &str, seconds: i64| {
            json!({"serviceAccountToken": {"path": format!("{audience}{seconds}"), "audience": audience,
                                           "expirationSeconds": seconds}})
        };
        let sources = [
            source("vault", 7200),
            source("vault", 7201),
            source("other", 7200),
            source("vault", 7200),
        ];
        let many = pod("a", json!([{"projected": {"sources": sources}}]));
        rig.pods(&[&many, &tokened("b")]).await;
        let wanted = |pod_name: &str, uid: &str, audience: &str, expiration_seconds| TokenSpec {
            namespace: "apps".into(),
            service_account: "worker".into(),
            audiences: vec![audience.into()],
            expiration_seconds,
            pod_name: pod_name.into(),
            pod_uid: uid.into(),
        };
        let given = |wanted: TokenSpec| rig.store.token(&wanted).map(|found| found.token);
        let tokens = [
            given(wanted("a", "a-uid", "vault", 7200)),
            given(wanted("a", "a-uid", "vault", 7201)),
            given(wanted("a", "a-uid", "other", 7200)),
            given(wanted("b", "b-uid", "vault", 7200)),
        ];
        let different: std::collections::BTreeSet<_> = tokens.iter().flatten().collect();
        assert_eq!(different.len(), 4, "{tokens:?}");
        assert_eq!(
            rig.script.asked().len(),
            4,
            "what is equal is asked for once"
        );
        for other in [
            wanted("a", "a-uid", "vault", 7202),
            wanted("a", "new-uid", "vault", 7200),
            wanted("c", "a-uid", "vault", 7200),
        ] {
            assert_eq!(given(other), None);
        }
    });
}

#[test]
fn a_token_stays_until_another_comes() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&tokened("a")]).await;
        rig.script.go_away();
        rig.pass(HOUR - MINUTE).await;
        assert_eq!(token(&rig, "a").as_deref(), Some("token-1"));
        rig.script.come_back();
        rig.pass(MINUTE).await;
        assert_eq!(token(&rig, "a").as_deref(), Some("token-2"));
    });
}

/// Upstream's TestDeleteServiceAccountToken and TestCleanup.
#[test]
fn a_token_goes_with_its_pod() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&tokened("a"), &tokened("b")]).await;
        rig.pods(&[&tokened("b")]).await;
        assert_eq!(token(&rig, "a"), None);
        assert!(token(&rig, "b").is_some());
        assert_eq!(rig.view().await["tokens"], 1);
        rig.pass(HOUR).await;
        let asked = rig.script.asked();
        let of = |name: &str| {
            let own = asked
                .iter()
                .filter(|one| one["spec"]["boundObjectRef"]["name"] == name);
            own.count()
        };
        assert_eq!((of("a"), of("b")), (1, 2));
    });
}

#[test]
fn a_refused_token_is_told_in_the_apis_words_and_asked_for_again_at_leisure() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.script.refuse(
            "serviceaccounts",
            404,
            "serviceaccounts \"worker\" not found",
        );
        rig.pods(&[&tokened("a")]).await;
        assert!(rig.is_supplied("a"));
        let why = rig.store.refused_token(&wanted("a", 7200));
        assert_eq!(why.as_deref(), Some("serviceaccounts \"worker\" not found"));
        rig.pass(10 * MINUTE).await;
        let asked = rig.script.heard("serviceaccounts");
        assert!((10..20).contains(&asked), "{asked}");
        rig.script.allow("serviceaccounts");
        rig.pass(2 * MINUTE).await;
        assert!(token(&rig, "a").is_some());
    });
}

#[test]
fn a_remembered_token_is_used_and_renewed_only_when_it_is_old() {
    run_paused(|| async {
        let mut first = Rig::new();
        first.pods(&[&tokened("a")]).await;
        let remembered = StaticObjects::clone(&first.store.snapshot());
        let mut rig = Rig::with(RigOptions {
            remembered,
            supplied: vec!["a"],
            ..RigOptions::default()
        });
        rig.pods(&[&tokened("a")]).await;
        assert_eq!(token(&rig, "a").as_deref(), Some("token-1"));
        assert!(rig.script.asked().is_empty());
        rig.pass(HOUR).await;
        assert_eq!(rig.script.asked().len(), 1);
    });
}

#[test]
fn a_driver_gets_the_tokens_that_its_object_asks_for() {
    run_paused(|| async {
        let mut rig = Rig::new();
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {},
                            "spec": {"tokenRequests": [{"audience": "vault", "expirationSeconds": 1200}]}});
        rig.script
            .put("/apis/storage.k8s.io/v1/csidrivers/csi.example.com", driver);
        rig.script.set_life(1200);
        rig.pods(&[&pod("a", json!([{"csi": {"driver": "csi.example.com"}}]))])
            .await;
        assert!(token_for(&rig, "a", 1200).is_some());
        assert_eq!(rig.script.asked()[0]["spec"]["expirationSeconds"], 1200);
        assert!(rig.is_supplied("a"));
    });
}

#[test]
fn no_token_is_shown() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&tokened("a")]).await;
        let shown = format!("{} {:?}", rig.view().await, rig.store);
        assert!(!shown.contains("token-1"), "{shown}");
    });
}

/// `kubectl delete --force --grace-period=0`, and a pod without a grace period: the API has no pod any more, its containers
/// end, and nothing may be asked for in its name.
#[test]
fn a_pod_that_the_api_has_removed_keeps_its_token_until_its_worker_is_done() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        let (a, b) = (tokened("a"), mapped("b", &["settings"]));
        rig.pods(&[&a, &b]).await;
        rig.list(&[]).await;
        rig.script.forget();
        rig.put_map("settings", "two");
        rig.pass(2 * HOUR).await;
        assert_eq!(token(&rig, "a").as_deref(), Some("token-1"));
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
        assert_eq!(rig.script.heard("namespaces/apps"), 0);
        assert!(rig.supplied.is_empty());
        // Another pod gets the object as it is now.
        let c = mapped("c", &["settings"]);
        rig.list(&[&c]).await;
        assert!(rig.is_supplied("c"));
        assert_eq!(rig.value("settings").as_deref(), Some("two"));
        rig.ended("a").await;
        assert_eq!(token(&rig, "a"), None);
        assert_eq!(rig.view().await["pods"], 2);
        // B never had a worker, or it has ended without a word.
        let pods = BTreeSet::from([uid("c")]);
        rig.manager.tell(Msg::Workers { pods }).unwrap();
        rig.settle().await;
        assert_eq!(rig.view().await["pods"], 1);
    });
}

/// The watches of the API server's authorizer and admission are some milliseconds behind the node's.
#[test]
fn a_token_that_is_refused_because_the_api_server_is_behind_is_asked_for_again_without_a_word() {
    let behind = "pods \"a\" is forbidden: node requested token bound to a pod scheduled on a different node";
    let unknown = "serviceaccounts \"worker\" is forbidden: no relationship found between node \"worker-1\" and this object";
    for (code, words) in [(403, behind), (403, unknown), (404, "pods \"a\" not found")] {
        run_paused(|| async {
            let mut rig = Rig::new();
            rig.script.refuse("serviceaccounts", code, words);
            rig.pods(&[&tokened("a")]).await;
            assert!(!rig.is_supplied("a"), "{words}");
            assert!(rig.view().await["troubles"].as_object().unwrap().is_empty());
            rig.script.allow("serviceaccounts");
            rig.pass(3 * MOMENT).await;
            assert!(rig.is_supplied("a"), "{words}");
            assert!(token(&rig, "a").is_some());
        });
        run_paused(|| async {
            let mut rig = Rig::new();
            rig.script.refuse("serviceaccounts", code, words);
            rig.pods(&[&tokened("a"), &tokened("b")]).await;
            rig.pass(3 * Duration::from_secs(1)).await;
            // It lasts: the pod may start, and reports the error itself.
            assert!(rig.is_supplied("a"), "{words}");
            let why = rig.store.refused_token(&wanted("a", 7200));
            assert_eq!(why.as_deref(), Some(words));
            let asked = rig.script.heard("serviceaccounts/worker/token");
            assert!((8..40).contains(&asked), "{asked}");
        });
    }
}

#[test]
fn the_pods_of_an_account_are_told_only_about_their_own_tokens() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&tokened("a")]).await;
        rig.script.hold("serviceaccounts");
        rig.pods(&[&tokened("a"), &tokened("b")]).await;
        assert_eq!(rig.store.refused_token(&wanted("a", 7200)), None);
        let why = rig.store.refused_token(&wanted("b", 7200));
        assert_eq!(why.as_deref(), Some("the API server has not answered yet"));
    });
}
