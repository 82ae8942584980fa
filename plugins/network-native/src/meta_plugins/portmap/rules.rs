//! The rules of port mappings.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use network_cni::CniError;

use crate::address::Prefixed;
use crate::failure::{OrFail, fail};
use crate::names::chain;
use crate::nftables::iptables::{self, Private};
use crate::nftables::{
    Batch, Expressions, Family, OUTPUT, POSTROUTING, PREROUTING, Side, Tables, Target,
};

const TABLE: &str = "cni_hostport";
const TABLE_WORDS: &str = "CNI portmap plugin";
const ALL: &str = "hostports_all";
/// Of old versions of the plugin: still jumped to, never filled.
const OLD: &str = "hostip_hostports";
const PORTS: &str = "hostports";
const MASQUERADING: &str = "masquerading";

/// A port of the node, and the pod's port to which it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forward {
    /// The protocol's number.
    pub(super) protocol: u8,
    /// Of which address of the node; all of them where there is none.
    pub(super) host: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) to: u16,
}

impl Forward {
    /// An address of the other version has no part in it.
    fn is_for(&self, address: IpAddr) -> bool {
        self.host
            .is_none_or(|host| host.is_ipv4() == address.is_ipv4())
    }
}

/// The rules of one container.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortRules<'a> {
    container: &'a str,
}

impl<'a> PortRules<'a> {
    pub(super) fn of(container: &'a str) -> Self {
        Self { container }
    }

    /// Makes them for one of the pod's addresses.
    pub(super) fn set(
        &self,
        address: IpAddr,
        forwards: &[Forward],
        snat: bool,
    ) -> Result<(), CniError> {
        let family = Family::of(address);
        let mine = Some(self.container);
        let set = || -> io::Result<()> {
            Tables::open()?.change(|_| {
                let mut batch = Batch::new(family, TABLE);
                structure(&mut batch, snat);
                for forward in forwards.iter().filter(|one| one.is_for(address)) {
                    batch.rule(PORTS, rule(forward, address), mine);
                }
                for rule in snat.then(|| hairpins(address)).into_iter().flatten() {
                    batch.rule(MASQUERADING, rule, mine);
                }
                Ok(batch)
            })
        };
        set().or_fail("unable to set up nftables rules for port mappings")
    }

    pub(super) fn check(
        &self,
        address: IpAddr,
        forwards: &[Forward],
        snat: bool,
    ) -> Result<(), CniError> {
        let wanted = forwards.iter().filter(|one| one.is_for(address)).count();
        let hairpins = if snat { hairpins(address).len() } else { 0 };
        for (chain, wanted) in [(PORTS, wanted), (MASQUERADING, hairpins)] {
            let rules = || Tables::open()?.rules(Family::of(address), TABLE, chain);
            let rules = rules().or_fail("could not list rules")?;
            let mine = rules
                .iter()
                .filter(|rule| rule.comment.as_deref() == Some(self.container));
            if mine.count() < wanted {
                return Err(fail(format!("missing hostport rules in {chain:?} chain")));
            }
        }
        Ok(())
    }

    /// Deletes them, whoever made them by nftables. Tells whether there were any.
    pub(super) fn clear(&self) -> Result<bool, CniError> {
        let mut was_there = false;
        let mut clear = |family| -> io::Result<()> {
            Tables::open()?.change(|tables| {
                let mut batch = Batch::new(family, TABLE);
                for chain in [PORTS, OLD, MASQUERADING] {
                    for rule in tables.rules(family, TABLE, chain)? {
                        if rule.comment.as_deref() == Some(self.container) {
                            was_there = true;
                            batch.delete_rule(chain, rule.handle);
                        }
                    }
                }
                Ok(batch)
            })
        };
        Family::EACH
            .into_iter()
            .try_for_each(|family| clear(family).or_fail("error deleting nftables rules"))?;
        Ok(was_there)
    }

    /// Deletes what a program made by iptables.
    pub(super) fn clear_iptables(&self, network: &str) -> Result<(), CniError> {
        let clear = |from, prefix| -> io::Result<()> {
            let chain = &chain(prefix, network, self.container);
            iptables::clear(&mut Tables::open()?, Private { from, chain }, None)
        };
        clear("CNI-HOSTPORT-DNAT", "DN-").or_fail("could not teardown dnat")?;
        clear("CNI-HOSTPORT-SNAT", "SN-").or_fail("could not teardown snat")
    }
}

fn rule(forward: &Forward, address: IpAddr) -> Expressions {
    let rule = match forward.host {
        // An unspecified address is no destination of packets.
        Some(host) if !host.is_unspecified() => {
            Expressions::new().within(Side::Destination, Prefixed::host(host))
        }
        Some(_) | None => Expressions::new(),
    };
    rule.destined_to(forward.protocol, forward.port)
        .destination(address, forward.to)
}

/// A pod that reaches itself by a port of the node, and the node itself by 127.0.0.1, would get no answer: its source
/// is changed.
fn hairpins(address: IpAddr) -> Vec<Expressions> {
    let from = |source: IpAddr| {
        Expressions::new()
            .within(Side::Source, Prefixed::host(source))
            .within(Side::Destination, Prefixed::host(address))
            .masquerade()
    };
    match address {
        IpAddr::V4(_) => vec![from(address), from(Ipv4Addr::LOCALHOST.into())],
        IpAddr::V6(_) => vec![from(address)],
    }
}

/// The table and its chains, with the rules that lead to those of pods.
fn structure(batch: &mut Batch, snat: bool) {
    batch.table(Some(TABLE_WORDS));
    for chain in [PORTS, OLD, ALL] {
        batch.chain(chain, None);
    }
    batch.flush(ALL);
    for chain in [OLD, PORTS] {
        batch.rule(ALL, Expressions::new().verdict(Target::Jump(chain)), None);
    }
    for (chain, hook) in [("prerouting", PREROUTING), ("output", OUTPUT)] {
        batch.base_chain(chain, hook);
        batch.flush(chain);
        let rule = Expressions::new()
            .destined_here()
            .verdict(Target::Jump(ALL));
        batch.rule(chain, rule, None);
    }
    if snat {
        batch.base_chain(MASQUERADING, POSTROUTING);
    }
}
