//! The rules on a machine whose iptables is a list of chains and rules.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, Intensity, Supervisor, mailbox};

use super::*;

const MOMENT: Duration = Duration::from_millis(1);

/// Chains and rules as `family table chain [rule]`; a failure that every call meets, if one is set.
#[derive(Debug, Default)]
struct Machine {
    there: BTreeSet<String>,
    calls: usize,
    failure: Option<CallError>,
    absent: bool,
}

#[derive(Debug, Clone, Default)]
struct TestIptables(Rc<RefCell<Machine>>);

impl Iptables for TestIptables {
    async fn call(&self, family: IpFamily, arguments: &[&str]) -> Result<(), CallError> {
        let mut machine = self.0.borrow_mut();
        machine.calls += 1;
        let call = arguments.join(" ");
        if machine.absent {
            return Err(CallError::NoProgram { call });
        }
        if let Some(failure) = machine.failure.clone() {
            return Err(failure);
        }
        let ["-w", "5", operation, chain, "-t", table, rule @ ..] = arguments else {
            panic!("{call}");
        };
        let place = format!("{} {table} {chain}", family.program());
        let entry = format!("{place} {}", rule.join(" "));
        let builtin = ["INPUT", "OUTPUT", "POSTROUTING"].contains(chain);
        let is_done = match *operation {
            "-N" => machine.there.insert(place),
            "-S" => builtin || machine.there.contains(&place),
            "-C" => machine.there.contains(&entry),
            "-A" | "-I" => {
                (builtin || machine.there.contains(&place)) && machine.there.insert(entry)
            }
            other => panic!("{other}"),
        };
        match is_done {
            true => Ok(()),
            false => Err(CallError::Refused { call }),
        }
    }
}

impl TestIptables {
    fn start(&self) -> Supervisor {
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(MAILBOX);
        let iptables = self.clone();
        root.spawn(ChildSpec::permanent("iptables"), port, move || {
            IptablesRules::new(iptables.clone())
        });
        root
    }

    fn there(&self) -> BTreeSet<String> {
        self.0.borrow().there.clone()
    }

    fn calls(&self) -> usize {
        std::mem::take(&mut self.0.borrow_mut().calls)
    }
}

async fn known(root: &Supervisor, program: &str) -> String {
    let tree = root.tree().await;
    let rules = &tree.children[0].snapshot["rules"];
    rules[program].as_str().unwrap().to_owned()
}

#[test]
fn rules_are_made_once_and_left_alone_while_they_are_there() {
    run_paused(|| async {
        let iptables = TestIptables::default();
        let root = iptables.start();
        pass(MOMENT).await;
        let made = iptables.there();
        let of = |program: &str| {
            made.iter()
                .filter(|line| line.starts_with(&format!("{program} ")))
                .count()
        };
        assert_eq!(
            (of("iptables"), of("ip6tables")),
            (2 + 3 + 3, 1 + 3),
            "{made:?}"
        );
        assert_eq!(known(&root, "iptables").await, "made");
        iptables.calls();
        pass(LOOK_PERIOD).await;
        assert_eq!(iptables.calls(), 6, "the canaries of two families");
        assert_eq!(iptables.there(), made);
        root.shutdown().await;
        let _root = iptables.start();
        pass(MOMENT).await;
        assert_eq!(
            iptables.there(),
            made,
            "nothing is there twice after a restart"
        );
    });
}

/// Upstream's TestIPTablesMonitor: a flush, in one table and then the others, and chains that are removed beside the canary.
#[test]
fn rules_that_were_removed_are_made_again_within_a_minute() {
    run_paused(|| async {
        let iptables = TestIptables::default();
        let _root = iptables.start();
        pass(MOMENT).await;
        let made = iptables.there();
        for table in ["", "mangle", "nat", "filter"] {
            let is_gone = |line: &String| line.contains(&format!(" {table}"));
            iptables.0.borrow_mut().there.retain(|line| !is_gone(line));
            pass(LOOK_PERIOD).await;
            assert_eq!(iptables.there(), made, "{table}");
        }
    });
}

/// Upstream's TestIPTablesMonitor: the lock of another program is no flush.
#[test]
fn a_failure_is_named_and_tried_again_and_is_no_flush() {
    run_paused(|| async {
        let iptables = TestIptables::default();
        let root = iptables.start();
        pass(MOMENT).await;
        let failure = CallError::Failed {
            call: "iptables".to_owned(),
            why: "another app is holding the xtables lock".to_owned(),
        };
        iptables.0.borrow_mut().failure = Some(failure.clone());
        pass(LOOK_PERIOD).await;
        assert_eq!(known(&root, "ip6tables").await, failure.to_string());
        pass(LOOK_PERIOD).await;
        iptables.0.borrow_mut().failure = None;
        pass(LOOK_PERIOD).await;
        assert_eq!(known(&root, "ip6tables").await, "made");
    });
}

#[test]
fn a_machine_without_iptables_is_asked_once() {
    run_paused(|| async {
        let iptables = TestIptables::default();
        iptables.0.borrow_mut().absent = true;
        let root = iptables.start();
        pass(LOOK_PERIOD * 5).await;
        assert_eq!(iptables.calls(), 2);
        let said = known(&root, "iptables").await;
        assert!(said.ends_with(": no such program"), "{said}");
    });
}
