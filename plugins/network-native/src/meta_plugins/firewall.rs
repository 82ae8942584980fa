//! firewall: packets from a pod and answers to it are accepted. As the plugin's iptables backend has it, and where
//! iptables on nf_tables keeps it, in its own encoding: a chain of another table could not accept what a rule of iptables
//! drops.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use network_cni::{Call, CniError, CniResult, Work};
use serde::Deserialize;

use crate::address::{self, Prefixed};
use crate::conf::{self, NotBuiltIn};
use crate::failure::{OrFail, fail};
use crate::interface;
use crate::nftables::{Batch, Expressions, FORWARD, Family, Rule, Side, Tables, Target};

const TABLE: &str = "filter";
const BASE: &str = "FORWARD";
const PODS: &str = "CNI-FORWARD";
const DEFAULT_ADMIN: &str = "CNI-ADMIN";
const PODS_WORDS: &str = "CNI firewall plugin rules";
const ADMIN_WORDS: &str = "CNI firewall plugin admin overrides";

/// Without its policy on the bus there is no firewalld that the program would speak to.
const FIREWALLD: [&str; 2] = [
    "/usr/share/dbus-1/system.d/FirewallD.conf",
    "/etc/dbus-1/system.d/FirewallD.conf",
];
/// The tables of iptables' older variant, whose rules are no part of nf_tables.
const LEGACY: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    backend: String,
    iptables_admin_chain_name: String,
    // Of the other backend.
    #[serde(rename = "firewalldZone")]
    _firewalld_zone: String,
    ingress_policy: String,
}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let mut conf: Conf = conf::read(call)?;
    match conf.backend.as_str() {
        "iptables" => {}
        "" if !FIREWALLD.iter().any(|path| Path::new(path).exists()) => {}
        "" => return Err(NotBuiltIn("firewalld may run".to_owned())),
        other => return Err(NotBuiltIn(format!("backend {other:?}"))),
    }
    if !matches!(conf.ingress_policy.as_str(), "" | "open") {
        let policy = &conf.ingress_policy;
        return Err(NotBuiltIn(format!("ingressPolicy {policy:?}")));
    }
    let in_use = |path: &str| fs::read(path).is_ok_and(|names| !names.is_empty());
    if let Some(path) = LEGACY.into_iter().find(|path| in_use(path)) {
        return Err(NotBuiltIn(format!("{path} has tables")));
    }
    if conf.iptables_admin_chain_name.is_empty() {
        DEFAULT_ADMIN.clone_into(&mut conf.iptables_admin_chain_name);
    }
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => add(&conf, &call),
        "DEL" => delete(&call).map(|()| CniResult::default()),
        "CHECK" => check(&conf, &call),
        _ => Ok(CniResult::default()),
    }))
}

/// The addresses of a result, by their version.
fn by_family(result: &CniResult) -> Result<Vec<(Family, Vec<IpAddr>)>, CniError> {
    let all = interface::addresses(result)?;
    let of = |family| {
        let of_family = all.iter().map(|of| of.address);
        (
            family,
            of_family.filter(|one| Family::of(*one) == family).collect(),
        )
    };
    let each = Family::EACH.map(of).into_iter();
    Ok(each
        .filter(|(_, addresses): &(_, Vec<_>)| !addresses.is_empty())
        .collect())
}

fn add(conf: &Conf, call: &Call) -> Result<CniResult, CniError> {
    let previous = call.previous.as_ref();
    let previous = previous.ok_or_else(|| fail("missing prevResult from earlier plugin"))?;
    let admin = conf.iptables_admin_chain_name.as_str();
    for (family, addresses) in by_family(previous)? {
        let set = || Tables::open()?.change(|tables| planned(tables, family, admin, &addresses));
        set().or_fail("failed to set up rules of the firewall")?;
    }
    Ok(previous.clone())
}

fn planned(
    tables: &mut Tables,
    family: Family,
    admin: &str,
    addresses: &[IpAddr],
) -> io::Result<Batch> {
    let mut batch = Batch::new(family, TABLE);
    batch.table(None);
    batch.base_chain(BASE, FORWARD);
    batch.chain(PODS, None);
    batch.chain(admin, None);
    for (from, to, words) in [(BASE, PODS, PODS_WORDS), (PODS, admin, ADMIN_WORDS)] {
        let rules = tables.rules(family, TABLE, from)?;
        if !rules
            .iter()
            .any(|rule| rule.target().as_deref() == Some(to))
        {
            let jump = Expressions::new().iptables_comment(words).counter();
            batch.first_rule(from, jump.verdict(Target::Jump(to)));
        }
    }
    drop_rules(tables, &mut batch, (family, addresses))?;
    for address in addresses {
        let of = Prefixed::host(*address);
        let to = Expressions::new().within(Side::Destination, of);
        let to = to.iptables_answers().counter();
        batch.rule(PODS, to.verdict(Target::Accept), None);
        let from = Expressions::new().within(Side::Source, of).counter();
        batch.rule(PODS, from.verdict(Target::Accept), None);
    }
    Ok(batch)
}

/// Tells whether a rule is one of ours for an address, or of the program's, which are the same.
fn is_of(rule: &Rule, address: IpAddr) -> bool {
    let names = rule.names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let shape = matches!(
        names[..],
        ["payload", "cmp", "match", "counter", "immediate"]
            | ["payload", "cmp", "counter", "immediate"]
    );
    shape && rule.target().is_none() && rule.compares_with(&address::bytes(address))
}

fn drop_rules(
    tables: &mut Tables,
    batch: &mut Batch,
    (family, addresses): (Family, &[IpAddr]),
) -> io::Result<()> {
    for rule in tables.rules(family, TABLE, PODS)? {
        if addresses.iter().any(|address| is_of(&rule, *address)) {
            batch.delete_rule(PODS, rule.handle);
        }
    }
    Ok(())
}

/// Deletes the rules for an attachment's addresses, where they are known.
pub(crate) fn delete(call: &Call) -> Result<(), CniError> {
    let Some(previous) = &call.previous else {
        return Ok(());
    };
    for (family, addresses) in by_family(previous)? {
        let clear = || {
            Tables::open()?.change(|tables| {
                let mut batch = Batch::new(family, TABLE);
                drop_rules(tables, &mut batch, (family, &addresses))?;
                Ok(batch)
            })
        };
        clear().or_fail("failed to delete rules of the firewall")?;
    }
    Ok(())
}

fn check(conf: &Conf, call: &Call) -> Result<CniResult, CniError> {
    let previous = call.previous.as_ref();
    let previous = previous.ok_or_else(|| fail("missing prevResult from earlier plugin"))?;
    let admin = conf.iptables_admin_chain_name.as_str();
    for (family, addresses) in by_family(previous)? {
        let rules = |chain| Tables::open()?.rules(family, TABLE, chain);
        let base = rules(BASE).or_fail("could not list rules")?;
        let pods = rules(PODS).or_fail("could not list rules")?;
        for (rules, to) in [(&base, PODS), (&pods, admin)] {
            if !rules
                .iter()
                .any(|rule| rule.target().as_deref() == Some(to))
            {
                return Err(fail(format!("expected rule that jumps to {to} not found")));
            }
        }
        for address in addresses {
            if pods.iter().filter(|rule| is_of(rule, address)).count() < 2 {
                return Err(fail(format!("expected rules of {address} not found")));
            }
        }
    }
    Ok(CniResult::default())
}
