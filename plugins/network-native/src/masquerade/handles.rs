//! Where the rules of each attachment are in their chain.
//!
//! The kernel lists only whole chains: an attachment that looked for its rules there would cost the more, the more pods
//! the node has. So each process lists the chain once, and remembers the handles of what is there and of what it adds.
//! A handle is a hint: rules are made and deleted by others too, and a table that is made anew counts from one again.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{CHAIN, TABLE};
use crate::nftables::{Family, Rule, Tables};

/// By what the comments of an attachment's rules begin with. The process has one network namespace, the node's.
static HANDLES: Mutex<Option<HashMap<String, BTreeSet<u64>>>> = Mutex::new(None);

/// What is known of the rules of an attachment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nobody has made any, unless another process did since the first look.
    None,
    /// Exactly these were made and are still there.
    Handles(Vec<u64>),
    /// Some are not where they were.
    Moved,
}

/// Looks up the rules of an attachment, and checks that they are still there.
pub(super) fn of(tables: &mut Tables, mark: &str) -> io::Result<Known> {
    let handles = {
        let mut handles = lock();
        if handles.is_none() {
            *handles = Some(listed(tables)?);
        }
        handles.as_ref().and_then(|all| all.get(mark)).cloned()
    };
    let Some(handles) = handles else {
        return Ok(Known::None);
    };
    for handle in &handles {
        let rule = tables.rule(Family::Both, TABLE, (CHAIN, *handle))?;
        if rule.as_ref().and_then(mark_of) != Some(mark) {
            return Ok(Known::Moved);
        }
    }
    Ok(Known::Handles(handles.into_iter().collect()))
}

/// Remembers the rules that an attachment has now.
pub(super) fn set(mark: &str, made: &[Rule]) {
    let mut handles = lock();
    let Some(all) = handles.as_mut() else { return };
    let made = made.iter().filter(|rule| mark_of(rule) == Some(mark));
    let made: BTreeSet<_> = made.map(|rule| rule.handle).collect();
    if made.is_empty() {
        all.remove(mark);
    } else {
        all.insert(mark.to_owned(), made);
    }
}

fn listed(tables: &mut Tables) -> io::Result<HashMap<String, BTreeSet<u64>>> {
    let mut all: HashMap<String, BTreeSet<u64>> = HashMap::new();
    for rule in tables.rules(Family::Both, TABLE, CHAIN)? {
        if let Some(mark) = mark_of(&rule) {
            all.entry(mark.to_owned()).or_default().insert(rule.handle);
        }
    }
    Ok(all)
}

/// What the comment of a rule begins with.
pub(super) fn mark_of(rule: &Rule) -> Option<&str> {
    rule.comment.as_deref()?.split(',').next()
}

fn lock() -> MutexGuard<'static, Option<HashMap<String, BTreeSet<u64>>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}
