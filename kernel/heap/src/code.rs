//! The pages of the program itself.
//!
//! The kernel maps sixteen pages of a file where one is touched, and unmaps none before memory runs short: after its
//! start a process has nearly all of its program mapped, for good. What is unmapped here stays in the page cache, and
//! is mapped again where it is touched.

use std::fs;
use std::ops::Range;

/// Unmaps the program's code and constants; what runs is mapped again at once.
pub(crate) fn unmap() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    for range in unwritten(&maps, &program.to_string_lossy()) {
        advise(&range, libc::MADV_DONTNEED);
    }
}

/// The address ranges of `maps` (proc_pid_maps(5)) that map the program and were never written: its code, and what lies
/// before that in the file. What the loader has relocated and then made read-only lies behind.
fn unwritten(maps: &str, program: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for line in maps.lines() {
        let mut words = line.splitn(6, ' ').map(str::trim);
        let mut next = || words.next().unwrap_or_default();
        let (addresses, access) = (next(), next());
        let [_offset, _device, _inode] = [next(), next(), next()];
        if next() != program || program.is_empty() {
            continue;
        }
        let is_code = access == "r-xp";
        if !is_code && access != "r--p" {
            break;
        }
        let address = |text: &str| usize::from_str_radix(text, 16).ok();
        let range = addresses
            .split_once('-')
            .and_then(|(start, end)| Some(address(start)?..address(end)?));
        found.extend(range);
        if is_code {
            return found;
        }
    }
    // Without code behind them they may be what the loader has written.
    Vec::new()
}

fn advise(range: &Range<usize>, advice: libc::c_int) {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the range is a private mapping of the program's file that no one has written, so each page of it reads the
    // same before and after. The call reads and writes nothing at the address itself; a refusal leaves all as it is.
    unsafe { libc::madvise(start, range.len(), advice) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00200000-00580000 r--p 00000000 fe:00 77                         /opt/a b/oxlet
00580000-014bf000 r-xp 0037f000 fe:00 77                         /opt/a b/oxlet
014c0000-01541000 r--p 012be000 fe:00 77                         /opt/a b/oxlet
01542000-01548000 rw-p 0133f000 fe:00 77                         /opt/a b/oxlet
01548000-01569000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000026000 r--p 00000000 fe:00 9                  /usr/lib/libc.so.6
7f0000026000-7f000017b000 r-xp 00026000 fe:00 9                  /usr/lib/libc.so.6
";

    #[test]
    fn code_and_what_lies_before_it_is_found_and_nothing_that_was_written() {
        let all = unwritten(MAPS, "/opt/a b/oxlet");
        assert_eq!(all, [0x20_0000..0x58_0000, 0x58_0000..0x14b_f000]);
        assert_eq!(unwritten(MAPS, "/opt/oxlet"), []);
        assert_eq!(unwritten(MAPS, ""), []);
        let behind: String = MAPS
            .lines()
            .skip(2)
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(unwritten(&behind, "/opt/a b/oxlet"), []);
    }

    /// Bytes of files that are mapped and in memory.
    fn resident() -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:"));
        let number = line.unwrap().split_whitespace().nth(1).unwrap();
        number.parse::<usize>().unwrap() * 1024
    }

    #[test]
    fn code_that_does_not_run_is_unmapped_and_the_program_goes_on() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let program = fs::read_link("/proc/self/exe").unwrap();
        let ranges = unwritten(&maps, program.to_str().unwrap());
        let bytes: usize = ranges.iter().map(Range::len).sum();
        ranges
            .iter()
            .for_each(|range| advise(range, libc::MADV_POPULATE_READ));
        let before = resident();
        unmap();
        let after = resident();
        assert!(
            after + bytes / 4 < before,
            "{bytes} bytes, {before} resident before, {after} after"
        );
    }
}
