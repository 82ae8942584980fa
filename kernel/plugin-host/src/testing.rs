//! For tests of plugins: processes that no signal reaches.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static SPARED: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// Lets no signal of a plugin's host reach this process: together with SIGSTOP, which the test sends
/// itself, it is as one that is stuck in the kernel. To the test it stays mortal.
pub fn spare(pid: u32) {
    SPARED.with_borrow_mut(|spared| spared.insert(pid));
}

pub(crate) fn is_spared(pid: u32) -> bool {
    SPARED.with_borrow(|spared| spared.contains(&pid))
}
