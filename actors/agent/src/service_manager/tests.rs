//! The notifier with a socket that stands for the service manager.

use std::cell::Cell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;

use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, Intensity, Supervisor, mailbox};
use tempfile::TempDir;

use super::*;

const INTERVAL: Duration = Duration::from_secs(2);

/// One check, that fails while it is told to.
#[derive(Debug, Clone, Default)]
struct Health {
    ill: Rc<Cell<bool>>,
    none: bool,
}

impl HealthChecks for Health {
    fn names(&self) -> &'static [&'static str] {
        if self.none { &[] } else { &["syncloop"] }
    }

    async fn check(&self, _name: &str) -> Option<Result<(), String>> {
        Some(if self.ill.get() {
            Err("stuck".to_owned())
        } else {
            Ok(())
        })
    }
}

struct Rig {
    root: Supervisor,
    folder: TempDir,
}

impl Rig {
    fn start(
        checks: Health,
        interval: Option<Duration>,
        name: impl Fn(&TempDir) -> OsString,
    ) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager {
            socket: name(&folder),
            interval,
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("service-manager"), port, move || {
            ServiceNotifier::new(manager.clone(), checks.clone())
        });
        Rig { root, folder }
    }

    fn path(folder: &TempDir) -> OsString {
        folder.path().join("notify").into()
    }

    fn listen(&self) -> UnixDatagram {
        let manager = UnixDatagram::bind(self.folder.path().join("notify")).unwrap();
        manager.set_nonblocking(true).unwrap();
        manager
    }

    async fn snapshot(&self) -> serde_json::Value {
        self.root.tree().await.children[0].snapshot.clone()
    }
}

/// What the service manager was told since the last time.
fn told(manager: &UnixDatagram) -> Vec<String> {
    let mut told = Vec::new();
    let mut text = [0; 64];
    while let Ok(length) = manager.recv(&mut text) {
        told.push(String::from_utf8_lossy(&text[..length]).into_owned());
    }
    told
}

/// Upstream's TestHealthCheckerStart: the watchdog is enabled, with checks and without.
#[test]
fn a_healthy_agent_is_told_as_ready_once_and_as_alive_in_each_interval() {
    for none in [false, true] {
        run_paused(move || async move {
            let health = Health {
                none,
                ..Health::default()
            };
            let rig = Rig::start(health, Some(INTERVAL), Rig::path);
            let manager = rig.listen();
            pass(Duration::from_millis(1)).await;
            assert_eq!(told(&manager), [READY, ALIVE]);
            pass(INTERVAL * 3).await;
            assert_eq!(told(&manager), [ALIVE; 3]);
            assert_eq!(rig.snapshot().await["notifications"], 5);
        });
    }
}

/// Upstream's TestHealthCheckerStart: the health check fails.
#[test]
fn an_agent_that_is_not_healthy_is_not_told_as_alive_until_it_is() {
    run_paused(|| async {
        let health = Health::default();
        health.ill.set(true);
        let rig = Rig::start(health.clone(), Some(INTERVAL), Rig::path);
        let manager = rig.listen();
        pass(Duration::from_millis(1)).await;
        pass(INTERVAL * 3).await;
        assert_eq!(told(&manager), [READY]);
        assert_eq!(rig.snapshot().await["last_error"], "syncloop: stuck");
        health.ill.set(false);
        pass(INTERVAL).await;
        assert_eq!(told(&manager), [ALIVE]);
    });
}

/// Upstream's TestHealthCheckerStart: the transmission fails.
#[test]
fn a_notification_that_fails_is_sent_again_after_a_second() {
    run_paused(|| async {
        let rig = Rig::start(Health::default(), Some(INTERVAL), Rig::path);
        pass(Duration::from_millis(1)).await;
        let error = rig.snapshot().await["last_error"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            error.starts_with("cannot send to the service manager at "),
            "{error}"
        );
        let manager = rig.listen();
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [ALIVE]);
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [ALIVE], "and the next one when it is due");
    });
}

#[test]
fn without_a_watchdog_only_the_start_is_told() {
    run_paused(|| async {
        let rig = Rig::start(Health::default(), None, Rig::path);
        let manager = rig.listen();
        pass(INTERVAL * 3).await;
        assert_eq!(told(&manager), [READY]);
    });
}

#[test]
fn a_socket_may_have_an_abstract_name() {
    run_paused(|| async {
        let name = |folder: &TempDir| format!("oxlet{}", folder.path().display());
        let rig = Rig::start(Health::default(), None, move |folder| {
            format!("@{}", name(folder)).into()
        });
        let address = SocketAddr::from_abstract_name(name(&rig.folder)).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        manager.set_nonblocking(true).unwrap();
        pass(Duration::from_millis(1)).await;
        assert_eq!(told(&manager), [READY]);
    });
}
