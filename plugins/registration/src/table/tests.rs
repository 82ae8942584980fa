//! Laws of the table.

use std::time::Duration;

use super::socket::{RETRY_BACKOFF_INITIAL, RETRY_BACKOFF_MAX};
use super::*;
use crate::testing::{TestPlugin, TestVersion};

const REGISTRY: &str = "/r/plugins_registry";

fn path(name: &str) -> PathBuf {
    Path::new(REGISTRY).join(name)
}

fn looked(sockets: &[(&str, u64)]) -> SocketScan {
    let sockets = sockets
        .iter()
        .map(|&(name, inode)| (path(name), FileIdentity::number(inode)));
    SocketScan {
        sockets: sockets.collect(),
        ..SocketScan::default()
    }
}

/// `backend NAME SOCKET`, `gone NAME`, `refused SOCKET WHY`, `synced`
fn words(events: &[RegistrationEvent<TestPlugin>]) -> Vec<String> {
    let words = events.iter().map(|event| match event {
        RegistrationEvent::Registered(plugin) => {
            format!("backend {} {}", plugin.name, plugin.socket)
        }
        RegistrationEvent::Gone(name) => format!("gone {name}"),
        RegistrationEvent::Refused { socket, why, .. } => {
            let socket = socket.strip_prefix(REGISTRY).unwrap();
            format!("refused {} {why}", &socket[1..])
        }
        RegistrationEvent::Synced => "synced".to_owned(),
    });
    words.collect()
}

/// A table with one registered driver.
pub(crate) fn with(name: &str) -> PluginTable<TestPlugin> {
    let now = Instant::now();
    let mut table = PluginTable::default();
    let (asks, _) = table.found(now, looked(&[("a", 1)]));
    table
        .registered(now, &asks[0], TestPlugin::new("a", name, "1.0"))
        .unwrap()
        .unwrap();
    table
}

/// A table whose first look found nothing.
struct Rig {
    table: PluginTable<TestPlugin>,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self {
            table: PluginTable::default(),
            now: Instant::now(),
        };
        assert_eq!(rig.look(&[]), (vec![], vec!["synced".to_owned()]));
        rig
    }

    fn look(&mut self, sockets: &[(&str, u64)]) -> (Vec<RegistrationRequest>, Vec<String>) {
        let (asks, events) = self.table.found(self.now, looked(sockets));
        (asks, words(&events))
    }

    /// Looks, and has the one socket asked register.
    fn register(&mut self, sockets: &[(&str, u64)], name: &str, version: &str) -> Vec<String> {
        let (asks, mut events) = self.look(sockets);
        let [ask] = asks.as_slice() else {
            panic!("{asks:?}")
        };
        let socket = ask.socket.file_name().unwrap().to_str().unwrap();
        let plugin = TestPlugin::new(socket, name, version);
        let outcome = self.table.registered(self.now, ask, plugin).unwrap();
        events.extend(words(&outcome.unwrap()));
        events
    }

    fn refuse(&mut self, ask: &RegistrationRequest, name: &str, why: &str) -> Vec<String> {
        words(&self.table.refused(self.now, ask, name, why))
    }
}

/// Upstream's Test_Run_Positive_Register and Test_Run_Positive_RegisterThenUnregister.
#[test]
fn a_driver_is_there_as_long_as_its_socket() {
    let mut rig = Rig::new();
    assert_eq!(rig.register(&[("a", 1)], "d", "1.0.0"), ["backend d a"]);
    assert!(rig.table.plugin("d").is_some());
    assert_eq!(rig.look(&[("a", 1)]), (vec![], vec![]));
    assert_eq!(rig.look(&[]), (vec![], vec!["gone d".to_owned()]));
    assert!(rig.table.plugin("d").is_none());
}

/// Upstream's TestOperationExecutor_RegisterPlugin_SerialRegisterPlugin and its concurrent likes: each socket is asked
/// once at a time, different ones side by side.
#[test]
fn a_socket_that_is_being_asked_is_not_asked_again_and_others_are() {
    let mut rig = Rig::new();
    let (asks, _) = rig.look(&[("a", 1), ("b", 2)]);
    assert_eq!(asks.len(), 2);
    let (asks, _) = rig.look(&[("a", 1), ("b", 2), ("c", 3)]);
    let [ask] = asks.as_slice() else {
        panic!("{asks:?}")
    };
    assert_eq!(ask.socket, path("c"));
}

/// Upstream's TestPluginRegistrationSameName.
#[test]
fn sockets_that_will_say_the_same_name_are_all_asked() {
    let mut rig = Rig::new();
    let names: Vec<String> = (0..10).map(|number| format!("plugin-{number}")).collect();
    let mut sockets = Vec::new();
    for (name, inode) in names.iter().zip(1..) {
        sockets.push((name.as_str(), inode));
        let (asks, _) = rig.look(&sockets);
        let [ask] = asks.as_slice() else {
            panic!("{asks:?}")
        };
        assert_eq!(ask.socket, path(name));
        let plugin = TestPlugin::new(name, "d", "1.0.0");
        let outcome = rig.table.registered(rig.now, ask, plugin).unwrap();
        assert_eq!(outcome.is_ok(), inode == 1, "{name}");
    }
    assert_eq!(rig.table.names().count(), 1);
}

/// Upstream's Test_Run_Positive_ReRegister.
#[test]
fn a_socket_made_again_registers_again_without_a_gap() {
    let mut rig = Rig::new();
    rig.register(&[("a", 1)], "d", "1.0.0");
    let (asks, events) = rig.look(&[("a", 2)]);
    assert_eq!(events, Vec::<String>::new());
    assert!(rig.table.plugin("d").is_some());
    let again = rig
        .table
        .registered(rig.now, &asks[0], TestPlugin::new("a", "d", "1.0.0"));
    assert_eq!(words(&again.unwrap().unwrap()), ["backend d a"]);
}

#[test]
fn a_socket_made_again_that_fails_takes_its_driver_away() {
    let mut rig = Rig::new();
    rig.register(&[("a", 1)], "d", "1.0.0");
    let (asks, _) = rig.look(&[("a", 2)]);
    assert_eq!(
        rig.refuse(&asks[0], "d", "boom"),
        ["gone d", "refused a boom"]
    );
    assert!(rig.table.next().unwrap() > rig.now);
}

#[test]
fn a_socket_made_again_under_another_name_ends_the_first_name() {
    let mut rig = Rig::new();
    rig.register(&[("a", 1)], "d", "1.0.0");
    assert_eq!(
        rig.register(&[("a", 2)], "e", "1.0.0"),
        ["gone d", "backend e a"]
    );
}

#[test]
fn what_a_socket_says_that_is_gone_counts_for_nothing() {
    let mut rig = Rig::new();
    let (asks, _) = rig.look(&[("a", 1)]);
    let (later, _) = rig.look(&[("a", 2)]);
    assert!(
        rig.table
            .registered(rig.now, &asks[0], TestPlugin::new("a", "d", "1.0"))
            .is_none()
    );
    assert_eq!(rig.refuse(&asks[0], "d", "boom"), Vec::<String>::new());
    rig.look(&[]);
    assert!(
        rig.table
            .registered(rig.now, &later[0], TestPlugin::new("a", "d", "1.0"))
            .is_none()
    );
    assert!(rig.table.plugin("d").is_none());
}

/// Upstream's TestValidatePlugin ... DuplicateDriver cases and TestValidatePluginExistingDriver.
#[test]
fn a_name_that_is_taken_goes_to_a_higher_version_only() {
    for (there, offered, goes) in [
        ("1.0.0", "1.0.0", false),
        ("1.2.0", "1.0.0", false),
        ("1.0.0", "1.2.0", true),
        ("1.0", "1.0.0.0", false),
    ] {
        let mut rig = Rig::new();
        rig.register(&[("a", 1)], "d", there);
        let version = TestVersion::new(offered);
        let may = rig.table.may_register(&path("b"), "d", &version);
        assert_eq!(may.is_ok(), goes, "{there} {offered}");
        assert!(rig.table.may_register(&path("a"), "d", &version).is_ok());
        if let Err(why) = may {
            assert_eq!(
                why,
                format!(
                    "Another driver with the same name is already registered with a higher supported version: {there:?}"
                )
            );
        }
    }
}

#[test]
fn who_was_refused_for_a_name_is_asked_at_once_when_it_is_free() {
    let mut rig = Rig::new();
    rig.register(&[("a", 1)], "d", "1.0.0");
    let (asks, _) = rig.look(&[("a", 1), ("b", 2)]);
    let taken = rig
        .table
        .registered(rig.now, &asks[0], TestPlugin::new("b", "d", "1.0.0"));
    assert!(taken.unwrap().is_err());
    assert_eq!(rig.refuse(&asks[0], "d", "taken"), ["refused b taken"]);
    assert_eq!(rig.look(&[("a", 1), ("b", 2)]).0, []);
    let (asks, events) = rig.look(&[("b", 2)]);
    assert_eq!(events, ["gone d"]);
    assert_eq!(asks.len(), 1, "{asks:?}");
}

#[test]
fn a_newer_driver_outlives_the_socket_that_it_replaced() {
    let mut rig = Rig::new();
    rig.register(&[("a", 1)], "d", "1.0.0");
    assert_eq!(
        rig.register(&[("a", 1), ("b", 2)], "d", "1.1.0"),
        ["backend d b"]
    );
    assert_eq!(rig.look(&[("b", 2)]), (vec![], vec![]));
    assert!(rig.table.plugin("d").is_some());
}

#[test]
fn the_older_driver_is_asked_again_when_the_newer_one_goes() {
    let mut rig = Rig::new();
    rig.register(&[("a", 1)], "d", "1.0.0");
    rig.register(&[("a", 1), ("b", 2)], "d", "1.1.0");
    assert_eq!(rig.table.next(), None);
    let (asks, events) = rig.look(&[("a", 1)]);
    assert_eq!(events, ["gone d"]);
    assert_eq!(asks.len(), 1, "{asks:?}");
}

/// Upstream's goroutinemap back-off.
#[test]
fn a_refused_socket_is_asked_again_less_and_less_often() {
    let mut rig = Rig::new();
    let (mut asks, _) = rig.look(&[("a", 1)]);
    let mut pauses = Vec::new();
    for _ in 0..11 {
        rig.refuse(&asks[0], "", "boom");
        let next = rig.table.next().unwrap();
        pauses.push(next - rig.now);
        assert_eq!(rig.look(&[("a", 1)]).0, []);
        rig.now = next;
        asks = rig.look(&[("a", 1)]).0;
    }
    assert_eq!(pauses[0], Duration::from_millis(500));
    assert_eq!(pauses[1], Duration::from_secs(1));
    assert_eq!(pauses[10], RETRY_BACKOFF_MAX);
    assert!(pauses.is_sorted());
    // Another socket at the same place starts anew.
    let (asks, _) = rig.look(&[("a", 2)]);
    rig.refuse(&asks[0], "", "boom");
    assert_eq!(rig.table.next().unwrap() - rig.now, RETRY_BACKOFF_INITIAL);
}

#[test]
fn the_same_refusal_is_told_once() {
    let mut rig = Rig::new();
    let mut told = Vec::new();
    for why in ["boom", "boom", "bang"] {
        let (asks, _) = rig.look(&[("a", 1)]);
        told.extend(rig.refuse(&asks[0], "d", why));
        rig.now = rig.table.next().unwrap();
    }
    assert_eq!(told, ["refused a boom", "refused a bang"]);
}

#[test]
fn what_is_not_ours_is_neither_told_nor_asked_again() {
    let mut rig = Rig::new();
    let (asks, _) = rig.look(&[("gpu", 1)]);
    assert_eq!(
        words(&rig.table.foreign(rig.now, &asks[0])),
        Vec::<String>::new()
    );
    assert_eq!(
        (rig.look(&[("gpu", 1)]), rig.table.next()),
        ((vec![], vec![]), None)
    );
}

#[test]
fn a_file_that_is_called_a_socket_is_told_once_as_long_as_it_is_there() {
    let mut rig = Rig::new();
    let mut found = SocketScan::default();
    found.files.insert(path("f.sock"), FileIdentity::number(1));
    let mut look = |found: &SocketScan| words(&rig.table.found(rig.now, found.clone()).1);
    assert_eq!(look(&found), ["refused f.sock Ignoring non socket file"]);
    assert_eq!(look(&found), Vec::<String>::new());
    assert_eq!(look(&SocketScan::default()), Vec::<String>::new());
    assert_eq!(look(&found).len(), 1);
}

#[test]
fn it_is_said_that_all_is_told_when_those_found_first_have_answered() {
    let now = Instant::now();
    let mut table = PluginTable::default();
    let (asks, events) = table.found(now, looked(&[("a", 1), ("b", 2), ("c", 3)]));
    assert_eq!(words(&events), Vec::<String>::new());
    let first = table
        .registered(now, &asks[0], TestPlugin::new("a", "d", "1.0"))
        .unwrap();
    assert_eq!(words(&first.unwrap()), ["backend d a"]);
    assert_eq!(
        words(&table.refused(now, &asks[1], "", "x")),
        ["refused b x"]
    );
    assert!(!table.is_settled());
    // The third one goes away unasked.
    let (_, events) = table.found(now, looked(&[("a", 1), ("b", 2)]));
    assert_eq!(words(&events), ["synced"]);
    assert!(table.is_settled() && table.settle().is_empty());
    assert_eq!(
        words(&table.snapshot()),
        ["backend d a", "refused b x", "synced"]
    );
}

#[test]
fn what_changes_of_a_plugin_is_told_once_and_of_no_other() {
    let mut table = with("a");
    assert_eq!(words(&table.update("a", |_| true)), ["backend a a"]);
    assert!(table.update("a", |_| false).is_empty());
    assert!(table.update("b", |_| true).is_empty());
}
