//! The processes of one group: how many, what they have open, and what they may open.

use logic_resources::group_stats::GroupTasks;

use super::files::{FileReader, Folder};

/// Processes of one group whose descriptors are counted.
const MAX_PROCESSES: usize = 1024;
/// Descriptors of one group that are looked at.
const MAX_DESCRIPTORS: u64 = 16_384;

/// The processes in a group itself.
pub(super) fn pids(files: &mut FileReader, folder: &Folder) -> Vec<String> {
    let text = files.text(folder, "cgroup.procs");
    let pids = text.lines().filter(|line| line.parse::<u32>().is_ok());
    pids.map(str::to_owned).collect()
}

/// Counts descriptors and sockets; a process that ends meanwhile has none.
pub(super) fn count(proc: &Folder, pids: &[String], tasks: &mut GroupTasks) {
    for pid in pids.iter().take(MAX_PROCESSES) {
        let left = MAX_DESCRIPTORS.saturating_sub(tasks.file_descriptors);
        let (links, sockets) = proc.count_links(&format!("{pid}/fd"), left, b"socket:");
        tasks.file_descriptors += links;
        tasks.sockets += sockets;
    }
}

/// The soft limit of open files in a process's `limits`, -1 for none.
pub(super) fn open_files(limits: &str) -> Option<i64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        word if word.eq_ignore_ascii_case("unlimited") => Some(-1),
        word => word.parse().ok(),
    }
}
