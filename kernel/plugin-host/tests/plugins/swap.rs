//! One plugin for another while calls flow.

use std::cell::Cell;
use std::rc::Rc;

use plugin_host::PluginState;
use serde_json::json;

use crate::process::{Manner, plugin};
use crate::rig::{Rig, exists, run};

/// Calls without pause until told to end; returns how many calls each generation answered.
async fn load(rig: &Rig, end: &Cell<bool>) -> (usize, usize) {
    let (mut created, mut asked) = (0, 0);
    while !end.get() {
        rig.create().await.unwrap();
        created += 1;
        rig.version().await.unwrap();
        asked += 1;
    }
    (created, asked)
}

async fn swapped_under_load(before: Manner, after: Manner) -> Rig {
    let rig = Rc::new(Rig::ready(&plugin("a", before)).await);
    let end = Rc::new(Cell::new(false));
    let loads: Vec<_> = (0..4)
        .map(|_| {
            let (rig, end) = (Rc::clone(&rig), Rc::clone(&end));
            tokio::task::spawn_local(async move { load(&rig, &end).await })
        })
        .collect();
    let old = rig.pid().await;
    assert_eq!(rig.swap(plugin("b", after)).await, Ok(2));
    assert_eq!(rig.version().await.unwrap().version, "b");
    crate::rig::until("the old process is dead", || !exists(old)).await;
    end.set(true);
    let mut created = 0;
    for load in loads {
        created += load.await.unwrap().0;
    }
    assert_eq!(
        rig.made(),
        created,
        "each call that creates was carried out once"
    );
    let left: Vec<_> = std::fs::read_dir(rig.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left.iter().any(|name| name == "test.next.sock"),
        "{left:?}"
    );
    Rc::into_inner(rig).unwrap()
}

#[test]
fn swap_while_calls_flow_loses_none() {
    run(async {
        let rig = swapped_under_load(Manner::Well, Manner::Well).await;
        assert!(
            rig.overlapped(),
            "the new one was ready before the old one drained"
        );
        rig.end().await;
    });
}

#[test]
fn swap_of_a_plugin_that_must_be_alone_loses_no_call_either() {
    run(async {
        let rig = swapped_under_load(Manner::Alone, Manner::Alone).await;
        assert!(
            !rig.overlapped(),
            "the old one was dead before the new one started"
        );
        rig.end().await;
    });
}

#[test]
fn swap_for_a_plugin_that_does_not_get_ready_leaves_the_old_one() {
    for manner in [Manner::Well, Manner::Alone] {
        run(async {
            let rig = Rig::ready(&plugin("a", manner)).await;
            let mut bad = plugin("b", manner);
            bad.configuration = json!({ "refuse": "not today" });
            let error = rig.swap(bad).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "the new generation of plugin test did not get ready: \
                 plugin test does not accept its configuration: not today"
            );
            rig.reach(PluginState::Ready).await;
            assert_eq!(rig.version().await.unwrap().version, "a");
            rig.end().await;
        });
    }
}

#[test]
fn swap_for_a_plugin_of_another_name_is_refused() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let mut other = plugin("b", Manner::Well);
        other.name = "other".to_owned();
        let error = rig.swap(other).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "plugin test cannot be swapped for other, which has another name or kind"
        );
        rig.end().await;
    });
}

#[test]
fn swapped_plugin_keeps_its_socket_when_it_is_killed() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        assert_eq!(rig.swap(plugin("b", Manner::Well)).await, Ok(2));
        rig.signal(nix::sys::signal::Signal::SIGKILL).await;
        let answer = rig.version().await.unwrap();
        assert_eq!(
            (answer.version.as_str(), answer.runtime_api_version.as_str()),
            ("b", "3")
        );
        rig.end().await;
    });
}

#[test]
fn a_plugin_on_trial_leaves_no_trace_whether_it_is_well_or_not() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let before = rig.version().await.unwrap();
        rig.try_out(plugin("b", Manner::Well)).await.unwrap();
        let mut bad = plugin("c", Manner::Well);
        bad.configuration = json!({ "refuse": "not today" });
        let error = rig.try_out(bad).await.unwrap_err();
        assert!(error.to_string().contains("not today"), "{error}");
        assert_eq!(
            rig.version().await.unwrap(),
            before,
            "the same process, the same generation"
        );
        assert_eq!(rig.swap(plugin("b", Manner::Well)).await, Ok(4));
        rig.end().await;
    });
}
