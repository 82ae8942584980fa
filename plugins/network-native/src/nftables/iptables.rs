//! What the plugins' programs made by iptables, as its variant on nf_tables keeps it: found by the well-known names of
//! chains, and taken away.

use std::io;
use std::net::IpAddr;

use super::{Batch, Family, Tables};
use crate::address;

const NAT: &str = "nat";

/// A chain of one container, and the chain whose rules jump to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Private<'a> {
    pub(crate) from: &'a str,
    pub(crate) chain: &'a str,
}

/// Deletes a container's chain of table nat, and the rules that jump to it: all of them, or those that are about one of
/// these addresses. A chain that is jumped to still stays.
pub(crate) fn clear(
    tables: &mut Tables,
    of: Private<'_>,
    addresses: Option<&[IpAddr]>,
) -> io::Result<()> {
    for family in Family::EACH {
        if !tables.has_chain(family, NAT, of.chain)? {
            continue;
        }
        tables.change(|tables| {
            let mut batch = Batch::new(family, NAT);
            let jumps = tables.rules(family, NAT, of.from)?.into_iter();
            let jumps = jumps.filter(|rule| rule.target().as_deref() == Some(of.chain));
            let is_about = |bytes: Vec<u8>, rule: &super::Rule| rule.compares_with(&bytes);
            let (gone, kept): (Vec<_>, Vec<_>) = jumps.partition(|rule| {
                addresses
                    .is_none_or(|all| all.iter().any(|one| is_about(address::bytes(*one), rule)))
            });
            for rule in &gone {
                batch.delete_rule(of.from, rule.handle);
            }
            if kept.is_empty() && tables.has_chain(family, NAT, of.chain)? {
                batch.delete_chain(of.chain);
            }
            Ok(batch)
        })?;
    }
    Ok(())
}
