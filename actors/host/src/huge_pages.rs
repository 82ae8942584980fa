//! Huge pages: which sizes the machine has, and how many pages of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Pages by their size in bytes, from `kernel/mm/hugepages` below `sys`, which is `/sys`: its folders are named
/// `hugepages-2048kB`.
pub fn read(sys: &Path) -> BTreeMap<u64, u64> {
    let folders = fs::read_dir(sys.join("kernel/mm/hugepages"));
    let folders = folders.into_iter().flatten().flatten();
    let pages = |folder: fs::DirEntry| {
        let name = folder.file_name();
        let size = name.to_str()?.strip_prefix("hugepages-")?;
        let size: u64 = size.strip_suffix("kB")?.parse().ok()?;
        let count = fs::read_to_string(folder.path().join("nr_hugepages")).unwrap_or_default();
        Some((size.checked_mul(1024)?, count.trim().parse().ok()?))
    };
    folders.filter_map(pages).collect()
}
