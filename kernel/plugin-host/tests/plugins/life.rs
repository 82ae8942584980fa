//! Start, failure, restart and end of plugin processes.

use std::time::Duration;

use kernel::InjectedFault;
use nix::sys::signal::Signal;
use plugin_host::{CallError, Msg, PluginState};

use crate::process::{Manner, plugin};
use crate::rig::{LONG, Rig, exists, run, until};

#[test]
fn plugin_that_crashes_again_and_again_is_started_ever_more_slowly_then_given_up() {
    run(async {
        let mut declaration = plugin("a", Manner::Crash);
        declaration.intensity.restarts = 3;
        let begun = kernel::now();
        let rig = Rig::start(&declaration);
        let failed = rig.reach(PluginState::Failed).await;
        assert_eq!(failed.reason, "plugin test ended: exit status: 3");
        // At once, then after 100 ms, then after 200 ms.
        let took = kernel::now() - begun;
        assert!(took >= Duration::from_millis(300), "{took:?}");
        assert_eq!((failed.generation, rig.snapshot().await.restarts), (4, 4));
        let refused = rig.create().await.unwrap_err();
        assert!(
            matches!(refused, CallError::Unavailable { .. }),
            "{refused:?}"
        );
        rig.end().await;
    });
}

#[test]
fn socket_that_another_process_has_taken_is_taken_back_at_the_next_start() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let path = rig.folder.path().join("test.sock");
        std::fs::remove_file(&path).unwrap();
        let _rogue = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(rig.restart().await, Ok(2));
        assert_eq!(rig.version().await.unwrap().version, "a");
        rig.end().await;
    });
}

#[test]
fn plugin_that_was_given_up_can_be_restarted_by_the_operator() {
    run(async {
        let mut declaration = plugin("a", Manner::Crash);
        declaration.intensity.restarts = 0;
        let rig = Rig::start(&declaration);
        rig.reach(PluginState::Failed).await;
        let error = rig.restart().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the new generation of plugin test did not get ready: plugin test ended: exit status: 3"
        );
        let good = rig.swap(plugin("b", Manner::Well)).await;
        assert_eq!(good, Ok(3));
        assert_eq!(rig.version().await.unwrap().version, "b");
        rig.end().await;
    });
}

#[test]
fn restart_waits_for_calls_in_flight_and_keeps_new_ones_waiting() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let before = rig.pid().await;
        let hold = rig.hold();
        let operator = async {
            until("the call has begun", || rig.made() == 1).await;
            let release = async {
                rig.reach(PluginState::Draining).await;
                let late = rig.create();
                let first = async { drop(hold) };
                tokio::join!(late, first).0
            };
            tokio::join!(rig.restart(), release)
        };
        let (in_flight, (restarted, late)) = tokio::join!(rig.create(), operator);
        in_flight.unwrap();
        late.unwrap();
        assert_eq!(restarted, Ok(2));
        assert_eq!(rig.made(), 2);
        assert!(!exists(before) && !rig.overlapped());
        assert_eq!(
            rig.snapshot().await.restarts,
            0,
            "what was asked for is no failure"
        );
        rig.end().await;
    });
}

#[test]
fn second_restart_at_the_same_time_is_refused() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let (first, second) = tokio::join!(rig.restart(), rig.restart());
        assert_eq!(first, Ok(2));
        assert_eq!(
            second.unwrap_err().to_string(),
            "another restart, swap, trial or stop of plugin test is under way"
        );
        rig.end().await;
    });
}

#[test]
fn stopped_plugin_refuses_calls_until_it_is_restarted() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let pid = rig.pid().await;
        rig.host
            .ask(LONG, |reply| Msg::Stop { reply })
            .await
            .unwrap();
        assert!(!exists(pid));
        let refused = rig.version().await.unwrap_err();
        assert_eq!(refused.to_string(), "plugin test is out of reach: stopped");
        assert_eq!(rig.restart().await, Ok(2));
        rig.version().await.unwrap();
        rig.end().await;
    });
}

#[test]
fn plugin_serves_on_while_its_host_panics() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let before = rig.version().await.unwrap();
        rig.supervisor
            .inject("root/test", InjectedFault::Panic)
            .unwrap();
        rig.reach(PluginState::Starting).await;
        rig.reach(PluginState::Ready).await;
        assert_eq!(
            rig.version().await.unwrap(),
            before,
            "the same process, the same generation"
        );
        // The new incarnation watches it as the old one did.
        rig.signal(Signal::SIGKILL).await;
        assert_eq!(rig.version().await.unwrap().runtime_api_version, "2");
        rig.end().await;
    });
}

#[test]
fn swap_is_remembered_when_the_host_panics() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        assert_eq!(rig.swap(plugin("b", Manner::Well)).await, Ok(2));
        rig.supervisor
            .inject("root/test", InjectedFault::Panic)
            .unwrap();
        rig.reach(PluginState::Starting).await;
        rig.reach(PluginState::Ready).await;
        assert_eq!(rig.restart().await, Ok(3));
        assert_eq!(rig.version().await.unwrap().version, "b");
        rig.end().await;
    });
}

#[test]
fn shutdown_leaves_no_process() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let pid = rig.pid().await;
        rig.end().await;
        assert!(!exists(pid));
    });
}
