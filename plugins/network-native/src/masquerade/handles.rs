//! A cache of the handles of each attachment's masquerading rules.
//!
//! The kernel can only list a chain as a whole, so finding one attachment's rules by their comments costs more with every
//! pod on the node. The process lists the chain once, then records the handles that the kernel returns for new rules.
//! Handles can go stale: other programs edit the chain, and a recreated table numbers its rules from 1 again. Callers
//! therefore only get handles whose rules still carry the attachment's comment.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{CHAIN, TABLE};
use crate::nftables::{Family, Rule, Tables};

type Handles = HashMap<String, BTreeSet<u64>>;

/// Handles by comment prefix; `None` until the chain has been listed. The process has one network namespace, the node's.
static CACHE: Mutex<Option<Handles>> = Mutex::new(None);

/// What the cache says about the rules of one attachment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CachedHandles {
    /// The attachment has no rules, unless another program added some after the chain was listed.
    Missing,
    /// The attachment's rules, each checked with the kernel.
    Valid(Vec<u64>),
    /// At least one handle is stale.
    Stale,
}

/// Looks up an attachment's handles and checks each with the kernel.
pub(super) fn find(tables: &mut Tables, prefix: &str) -> io::Result<CachedHandles> {
    let handles = {
        let mut cache = lock();
        if cache.is_none() {
            *cache = Some(list(tables)?);
        }
        cache.as_ref().and_then(|all| all.get(prefix)).cloned()
    };
    let Some(handles) = handles else {
        return Ok(CachedHandles::Missing);
    };
    for handle in &handles {
        let rule = tables.rule(Family::Both, TABLE, CHAIN, *handle)?;
        if rule.as_ref().and_then(comment_prefix) != Some(prefix) {
            return Ok(CachedHandles::Stale);
        }
    }
    Ok(CachedHandles::Valid(handles.into_iter().collect()))
}

/// Replaces the handles of an attachment. An empty `rules` removes its entry.
pub(super) fn record(prefix: &str, rules: &[Rule]) {
    let mut cache = lock();
    let Some(all) = cache.as_mut() else { return };
    let handles: BTreeSet<u64> = rules
        .iter()
        .filter(|rule| comment_prefix(rule) == Some(prefix))
        .map(|rule| rule.handle)
        .collect();
    if handles.is_empty() {
        all.remove(prefix);
    } else {
        all.insert(prefix.to_owned(), handles);
    }
}

/// Lists the whole chain.
pub(super) fn list(tables: &mut Tables) -> io::Result<Handles> {
    let mut all = Handles::new();
    for rule in tables.rules(Family::Both, TABLE, CHAIN)? {
        if let Some(prefix) = comment_prefix(&rule) {
            let handles = all.entry(prefix.to_owned()).or_default();
            handles.insert(rule.handle);
        }
    }
    Ok(all)
}

/// The part of a rule's comment that identifies the attachment.
fn comment_prefix(rule: &Rule) -> Option<&str> {
    rule.comment.as_deref()?.split(',').next()
}

fn lock() -> MutexGuard<'static, Option<Handles>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}
