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

/// One check, and what is said of the managers; either fails while it is told to.
#[derive(Debug, Clone, Default)]
struct Health {
    ill: Rc<Cell<bool>>,
    degraded: Rc<Cell<bool>>,
    none: bool,
}

impl HealthChecks for Health {
    fn names(&self) -> &'static [&'static str] {
        if self.none { &[] } else { &["syncloop"] }
    }

    async fn check(&self, name: &str) -> Option<Result<(), String>> {
        let (fails, why) = match name {
            MANAGERS => (self.degraded.get(), "images is degraded:\nno room"),
            _ => (self.ill.get(), "stuck"),
        };
        Some(if fails { Err(why.to_owned()) } else { Ok(()) })
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
    let mut text = [0; 256];
    while let Ok(length) = manager.recv(&mut text) {
        told.push(String::from_utf8_lossy(&text[..length]).into_owned());
    }
    told
}

const STARTED: &str = "READY=1\nWATCHDOG=1\nSTATUS=every manager works";

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
            assert_eq!(told(&manager), [STARTED]);
            pass(RETRY_PERIOD + INTERVAL * 3).await;
            assert_eq!(told(&manager), [ALIVE; 4]);
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
        assert_eq!(told(&manager), ["STATUS=not healthy: syncloop: stuck"]);
        let trouble = "the agent is not healthy: syncloop: stuck";
        assert_eq!(rig.snapshot().await["last_error"], trouble);
        health.ill.set(false);
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [STARTED]);
        assert!(rig.snapshot().await["last_error"].is_null());
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [ALIVE]);
        health.ill.set(true);
        pass(INTERVAL * 3).await;
        assert_eq!(told(&manager), ["STATUS=not healthy: syncloop: stuck"]);
        health.ill.set(false);
        pass(INTERVAL).await;
        assert_eq!(told(&manager), ["WATCHDOG=1\nSTATUS=every manager works"]);
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
        assert_eq!(told(&manager), [STARTED]);
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [ALIVE]);
        drop(manager);
        std::fs::remove_file(rig.folder.path().join("notify")).unwrap();
        pass(INTERVAL).await;
        let manager = rig.listen();
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [ALIVE]);
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), [ALIVE], "and the next one when it is due");
    });
}

#[test]
fn a_degraded_manager_is_named_in_one_line_and_costs_no_notification() {
    run_paused(|| async {
        let health = Health::default();
        let rig = Rig::start(health.clone(), None, Rig::path);
        let manager = rig.listen();
        pass(Duration::from_millis(1)).await;
        pass(STATUS_PERIOD).await;
        assert_eq!(told(&manager), ["READY=1\nSTATUS=every manager works"]);
        health.degraded.set(true);
        pass(STATUS_PERIOD * 3).await;
        let words = "STATUS=images is degraded: no room";
        assert_eq!(told(&manager), [words]);
        assert_eq!(rig.snapshot().await["status"], &words["STATUS=".len()..]);
        health.degraded.set(false);
        pass(STATUS_PERIOD).await;
        assert_eq!(told(&manager), ["STATUS=every manager works"]);
        health.ill.set(true);
        pass(STATUS_PERIOD).await;
        assert!(rig.snapshot().await["last_error"].is_string());
        health.ill.set(false);
        pass(STATUS_PERIOD * 2).await;
        assert!(rig.snapshot().await["last_error"].is_null());
    });
}

#[test]
fn an_end_on_purpose_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let manager = ServiceManager {
        socket: Rig::path(&folder),
        interval: None,
    };
    manager.stopping();
    let socket = UnixDatagram::bind(&manager.socket).unwrap();
    socket.set_nonblocking(true).unwrap();
    manager.stopping();
    assert_eq!(told(&socket), ["STOPPING=1\nSTATUS=ending; pods live on"]);
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
        pass(RETRY_PERIOD).await;
        assert_eq!(told(&manager), ["READY=1\nSTATUS=every manager works"]);
    });
}
