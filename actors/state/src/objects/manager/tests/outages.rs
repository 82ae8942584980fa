//! The server is away, the object manager restarts, and what the store keeps for such times.

use super::*;

fn remembered() -> StaticObjects {
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: apps}, data: {k: kept}}";
    logic_api::objects::parse(text.as_bytes()).objects
}

#[test]
fn an_hour_without_the_server_takes_nothing_away_and_floods_nobody() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        rig.pods(&[&mapped("a", &["settings"])]).await;
        rig.script.go_away();
        rig.script.forget();
        rig.pass(60 * MINUTE).await;
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
        assert!(rig.is_supplied("a"));
        // Four watches, each at least every half minute to a minute.
        let asked = rig.script.heard("");
        assert!((4 * 50..4 * 140).contains(&asked), "{asked}");
        rig.put_map("settings", "two");
        rig.script.come_back();
        rig.pass(2 * MINUTE).await;
        assert_eq!(rig.value("settings").as_deref(), Some("two"));
    });
}

#[test]
fn a_pod_that_comes_during_an_outage_is_supplied_when_it_is_over() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        rig.script.go_away();
        rig.pods(&[&mapped("a", &["settings"])]).await;
        rig.pass(5 * MINUTE).await;
        assert!(!rig.is_supplied("a"));
        assert!(rig.refused("settings").is_some());
        rig.script.come_back();
        rig.pass(2 * MINUTE).await;
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
    });
}

#[test]
fn a_remembered_pod_has_all_it_needs_without_the_server() {
    run_paused(|| async {
        let mut rig = Rig::with(RigOptions {
            remembered: remembered(),
            supplied: vec!["a"],
            ..RigOptions::default()
        });
        rig.script.go_away();
        rig.pods(&[&mapped("a", &["settings"]), &mapped("b", &["settings"])])
            .await;
        assert_eq!(rig.value("settings").as_deref(), Some("kept"));
        assert!(rig.is_supplied("a"));
        // Whether it may have what is remembered is not known.
        assert!(!rig.is_supplied("b"));
        rig.put_map("settings", "new");
        rig.script.come_back();
        rig.pass(2 * MINUTE).await;
        assert_eq!(rig.value("settings").as_deref(), Some("new"));
        assert!(rig.is_supplied("b"));
    });
}

#[test]
fn nothing_changes_on_the_shelf_before_it_is_known_which_pods_there_are() {
    run_paused(|| async {
        let mut rig = Rig::with(RigOptions {
            remembered: remembered(),
            ..RigOptions::default()
        });
        rig.pass(MINUTE).await;
        assert_eq!(rig.value("settings").as_deref(), Some("kept"));
        assert_eq!(rig.script.heard(""), 0);
        rig.pods(&[]).await;
        assert_eq!(rig.value("settings"), None);
    });
}

#[test]
fn a_keeper_that_fell_keeps_what_it_had_and_goes_on() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_map("settings", "one");
        rig.pods(&[&mapped("a", &["settings"])]).await;
        rig.script.hold("configmaps");
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
        assert_eq!(rig.value("settings").as_deref(), Some("one"));
        rig.put_map("settings", "two");
        rig.script.unhold();
        rig.pass(MINUTE).await;
        assert_eq!(rig.value("settings").as_deref(), Some("two"));
        assert!(rig.is_supplied("a"));
    });
}

#[test]
fn who_could_not_be_told_is_told_again() {
    run_paused(|| async {
        let mut rig = Rig::with(RigOptions {
            room: 1,
            ..RigOptions::default()
        });
        rig.manager
            .tell(Msg::Pods {
                pods: vec![mapped("a", &[])],
            })
            .unwrap();
        pass(MOMENT).await;
        rig.manager
            .tell(Msg::Pods {
                pods: vec![mapped("a", &[]), mapped("b", &[])],
            })
            .unwrap();
        pass(MOMENT).await;
        rig.settle().await;
        rig.pass(MINUTE).await;
        assert!(rig.is_supplied("a") && rig.is_supplied("b"));
    });
}
