//! What a caller sees of a plugin that dies, hangs or is busy.

use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plugin_host::{CallError, PluginState};

use crate::process::{Manner, plugin};
use crate::rig::{Rig, create, exists, run, until, version};

/// A plugin that is to be killed often: it counts as settled as soon as it has run a moment.
fn sturdy() -> plugin_host::Declaration {
    let mut declaration = plugin("a", Manner::Well);
    declaration.intensity = kernel::Intensity {
        restarts: u32::MAX,
        within: Duration::from_millis(1),
    };
    declaration
}

#[test]
fn idempotent_calls_do_not_notice_that_the_plugin_is_killed() {
    const KILLS: usize = 20;
    run(async {
        let rig = Rc::new(Rig::ready(&sturdy()).await);
        let calling = tokio::task::spawn_local({
            let rig = Rc::clone(&rig);
            async move {
                let mut waits = Vec::new();
                loop {
                    let begun = kernel::now();
                    let generation = rig
                        .version()
                        .await
                        .unwrap()
                        .runtime_api_version
                        .parse::<usize>()
                        .unwrap();
                    waits.push(kernel::now() - begun);
                    if generation > KILLS {
                        return waits;
                    }
                }
            }
        });
        let mut dead = Vec::new();
        for generation in 1..=u64::try_from(KILLS).unwrap() {
            rig.see(|view| view.state == PluginState::Ready && view.generation == generation)
                .await;
            dead.push(rig.signal(Signal::SIGKILL).await);
        }
        let mut waits: Vec<Duration> = calling.await.unwrap();
        waits.sort();
        let kills = &waits[waits.len() - KILLS..];
        println!(
            "{} calls, {KILLS} kills; waits across a kill: median {:?}, worst {:?}",
            waits.len(),
            kills[KILLS / 2],
            kills[KILLS - 1]
        );
        assert!(kills[KILLS / 2] < Duration::from_millis(500), "{kills:?}");
        assert!(
            !rig.overlapped(),
            "a generation started before its predecessor was dead"
        );
        for pid in dead {
            assert!(!exists(pid), "{pid} is a zombie");
        }
        Rc::into_inner(rig).unwrap().end().await;
    });
}

#[test]
fn creating_call_under_which_the_plugin_dies_is_interrupted_and_made_once() {
    run(async {
        let rig = Rig::ready(&sturdy()).await;
        let pid = rig.pid().await;
        let hold = rig.hold();
        let killed = async {
            until("the call has begun", || rig.made() == 1).await;
            nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
        };
        let (outcome, ()) = tokio::join!(rig.create(), killed);
        let error = outcome.unwrap_err();
        assert!(matches!(error, CallError::Interrupted { .. }), "{error:?}");
        assert!(error.outcome_unknown() && error.transient());

        drop(hold);
        rig.see(|view| view.state == PluginState::Ready && view.generation == 2)
            .await;
        rig.create().await.unwrap();
        assert_eq!(rig.made(), 2, "the interrupted call was not sent again");
        rig.end().await;
    });
}

#[test]
fn call_to_a_plugin_that_starts_waits_for_it() {
    run(async {
        let rig = Rig::start(&plugin("a", Manner::Well));
        assert_eq!(rig.line.state().state, PluginState::Starting);
        let (idempotent, creating) = tokio::join!(rig.version(), rig.create());
        idempotent.unwrap();
        creating.unwrap();
        rig.end().await;
    });
}

#[test]
fn call_that_is_not_answered_ends_at_its_deadline() {
    run(async {
        let mut declaration = plugin("a", Manner::Well);
        declaration.health_interval = Duration::from_secs(60);
        let rig = Rig::ready(&declaration).await;
        let pid = rig.signal(Signal::SIGSTOP).await;
        let error = version(&rig.line, Duration::from_millis(100))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "plugin test did not answer within 100ms");
        nix::sys::signal::kill(pid, Signal::SIGCONT).unwrap();
        rig.version().await.unwrap();
        rig.end().await;
    });
}

#[test]
fn hung_plugin_is_found_by_its_silence_and_replaced_under_the_call() {
    run(async {
        let rig = Rig::ready(&sturdy()).await;
        let pid = rig.signal(Signal::SIGSTOP).await;
        let begun: Instant = kernel::now();
        let answer = rig.version().await.unwrap();
        let took = kernel::now() - begun;
        assert_eq!(answer.runtime_api_version, "2");
        assert!(
            took >= Duration::from_millis(600),
            "silence of three intervals is no hang: {took:?}"
        );
        assert!(!exists(pid), "the hung process is dead and reaped");
        // It ignored SIGTERM, as a stopped process must.
        let shown = rig.snapshot().await;
        assert_eq!(shown.last_exit.as_deref(), Some("signal: 9 (SIGKILL)"));
        rig.end().await;
    });
}

#[test]
fn refusal_of_the_plugin_itself_is_not_repeated() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let unknown = |channel| async move {
            proto::cri::image_service_client::ImageServiceClient::new(channel)
                .list_images(proto::cri::ListImagesRequest::default())
                .await
        };
        let error = rig
            .line
            .idempotent(Duration::from_secs(10), unknown)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some(tonic::Code::Unimplemented));
        assert!(!error.transient());
        rig.end().await;
    });
}

#[test]
fn concurrent_calls_all_come_back() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let calls = (0..500).map(|_| create(&rig.line));
        let answers = futures_util::future::join_all(calls).await;
        assert_eq!(answers.into_iter().filter(Result::is_ok).count(), 500);
        assert_eq!(rig.made(), 500);
        rig.end().await;
    });
}
