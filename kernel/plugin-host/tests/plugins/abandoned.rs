//! Processes that cannot be ended: what the host does without them.
//!
//! A process that is spared the host's signals and stopped by the test is to the host as one that is stuck in the
//! kernel: it exists, keeps its connections, and does nothing.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

use kernel::InjectedFault;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plugin_host::testing::spare;
use plugin_host::{Abandoned, CallError, Declaration, Msg, PluginState};
use proto::plugin::HealthRequest;
use proto::plugin::plugin_client::PluginClient;
use tokio::time::timeout;

use crate::process::{Manner, plugin};
use crate::rig::{LONG, Rig, exists, run, until, version};

/// As many as the host bears.
const MOST: usize = 8;

/// A plugin that is given up soon.
fn given_up(manner: Manner) -> Declaration {
    let mut declaration = plugin("a", manner);
    declaration.drain_within = Duration::from_millis(50);
    declaration.term_within = Duration::from_millis(20);
    declaration.abandon_within = Some(Duration::from_millis(50));
    declaration
}

impl Rig {
    /// Lets the host's signals no longer reach the process that answers.
    async fn spared(&self) -> Pid {
        let pid = self.pid().await;
        spare(pid.as_raw().unsigned_abs());
        pid
    }

    /// As `spared`; it does nothing any more, either.
    async fn stuck(&self) -> Pid {
        self.spared().await;
        self.signal(Signal::SIGSTOP).await
    }

    fn tell_stuck(&self, generation: u64) {
        self.host.tell(Msg::Replace { generation }).unwrap();
    }

    async fn abandoned(&self, generations: &[u64]) -> Vec<Abandoned> {
        let wanted: BTreeSet<u64> = generations.iter().copied().collect();
        let mut changes = self.line.abandonments();
        let is = |list: &Vec<Abandoned>| {
            list.iter()
                .map(|one| one.generation)
                .collect::<BTreeSet<_>>()
                == wanted
        };
        let list = timeout(LONG, changes.wait_for(is)).await;
        let list = list.expect("abandoned in time").unwrap().clone();
        assert_eq!(self.line.abandoned(), wanted);
        list
    }

    async fn serves(&self, generation: u64) {
        self.see(|view| view.state == PluginState::Ready && view.generation == generation)
            .await;
    }
}

/// What the kernel does when the call returns in which the process was stuck.
fn release(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}

#[test]
fn hung_process_that_cannot_be_killed_is_abandoned_and_its_successor_serves() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Well)).await;
        let pid = rig.stuck().await;
        // On the very connection that the stuck process keeps open.
        let (lost, ()) = tokio::join!(rig.version(), async {
            rig.abandoned(&[1]).await;
        });
        let lost = lost.unwrap_err();
        assert!(matches!(lost, CallError::Interrupted { .. }), "{lost:?}");
        assert_eq!(rig.version().await.unwrap().runtime_api_version, "2");
        let shown = rig.snapshot().await;
        let expected = Abandoned {
            generation: 1,
            pid: pid.as_raw().unsigned_abs(),
        };
        assert_eq!(shown.abandoned, [expected]);
        assert_eq!(
            shown.last_exit.as_deref(),
            Some("killed, but stuck in the kernel")
        );

        assert!(rig.line.exists(1) && rig.line.exists(2) && !rig.line.exists(3));

        // It is remembered when the host panics, and forgotten when it has really ended.
        rig.supervisor
            .inject("root/test", InjectedFault::Panic)
            .unwrap();
        rig.reach(PluginState::Starting).await;
        rig.serves(2).await;
        assert_eq!(rig.snapshot().await.abandoned, [expected]);
        let ended = rig.line.ended(1);
        let released = async { release(pid) };
        let (ended, ()) = tokio::join!(timeout(LONG, ended), released);
        ended.unwrap();
        assert!(rig.line.abandoned().is_empty() && !rig.line.exists(1) && !exists(pid));
        rig.end().await;
    });
}

#[test]
fn stream_from_an_abandoned_process_ends() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Well)).await;
        let request = HealthRequest {
            interval_ms: 60_000,
        };
        let mut client = PluginClient::new(rig.line.channel());
        let mut stream = client.health(request).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        let pid = rig.stuck().await;
        let end = timeout(LONG, stream.message()).await.unwrap();
        assert!(matches!(end, Ok(None) | Err(_)), "{end:?}");
        release(pid);
        rig.end().await;
    });
}

#[test]
fn process_that_may_not_be_abandoned_is_waited_for() {
    run(async {
        let mut declaration = given_up(Manner::Well);
        declaration.abandon_within = None;
        let rig = Rig::ready(&declaration).await;
        let pid = rig.stuck().await;
        let hung = version(&rig.line, Duration::from_secs(2)).await;
        assert!(
            matches!(hung, Err(CallError::Deadline { .. })),
            "no successor beside it: {hung:?}"
        );
        release(pid);
        assert_eq!(rig.version().await.unwrap().runtime_api_version, "2");
        assert!(!rig.overlapped());
        rig.end().await;
    });
}

#[test]
fn generation_with_a_stuck_thread_is_replaced_and_no_call_notices() {
    run(async {
        let rig = Rc::new(Rig::ready(&given_up(Manner::Lingers)).await);
        let end = Rc::new(Cell::new(false));
        let load = tokio::task::spawn_local({
            let (rig, end) = (Rc::clone(&rig), Rc::clone(&end));
            async move {
                let mut made = 0;
                while !end.get() {
                    rig.create().await.unwrap();
                    rig.version().await.unwrap();
                    made += 1;
                }
                made
            }
        });
        let pid = rig.spared().await;
        rig.tell_stuck(1);
        rig.tell_stuck(1);
        rig.abandoned(&[1]).await;
        rig.serves(2).await;
        assert!(
            rig.overlapped(),
            "the new one was ready before the old one drained"
        );
        end.set(true);
        assert_eq!(load.await.unwrap(), rig.made());
        // Said again, it is of no interest any more, nor is what was never there.
        for generation in [0, 1, 3] {
            rig.tell_stuck(generation);
        }
        assert_eq!(rig.restart().await, Ok(3), "nothing else was under way");
        let shown = rig.snapshot().await;
        assert_eq!((shown.restarts, shown.warning.as_str()), (0, ""));
        release(pid);
        rig.abandoned(&[]).await;
        Rc::into_inner(rig).unwrap().end().await;
    });
}

#[test]
fn call_in_flight_on_a_replaced_generation_ends_as_interrupted_when_that_is_abandoned() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Lingers)).await;
        let pid = rig.spared().await;
        let hold = rig.hold();
        let replaced = async {
            until("the call has begun", || rig.made() == 1).await;
            rig.tell_stuck(1);
        };
        let (lost, ()) = tokio::join!(rig.create(), replaced);
        let lost = lost.unwrap_err();
        assert!(matches!(lost, CallError::Interrupted { .. }), "{lost:?}");
        drop(hold);
        rig.create().await.unwrap();
        assert_eq!(rig.made(), 2, "it was not sent again by itself");
        release(pid);
        rig.end().await;
    });
}

#[test]
fn replaced_process_that_can_end_is_not_abandoned() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Well)).await;
        let pid = rig.pid().await;
        rig.tell_stuck(1);
        rig.serves(2).await;
        timeout(LONG, rig.line.ended(1)).await.unwrap();
        assert!(!exists(pid) && rig.line.abandoned().is_empty());
        rig.end().await;
    });
}

#[test]
fn plugin_that_must_be_alone_is_replaced_after_its_end() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Alone)).await;
        rig.tell_stuck(1);
        rig.serves(2).await;
        assert!(!rig.overlapped());
        assert_eq!(rig.restart().await, Ok(3), "nothing is under way any more");
        rig.end().await;
    });
}

#[test]
fn replacement_that_does_not_get_ready_leaves_the_old_generation() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Well)).await;
        let once = rig.dir().join("refuse");
        fs::write(&once, "not today").unwrap();
        rig.tell_stuck(1);
        until("the replacement has refused", || !once.exists()).await;
        // It is tried again when it is told again.
        let told = async {
            while rig.line.state().generation == 1 {
                rig.tell_stuck(1);
                rig.version().await.unwrap();
            }
        };
        timeout(LONG, told).await.unwrap();
        let generation = rig.line.state().generation;
        assert_eq!(generation, 3, "one came to nothing, one did not");
        rig.end().await;
    });
}

#[test]
fn ever_more_stuck_processes_end_the_replacing_not_the_plugin() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Lingers)).await;
        let mut stuck = Vec::new();
        for generation in 1..=u64::try_from(MOST).unwrap() {
            rig.serves(generation).await;
            stuck.push(rig.spared().await);
            rig.tell_stuck(generation);
            let all: Vec<u64> = (1..=generation).collect();
            rig.abandoned(&all).await;
        }
        rig.serves(9).await;
        let last = rig.spared().await;
        rig.tell_stuck(9);
        rig.tell_stuck(9);
        let shown = rig.snapshot().await;
        assert_eq!(shown.abandoned.len(), MOST);
        assert_eq!(
            shown.warning,
            "generation 9 has a thread that is stuck in the kernel and is not replaced, \
             because 8 processes are abandoned already"
        );
        assert_eq!((shown.state, shown.generation), (PluginState::Ready, 9));
        assert_eq!(rig.version().await.unwrap().runtime_api_version, "9");

        // As soon as one has ended, what was told is done.
        release(stuck.remove(0));
        rig.abandoned(&(2..=9).collect::<Vec<_>>()).await;
        rig.serves(10).await;
        assert_eq!(rig.snapshot().await.warning, "");
        stuck.push(last);
        stuck.into_iter().for_each(release);
        rig.abandoned(&[]).await;
        rig.end().await;
    });
}

#[test]
fn stop_and_shutdown_do_not_wait_for_what_cannot_end() {
    run(async {
        let rig = Rig::ready(&given_up(Manner::Well)).await;
        let first = rig.stuck().await;
        timeout(LONG, rig.host.ask(LONG, |reply| Msg::Stop { reply }))
            .await
            .unwrap()
            .unwrap();
        rig.abandoned(&[1]).await;
        assert_eq!(rig.restart().await, Ok(2));
        let second = rig.stuck().await;
        let line = rig.line.clone();
        rig.end().await;
        assert_eq!(line.abandoned(), BTreeSet::from([1, 2]));
        release(first);
        release(second);
    });
}

#[test]
fn process_of_an_earlier_agent_that_cannot_be_ended_is_abandoned() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut earlier = std::process::Command::new("sleep")
            .arg("3600")
            .spawn()
            .unwrap();
        spare(earlier.id());
        let stat = fs::read_to_string(format!("/proc/{}/stat", earlier.id())).unwrap();
        let start = stat.split_whitespace().nth(21).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let record = format!("{} {start} {}\n", earlier.id(), boot.trim());
        fs::write(folder.path().join("test.pid"), record).unwrap();

        let rig = Rig::start_in(folder, &given_up(Manner::Well));
        rig.serves(1).await;
        let list = rig.abandoned(&[0]).await;
        assert_eq!(list[0].pid, earlier.id());
        // The next generations do not wait for it again, and the next agent finds it.
        assert_eq!(rig.restart().await, Ok(2));
        rig.abandoned(&[0]).await;
        let record = fs::read_to_string(rig.folder.path().join("test.pid")).unwrap();
        assert!(
            record.starts_with(&format!("{} ", earlier.id())),
            "{record}"
        );
        earlier.kill().unwrap();
        earlier.wait().unwrap();
        rig.abandoned(&[]).await;
        rig.end().await;
    });
}
