//! The kernel's messages, from `/dev/kmsg`: opened so that reading never waits, and each read told for what it is.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use logic_resources::oom::KmsgRecord;
use rustix::fs::OFlags;

/// Bytes of the kernel's longest record; one read gives one record.
pub const MAX_RECORD: usize = 8192;

/// Of records that were overwritten, of one that is longer than the kernel says, and of a signal.
const PASSING: [ErrorKind; 3] = [
    ErrorKind::BrokenPipe,
    ErrorKind::InvalidInput,
    ErrorKind::Interrupted,
];

/// What one read of the device has given.
#[derive(Debug, PartialEq, Eq)]
pub enum KmsgRead {
    Record(KmsgRecord),
    /// A record of no interest, or none that can be read; or some were lost because the kernel wrote faster.
    Other,
    /// There is none now.
    Empty,
    /// The device has ended, which a real one never does.
    Ended,
}

/// Opens the messages at the oldest one that the kernel has kept.
///
/// # Errors
/// Those of open(2): the machine does not let everybody read its messages.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::CLOEXEC).bits());
    let flags = flags.map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Tells what a read into `buffer` has given: a record, if it is about memory.
///
/// # Errors
/// Those of read(2) that do not pass by themselves.
pub fn classify(read: io::Result<usize>, buffer: &[u8]) -> io::Result<KmsgRead> {
    let length = match read {
        Ok(0) => return Ok(KmsgRead::Ended),
        Ok(length) => length.min(buffer.len()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(KmsgRead::Empty),
        Err(error) if PASSING.contains(&error.kind()) => return Ok(KmsgRead::Other),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&buffer[..length]);
    if !KmsgRecord::is_about_memory(&text) {
        return Ok(KmsgRead::Other);
    }
    Ok(KmsgRecord::parse(&text).map_or(KmsgRead::Other, KmsgRead::Record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &[u8]) -> KmsgRead {
        classify(Ok(text.len()), text).unwrap()
    }

    #[test]
    fn records_about_memory_are_told_and_others_skipped() {
        let record = KmsgRecord {
            sequence: 7,
            message: "x invoked oom-killer: order=0".into(),
        };
        let about = b"3,7,2,-;x invoked oom-killer: order=0\n";
        assert_eq!(told(about), KmsgRead::Record(record));
        for other in [
            &b"6,1,2,-;usb 1-1: new device\n"[..],
            b"no record, invoked oom-killer:",
            b"\xff\xfe\x00",
        ] {
            assert_eq!(told(other), KmsgRead::Other);
        }
        assert_eq!(told(b""), KmsgRead::Ended);
    }

    #[test]
    fn what_passes_by_itself_is_no_error() {
        let failed = |errno| classify(Err(io::Error::from_raw_os_error(errno)), b"");
        let (again, interrupted, invalid, overwritten, broken) = (11, 4, 22, 32, 5);
        assert_eq!(failed(again).unwrap(), KmsgRead::Empty);
        for errno in [interrupted, invalid, overwritten] {
            assert_eq!(failed(errno).unwrap(), KmsgRead::Other);
        }
        assert!(failed(broken).is_err());
    }

    #[test]
    fn a_device_that_is_absent_is_an_error() {
        let error = open(Path::new("/nonexistent/kmsg")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
