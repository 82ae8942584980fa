//! Huge pages: which sizes the machine has, and how many pages of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// More sizes than any processor has.
const MAX_SIZES: usize = 64;

/// Pages by their size in bytes, from `kernel/mm/hugepages` below `sys`, which is `/sys`.
pub fn read(sys: &Path) -> BTreeMap<u64, u64> {
    read_folder(&sys.join("kernel/mm/hugepages"))
}

/// Pages by their size in bytes, from a folder whose folders are named `hugepages-2048kB`.
pub(crate) fn read_folder(folder: &Path) -> BTreeMap<u64, u64> {
    let folders = fs::read_dir(folder).into_iter().flatten();
    let folders = folders.flatten().take(MAX_SIZES);
    let pages = |folder: fs::DirEntry| {
        let name = folder.file_name();
        let size = name.to_str()?.strip_prefix("hugepages-")?;
        let size: u64 = size.strip_suffix("kB")?.parse().ok()?;
        let count = fs::read_to_string(folder.path().join("nr_hugepages")).unwrap_or_default();
        Some((size.checked_mul(1024)?, count.trim().parse().ok()?))
    };
    folders.filter_map(pages).collect()
}
