//! The machine's memory, NUMA node by NUMA node.

use std::collections::BTreeMap;

use logic_api::pod::requests::{HUGE_PAGES, quantity};
use logic_api::quantity::QuantityFormat;

use crate::topology::NumaNodeId;

/// The memory of each NUMA node.
pub type MachineMemory = BTreeMap<NumaNodeId, NumaMemory>;

/// The memory of one NUMA node, as cAdvisor's `Node` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaMemory {
    /// Bytes in all, those of huge pages too.
    pub bytes: u64,
    /// How many huge pages there are, by the bytes of one.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// The name of the resource that huge pages of this size are: `hugepages-2Mi`.
pub(super) fn huge_pages_resource(page_bytes: u64) -> String {
    let size = i64::try_from(page_bytes).unwrap_or(i64::MAX);
    format!("{HUGE_PAGES}{}", quantity(size, QuantityFormat::BinarySI))
}
