//! What is watched, and for how long.

use super::*;

#[test]
fn what_a_pod_refers_to_is_on_the_shelf_before_it_is_supplied() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"p": "eA=="}});
        rig.script
            .put("/api/v1/namespaces/apps/secrets/login", secret);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"labels": {"a": "b"}},
            "spec": {"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [{"port": 443, "targetPort": 6443}]}});
        rig.script.put(
            "/api/v1/namespaces/default/services/kubernetes",
            service.clone(),
        );
        rig.script
            .put("/api/v1/namespaces/apps/services/web", service.clone());
        rig.script
            .put("/api/v1/namespaces/other/services/far", service);
        let volumes =
            json!([{"configMap": {"name": "settings"}}, {"secret": {"secretName": "login"}}]);
        rig.pods(&[&pod("a", volumes)]).await;

        assert!(rig.is_supplied("a"));
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
        assert!(rig.store.secret("apps", "login").is_some());
        let services = rig.store.services();
        let names: Vec<_> = services
            .iter()
            .filter_map(|s| s.metadata.name.as_deref())
            .collect();
        assert_eq!(names, ["web", "kubernetes"]);
        // What no container is told is not kept.
        assert!(services.iter().all(|s| s.metadata.labels.is_none()));
        assert!(
            services
                .iter()
                .all(|s| s.spec.as_ref().unwrap().selector.is_none())
        );
    });
}

#[test]
fn what_nobody_has_asked_for_yet_is_never_taken_for_absent() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("other", "one");
        rig.script.hold("configmaps");
        rig.manager
            .tell(Msg::Pods {
                pods: vec![mapped("a", &["settings"])],
            })
            .unwrap();
        rig.settle().await;
        assert!(!rig.is_supplied("a"));
        let unknown = "failed to sync configmap cache: timed out waiting for the condition";
        assert_eq!(rig.refused("settings").as_deref(), Some(unknown));
        rig.script.unhold();
        rig.settle().await;
        // Now it is known that there is none.
        assert!(rig.is_supplied("a"));
        assert_eq!(
            (rig.value("settings"), rig.refused("settings")),
            (None, None)
        );
    });
}

#[test]
fn one_stuck_object_delays_only_its_own_pods() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.script.hold("secrets");
        let stuck = pod("stuck", json!([{"secret": {"secretName": "slow"}}]));
        rig.pods(&[&stuck, &mapped("free", &["settings"])]).await;
        assert!(rig.is_supplied("free") && !rig.is_supplied("stuck"));
    });
}

#[test]
fn an_object_that_is_made_changed_or_deleted_is_seen_at_once() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&mapped("a", &["settings"])]).await;
        assert_eq!(rig.value("settings"), None);
        rig.put_map("settings", "one");
        rig.settle().await;
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
        rig.put_map("settings", "two");
        rig.settle().await;
        assert_eq!(rig.value("settings").as_deref(), Some("two"));
        rig.script.delete(&map_path("settings"));
        rig.settle().await;
        assert_eq!(
            (rig.value("settings"), rig.refused("settings")),
            (None, None)
        );
    });
}

/// Upstream's TestSecretCacheMultipleRegistrations and TestCacheRefcounts.
#[test]
fn an_object_has_one_watch_however_many_pods_refer_to_it_and_none_when_nobody_does() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("shared", "one");
        rig.pods(&[]).await;
        let always = rig.script.watchers();
        let pods: Vec<_> = (0..20)
            .map(|n| mapped(&format!("p{n}"), &["shared"]))
            .collect();
        rig.pods(&pods.iter().collect::<Vec<_>>()).await;
        // The map, the services of the namespace, and the API's own service.
        assert_eq!(rig.script.watchers(), always + 3);
        assert_eq!(rig.script.heard("configmaps"), 2);
        rig.pods(&pods[..1].iter().collect::<Vec<_>>()).await;
        assert_eq!(rig.script.watchers(), always + 3);
        rig.pods(&[]).await;
        assert_eq!(rig.script.watchers(), always);
        assert_eq!(rig.value("shared"), None);
        assert_eq!(rig.view().await["wanted"], 1);
    });
}

/// Upstream's TestImmutableSecretStopsTheReflector.
#[test]
fn an_immutable_object_is_not_watched() {
    run_paused(|| async {
        let mut rig = Rig::new();
        let mut closed = map("one");
        closed["immutable"] = json!(true);
        rig.script.put(&map_path("closed"), closed.clone());
        rig.put_map("open", "one");
        rig.pods(&[&mapped("a", &["closed", "open"])]).await;
        assert_eq!(rig.script.heard("closed"), 1);
        assert_eq!(rig.script.heard("open"), 2);
        rig.script.put(&map_path("open"), closed);
        rig.settle().await;
        let before = rig.script.watchers();
        rig.pass(10 * MINUTE).await;
        rig.pods(&[&mapped("a", &["closed", "open"]), &mapped("b", &["closed"])])
            .await;
        assert_eq!(
            (rig.script.heard("closed"), rig.script.heard("open")),
            (1, 2)
        );
        assert_eq!(rig.script.watchers(), before);
        assert!(rig.is_supplied("b"));
    });
}

#[test]
fn an_object_that_did_not_change_is_the_very_same_after_another_list() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        rig.pods(&[&mapped("a", &["settings"])]).await;
        let before = rig.store.config_map("apps", "settings").unwrap();
        rig.script.forget();
        rig.script.go_away();
        rig.pass(MINUTE).await;
        rig.script
            .refuse("configmaps", 410, "too old resource version");
        rig.script.come_back();
        rig.pass(2 * MINUTE).await;
        rig.script.allow("configmaps");
        rig.pass(2 * MINUTE).await;
        assert!(rig.script.heard("settings ask") > 1);
        let after = rig.store.config_map("apps", "settings").unwrap();
        assert!(Arc::ptr_eq(&before, &after));
    });
}

#[test]
fn who_wrote_what_is_not_kept() {
    run_paused(|| async {
        let mut rig = Rig::new();
        let mut written = map("one");
        written["metadata"] = json!({"managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}});
        rig.script.put(&map_path("settings"), written);
        rig.pods(&[&mapped("a", &["settings"])]).await;
        let kept = rig.store.config_map("apps", "settings").unwrap();
        assert_eq!(kept.metadata.managed_fields, None);
        assert_eq!(kept.metadata.annotations, None);
    });
}

#[test]
fn what_the_api_refuses_is_told_in_its_words_until_it_allows_it() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        let words = "configmaps \"settings\" is forbidden: no relationship found between node and this object";
        rig.script.refuse("configmaps", 403, words);
        rig.pods(&[&mapped("a", &["settings"])]).await;
        assert!(!rig.is_supplied("a"));
        rig.pass(Duration::from_secs(5)).await;
        // It lasts: the pod may start, and reports the error itself.
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.refused("settings").as_deref(), Some(words));
        rig.pass(10 * MINUTE).await;
        let asked = rig.script.heard("configmaps");
        assert!((5..40).contains(&asked), "{asked}");
        rig.script.allow("configmaps");
        rig.pass(MINUTE).await;
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
        assert_eq!(rig.refused("settings"), None);
    });
}

/// The authorizer and the admission of nodes' requests follow pods by watches of their own, which may be behind the node's.
#[test]
fn what_the_api_refuses_for_a_moment_is_there_a_moment_later() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        let words = "no relationship found between node 'worker-1' and this object";
        rig.script.refuse("configmaps", 403, words);
        rig.pods(&[&mapped("a", &["settings"])]).await;
        assert!(!rig.is_supplied("a"));
        rig.script.allow("configmaps");
        rig.pass(3 * MOMENT).await;
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
    });
}

/// Upstream's `RegisterPod` of a pod that is known, such as one that got an ephemeral container.
#[test]
fn a_reference_that_comes_later_is_asked_for_and_one_that_goes_is_let_go() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("one", "1");
        rig.put_map("two", "2");
        rig.pods(&[&mapped("a", &["one"])]).await;
        assert!(rig.is_supplied("a"));
        rig.script.hold("configmaps");
        rig.pods(&[&mapped("a", &["one", "two"])]).await;
        assert!(!rig.is_supplied("a"));
        rig.script.unhold();
        rig.settle().await;
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.value("two").as_deref(), Some("2"));
        rig.pods(&[&mapped("a", &["two"])]).await;
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.value("one"), None);
    });
}

#[test]
fn a_pod_that_comes_after_an_object_was_found_absent_makes_it_looked_for_again() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&mapped("a", &["settings"])]).await;
        rig.script.forget();
        rig.pods(&[&mapped("a", &["settings"]), &mapped("b", &["settings"])])
            .await;
        assert_eq!(rig.script.heard("configmaps"), 2);
        assert!(rig.is_supplied("b"));
        rig.script.forget();
        let (a, b) = (mapped("a", &["settings"]), mapped("b", &["settings"]));
        rig.pods(&[&a, &b]).await;
        assert_eq!(rig.script.heard("configmaps"), 0);
    });
}

/// Upstream's TestSecretStoreGetAlwaysRefresh, TestSecretStoreGetNeverRefresh and TestCacheInvalidation.
#[test]
fn a_fetched_object_is_fetched_again_for_a_new_pod_and_after_a_while() {
    for (detection, ttl, every) in [
        (ChangeDetection::Get, None, MINUTE),
        (ChangeDetection::Cache, Some(Duration::ZERO), MINUTE),
        (ChangeDetection::Cache, None, MINUTE),
        (ChangeDetection::Cache, Some(5 * MINUTE), 5 * MINUTE),
    ] {
        run_paused(|| async move {
            let mut rig = Rig::with(RigOptions {
                detection,
                ..RigOptions::default()
            });
            rig.manager.tell(Msg::Node { ttl, uid: None }).unwrap();
            rig.put_map("settings", "one");
            rig.pods(&[&mapped("a", &["settings"])]).await;
            assert_eq!(rig.script.heard("configmaps"), 1);
            rig.put_map("settings", "two");
            rig.pods(&[&mapped("a", &["settings"]), &mapped("b", &["settings"])])
                .await;
            assert_eq!(rig.script.heard("configmaps"), 2);
            assert_eq!(rig.value("settings").as_deref(), Some("two"));
            assert!(rig.is_supplied("b"));
            rig.script.forget();
            rig.put_map("settings", "three");
            rig.pass(every - 2 * MOMENT).await;
            assert_eq!(rig.script.heard("configmaps"), 0);
            rig.pass(every / 4).await;
            assert_eq!(rig.script.heard("configmaps"), 1);
            assert_eq!(rig.value("settings").as_deref(), Some("three"));
        });
    }
}

#[test]
fn an_answer_that_is_older_than_a_pod_does_not_count_for_it() {
    run_paused(|| async {
        let mut rig = Rig::with(RigOptions {
            detection: ChangeDetection::Get,
            ..RigOptions::default()
        });
        rig.script.hold("configmaps");
        rig.pods(&[&mapped("a", &["settings"])]).await;
        rig.pods(&[&mapped("a", &["settings"]), &mapped("b", &["settings"])])
            .await;
        assert_eq!(rig.script.heard("configmaps"), 1);
        rig.script.unhold();
        rig.settle().await;
        assert_eq!(rig.script.heard("configmaps"), 2);
        assert!(rig.is_supplied("a") && rig.is_supplied("b"));
    });
}

#[test]
fn objects_of_the_folder_fill_what_the_api_has_not() {
    run_paused(|| async {
        let manifest = |name: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: apps}}, data: {{k: folder}}}}"
            );
            logic_api::objects::parse(text.as_bytes()).objects
        };
        let mut all = manifest("both");
        drop(all.merge(manifest("only")));
        let (folder, shelf) = ObjectStore::new(all);
        let mut rig = Rig::with(RigOptions {
            folder: Some(shelf),
            ..RigOptions::default()
        });
        rig.put_map("both", "api");
        rig.pods(&[&mapped("a", &["both", "only", "later"])]).await;
        assert_eq!(rig.value("both").as_deref(), Some("api"));
        assert_eq!(rig.value("only").as_deref(), Some("folder"));
        folder.send_replace(Arc::new(manifest("later")));
        rig.settle().await;
        assert_eq!(rig.value("later").as_deref(), Some("folder"));
        assert_eq!(rig.value("only"), None);
    });
}

#[test]
fn a_runtime_class_is_followed_by_its_name() {
    run_paused(|| async {
        let mut rig = Rig::new();
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {}, "handler": "h"});
        rig.script
            .put("/apis/node.k8s.io/v1/runtimeclasses/fast", class);
        let mut classed = Pod::clone(&mapped("a", &[]));
        classed.spec.get_or_insert_default().runtime_class_name = Some("fast".into());
        rig.pods(&[&Arc::new(classed)]).await;
        assert_eq!(rig.store.runtime_class("fast").unwrap().handler, "h");
        assert_eq!(rig.script.heard("fieldSelector=metadata.name%3Dfast"), 2);
    });
}

#[test]
fn trust_bundles_are_watched_only_for_pods_that_name_them_and_may_be_unknown_to_the_api() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.script.refuse(
            "clustertrustbundles",
            404,
            "the server could not find the requested resource",
        );
        rig.pods(&[&mapped("a", &[])]).await;
        assert_eq!(rig.script.heard("clustertrustbundles"), 0);
        let source = json!({"clusterTrustBundle": {"name": "roots", "path": "p"}});
        let trusting = pod("b", json!([{"projected": {"sources": [source]}}]));
        rig.pods(&[&trusting]).await;
        assert!(rig.is_supplied("b"));
        let why = rig.store.refused("ClusterTrustBundle", "", "");
        assert_eq!(
            why.as_deref(),
            Some("the server could not find the requested resource")
        );
        rig.script.allow("clustertrustbundles");
        let bundle = json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": {},
                            "spec": {"trustBundle": "pem"}});
        rig.script.put(
            "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/roots",
            bundle,
        );
        rig.pass(2 * MINUTE).await;
        assert_eq!(rig.store.trust_bundles().len(), 1);
        assert_eq!(rig.store.refused("ClusterTrustBundle", "", ""), None);
    });
}

/// Upstream's TestLazyInformerManager_ensureManagerSet.
#[test]
fn trust_bundles_are_of_the_newest_version_that_the_api_has() {
    let bundle = |version: &str, text: &str| {
        json!({"apiVersion": format!("certificates.k8s.io/{version}"), "kind": "ClusterTrustBundle", "metadata": {},
               "spec": {"trustBundle": text, "signerName": "example.com/s"}})
    };
    for (refused, expected) in [
        (&[][..], Ok("beta")),
        (&[("v1alpha1/clustertrustbundles", 404)], Ok("beta")),
        (&[("v1beta1/clustertrustbundles", 404)], Ok("alpha")),
        (&[("/clustertrustbundles", 404)], Err("no")),
        (&[("v1beta1/clustertrustbundles", 403)], Err("no")),
        (&[("v1alpha1/clustertrustbundles", 500)], Ok("beta")),
    ] {
        run_paused(move || async move {
            let mut rig = Rig::new();
            for (version, text) in [("v1alpha1", "alpha"), ("v1beta1", "beta")] {
                let path = format!("/apis/certificates.k8s.io/{version}/clustertrustbundles/roots");
                rig.script.put(&path, bundle(version, text));
            }
            for (part, code) in refused {
                rig.script.refuse(part, *code, "no");
            }
            let source = json!({"clusterTrustBundle": {"name": "roots", "path": "p"}});
            rig.pods(&[&pod("a", json!([{"projected": {"sources": [source]}}]))])
                .await;
            assert!(rig.is_supplied("a"), "{refused:?}");
            let bundles = rig.store.trust_bundles();
            let found = match bundles.as_slice() {
                [only] => Ok(only.spec.trust_bundle.clone()),
                _ => Err(rig.store.refused("ClusterTrustBundle", "", "").unwrap()),
            };
            let found = found.as_deref().map_err(String::as_str);
            assert_eq!(found, expected, "{refused:?}");
        });
    }
}

#[test]
fn a_pod_that_has_ended_holds_nothing() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        let running = mapped("a", &["settings"]);
        rig.pods(&[&running]).await;
        rig.manager.tell(Msg::Ended { uid: uid("a") }).unwrap();
        rig.settle().await;
        assert_eq!(rig.value("settings"), None);
        assert!(rig.is_supplied("a"));
        rig.pods(&[&running]).await;
        assert_eq!(rig.value("settings"), None);
    });
}

#[test]
fn what_a_pod_that_has_ended_needed_stays_gone_when_the_keeper_falls() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        rig.pods(&[&mapped("a", &["settings"])]).await;
        rig.manager.tell(Msg::Ended { uid: uid("a") }).unwrap();
        rig.settle().await;
        rig.root
            .inject("test/keeper", InjectedFault::Panic)
            .unwrap();
        rig.manager
            .tell(Msg::Node {
                ttl: None,
                uid: None,
            })
            .unwrap();
        rig.settle().await;
        assert_eq!(rig.value("settings"), None);
    });
}

/// Upstream never syncs such a pod, and so registers none of its objects.
#[test]
fn a_pod_that_comes_as_one_that_has_ended_needs_nothing() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        let mut over = (*mapped("a", &["settings"])).clone();
        over.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        rig.pods(&[&Arc::new(over)]).await;
        assert_eq!(rig.value("settings"), None);
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.script.heard("configmaps"), 0);
    });
}
