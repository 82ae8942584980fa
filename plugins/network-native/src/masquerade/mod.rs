//! Masquerading of a pod's packets that leave its network, as the plugins' nftables backend has it: table
//! `inet cni_plugins_masquerade`, a rule an address, known by its comment.

mod handles;

use std::io;
use std::net::IpAddr;

use network_cni::CniError;

use self::handles::CachedHandles;
use crate::address::Prefixed;
use crate::failure::OrFail;
use crate::names::{chain, hashed};
use crate::nftables::iptables::{self, Private};
use crate::nftables::{Batch, Expressions, Family, POSTROUTING, Side, Tables, Target, cut};

const TABLE: &str = "cni_plugins_masquerade";
const CHAIN: &str = "masq_checks";
const BASE: &str = "postrouting";
const TABLE_WORDS: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHAIN_WORDS: &str =
    "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";
const MULTICAST: [&str; 2] = ["224.0.0.0/4", "ff00::/8"];
const HASH: usize = 16;

/// Whose packets are masqueraded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masquerade<'a> {
    pub(crate) network: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) container: &'a str,
}

impl Masquerade<'_> {
    /// The beginning of the comments of its rules.
    fn mark(&self) -> String {
        let instance = format!("{}:{}", self.interface, self.container);
        let (network, instance) = (hashed("", self.network, HASH), hashed("", &instance, HASH));
        format!("{network}-{instance}")
    }

    fn comment(&self) -> String {
        let plain = |text: &str| text.replace('"', "");
        let (network, container) = (plain(self.network), plain(self.container));
        let (mark, interface) = (self.mark(), plain(self.interface));
        let words = format!("{mark}, net: {network}, if: {interface}, id: {container}");
        cut(&words).to_owned()
    }

    /// Masquerades packets from these addresses, and from no others of the interface.
    pub(crate) fn set(&self, addresses: &[Prefixed]) -> Result<(), CniError> {
        let mark = self.mark();
        let set = || -> io::Result<()> {
            let made = Tables::open()?.create(|tables| {
                let mut batch = Batch::new(Family::Both, TABLE);
                structure(&mut batch);
                let old = match handles::find(tables, &mark)? {
                    CachedHandles::Missing => Vec::new(),
                    CachedHandles::Valid(old) => old,
                    CachedHandles::Stale => list_handles(tables, &mark)?,
                };
                for handle in old {
                    batch.delete_rule(CHAIN, handle);
                }
                for address in addresses {
                    let rule = Expressions::new()
                        .version_of(address.address)
                        .within(Side::Source, Prefixed::host(address.address))
                        .not_within(Side::Destination, address.network())
                        .masquerade();
                    batch.rule(CHAIN, rule, Some(&self.comment()));
                }
                Ok(batch)
            })?;
            handles::record(&mark, &made);
            Ok(())
        };
        set().or_fail("failed to masquerade")
    }

    /// Ends it, whoever made it by nftables. Tells whether there was any.
    pub(crate) fn clear(&self) -> Result<bool, CniError> {
        let mark = self.mark();
        let clear = || -> io::Result<bool> {
            let mut was_there = false;
            Tables::open()?.change(|tables| {
                let gone = match handles::find(tables, &mark)? {
                    CachedHandles::Valid(gone) => gone,
                    // A CNI program may have added rules since the chain was listed.
                    CachedHandles::Missing | CachedHandles::Stale => list_handles(tables, &mark)?,
                };
                was_there |= !gone.is_empty();
                let mut batch = Batch::new(Family::Both, TABLE);
                for handle in gone {
                    batch.delete_rule(CHAIN, handle);
                }
                Ok(batch)
            })?;
            handles::record(&mark, &[]);
            Ok(was_there)
        };
        clear().or_fail("failed to end masquerading")
    }

    /// Ends what a program made by iptables for these addresses, or for all of the container.
    pub(crate) fn clear_iptables(&self, addresses: Option<&[IpAddr]>) -> Result<(), CniError> {
        let of = chain("", self.network, self.container);
        let private = Private {
            from: "POSTROUTING",
            chain: &of,
        };
        let clear = || iptables::clear(&mut Tables::open()?, private, addresses);
        clear().or_fail("failed to end masquerading by iptables")
    }
}

/// Lists the handles of one attachment's rules, without the cache.
fn list_handles(tables: &mut Tables, mark: &str) -> io::Result<Vec<u64>> {
    let own = handles::list(tables)?.remove(mark);
    Ok(own.into_iter().flatten().collect())
}

/// The table and its chains, with the rules that lead to those of pods.
fn structure(batch: &mut Batch) {
    batch.table(Some(TABLE_WORDS));
    batch.chain(CHAIN, Some(CHAIN_WORDS));
    batch.base_chain(BASE, POSTROUTING);
    batch.flush(BASE);
    for multicast in MULTICAST {
        let multicast = Prefixed::parse(multicast).expect("a network");
        let rule = Expressions::new()
            .version_of(multicast.address)
            .within(Side::Destination, multicast)
            .verdict(Target::Return);
        batch.rule(BASE, rule, None);
    }
    batch.rule(BASE, Expressions::new().verdict(Target::Goto(CHAIN)), None);
}
