//! The pages of the program itself.
//!
//! The kernel maps sixteen pages of a file where one is touched, and unmaps none before memory runs short: after its
//! start a process has nearly all of its program mapped, for good. What is unmapped here stays in the page cache, and
//! is mapped again where it is touched; from Linux 6.7 on that page alone.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::Ioctl;
use linux_raw_sys::general::{
    UFFD_API, UFFD_FEATURE_WP_ASYNC, UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_WP, uffdio_api,
    uffdio_range, uffdio_register,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_REGISTER};

/// The pages of the program's code and constants.
#[derive(Debug)]
pub(crate) struct Code {
    ranges: Vec<Range<usize>>,
    /// As long as it is open pages are mapped one by one; none where the kernel refuses it.
    _singly: Option<OwnedFd>,
}

impl Code {
    /// Finds them, and has them mapped one by one from now on where the kernel can.
    pub(crate) fn find() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let ranges = unwritten(&maps, &program.to_string_lossy());
        // Less memory is all that is lost without it.
        let _singly = singly(&ranges).ok();
        Self { ranges, _singly }
    }

    /// Unmaps them; what runs is mapped again at once.
    pub(crate) fn unmap(&self) {
        for range in &self.ranges {
            advise(range, libc::MADV_DONTNEED);
        }
    }
}

/// Has the kernel map a page of `ranges` where one is touched, and none of those around it: so it does where it keeps
/// account of written pages (userfaultfd(2), `UFFD_FEATURE_WP_ASYNC`). Nothing is written there, and nobody is told of
/// anything; faults of the kernel itself are out of its reach (`UFFD_USER_MODE_ONLY`).
fn singly(ranges: &[Range<usize>]) -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY.cast_signed();
    // SAFETY: the call takes a number, by value.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor was just opened, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut api = uffdio_api {
        api: u64::from(UFFD_API),
        features: u64::from(UFFD_FEATURE_WP_ASYNC),
        ioctls: 0,
    };
    // SAFETY: the request reads and writes a `uffdio_api`, which outlives the call.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API as Ioctl, &raw mut api) })?;
    for range in ranges {
        let mut register = uffdio_register {
            range: uffdio_range {
                start: u64::try_from(range.start).map_err(io::Error::other)?,
                len: u64::try_from(range.len()).map_err(io::Error::other)?,
            },
            mode: u64::from(UFFDIO_REGISTER_MODE_WP),
            ioctls: 0,
        };
        // SAFETY: the request reads and writes a `uffdio_register`, which outlives the call. Of the range, pages that nobody
        // writes, it changes no byte; and no fault waits for an answer, since writes alone are watched, and those by
        // the kernel itself.
        checked(unsafe {
            libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER as Ioctl, &raw mut register)
        })?;
    }
    Ok(fd)
}

fn checked(answer: libc::c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
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
        Code::find().unmap();
        let after = resident();
        assert!(
            after + bytes / 4 < before,
            "{bytes} bytes, {before} resident before, {after} after"
        );
    }

    /// The kernel's window is sixteen pages.
    #[test]
    fn a_page_that_is_touched_is_mapped_without_those_around_it() {
        const PAGE: usize = 4096;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release
            .split(['.', '-'])
            .map(|part| part.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(6), Some(7)) {
            eprintln!("skipped: the kernel maps pages one by one from Linux 6.7 on");
            return;
        }
        let code = Code::find();
        assert!(code._singly.is_some(), "{:?}", singly(&code.ranges));
        code.unmap();
        let before = resident();
        let mut touched = 0;
        for address in code
            .ranges
            .iter()
            .flat_map(|range| range.clone().step_by(16 * PAGE))
        {
            let page = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: the page is mapped for reading.
            unsafe { page.read_volatile() };
            touched += PAGE;
        }
        let mapped = resident() - before;
        // Some of the test's own code runs as well.
        assert!(
            mapped < 4 * touched,
            "{touched} bytes touched, {mapped} mapped"
        );
    }
}
