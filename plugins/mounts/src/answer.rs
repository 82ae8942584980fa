//! gRPC statuses for errors of the operating system: one sentence, and the code that the contract has for it.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use tonic::{Code, Status};

/// Makes the answer `WHAT: CAUSE`, with the contract's code for the cause.
pub fn failed(what: impl Display, cause: impl Into<io::Error>) -> Status {
    let cause = cause.into();
    Status::new(code(&cause), format!("{what}: {}", os_error_text(&cause)))
}

/// Makes the answer to a walk that cannot return from the folder at `path`, because it was moved meanwhile.
pub(crate) fn lost(path: &std::path::Path, cause: Errno) -> Status {
    failed(format!("cannot go back from {}", path.display()), cause)
}

/// Returns the contract's code for an error of the operating system.
pub fn code(cause: &io::Error) -> Code {
    match Errno::from_io_error(cause) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Code::NotFound,
        Some(Errno::NOSPC | Errno::DQUOT | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
            Code::ResourceExhausted
        }
        Some(
            Errno::NOTDIR
            | Errno::ISDIR
            | Errno::BUSY
            | Errno::ROFS
            | Errno::EXIST
            | Errno::NOTEMPTY
            | Errno::LOOP,
        ) => Code::FailedPrecondition,
        Some(Errno::TIMEDOUT) => Code::DeadlineExceeded,
        Some(Errno::CONNREFUSED | Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::STALE) => {
            Code::Unavailable
        }
        Some(_) | None => Code::Internal,
    }
}

/// The cause as upstream's messages have it: the system's own words in lower case, without a number.
pub fn os_error_text(cause: &io::Error) -> String {
    let text = cause.to_string();
    let text = match text.find(" (os error ") {
        Some(end) => &text[..end],
        None => &text,
    };
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if cause.raw_os_error().is_some() => {
            first.to_lowercase().chain(letters).collect()
        }
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_sentence_in_upstream_s_words() {
        let status = failed("lstat /a failed", Errno::NOENT);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(
            status.message(),
            "lstat /a failed: no such file or directory"
        );
        let full = failed("cannot write /a", Errno::NOSPC);
        assert_eq!(full.code(), Code::ResourceExhausted);
        assert_eq!(full.message(), "cannot write /a: no space left on device");
    }

    #[test]
    fn an_error_without_a_number_keeps_its_words() {
        let status = failed("x", io::Error::other("Odd (os error"));
        assert_eq!(status.message(), "x: Odd (os error");
        assert_eq!(status.code(), Code::Internal);
    }
}
