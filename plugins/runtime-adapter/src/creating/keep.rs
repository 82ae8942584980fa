//! The keeper's process: holds connections of calls that create, so that a runtime never sees them break.
//!
//! It has a copy of each connection from before its call is sent until its call is through. While the adapter lives it
//! reads nothing, and lets go of what the runtime has closed. When the adapter is gone it reads what comes, in its place, until the call's end:
//! a server of gRPC cancels a call whose connection breaks, and finishes one whose answer is merely not wanted.
//! It sends nothing and begins nothing.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use super::frames::AnswerScan;
use super::keeper::KeeperMessage;

/// What the process is called in lists of processes, and its argument.
pub(super) const NAME: &str = "call-keeper";
/// More than the calls that an adapter has in flight; one beyond is let go of.
const MAX_KEPT: usize = 1024;
/// How long the runtime may be silent about calls whose adapter is gone. Each has a deadline of its own, four minutes as a rule,
/// which the runtime keeps.
const LONGEST_SILENCE: Duration = Duration::from_secs(600);
const CHUNK: usize = 4 << 10;
/// Descriptors in one message: the adapter sends one.
const DESCRIPTORS: usize = 4;

/// A connection with a call, by the call's number.
#[derive(Debug)]
struct Kept {
    call: u32,
    connection: OwnedFd,
}

/// Whether this process was started as a keeper.
pub fn is_keeper(argument: &std::ffi::OsStr) -> bool {
    argument == NAME
}

/// Keeps the connections that come by standard input, until the adapter is gone and all calls are through.
pub fn keep_calls() -> ExitCode {
    if let Ok(name) = std::ffi::CString::new(NAME) {
        rustix::thread::set_name(&name).ok();
    }
    match keep(io::stdin().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Keeps the connections that come by `adapter`.
pub(super) fn keep(adapter: BorrowedFd<'_>) -> io::Result<()> {
    let mut kept = Vec::new();
    while let Some(()) = attend(adapter, &mut kept)? {}
    drain(kept)
}

/// Waits for one thing to happen while the adapter lives; none when it is gone.
fn attend(adapter: BorrowedFd<'_>, kept: &mut Vec<Kept>) -> io::Result<Option<()>> {
    let closed = |flags: PollFlags| flags.intersects(PollFlags::HUP | PollFlags::ERR);
    let flags = {
        let mut polled = vec![PollFd::new(&adapter, PollFlags::IN)];
        polled.extend(
            kept.iter()
                .map(|kept| PollFd::new(&kept.connection, PollFlags::empty())),
        );
        wait(&mut polled, None)?;
        let flags = polled.iter().map(PollFd::revents);
        flags.collect::<Vec<_>>()
    };
    let mut over = flags.iter().skip(1).map(|flags| closed(*flags));
    kept.retain(|_| !over.next().unwrap_or(false));
    if flags.first().is_none_or(|flags| flags.is_empty()) {
        return Ok(Some(()));
    }
    let Some((message, received)) = receive(adapter)? else {
        return Ok(None);
    };
    match message {
        KeeperMessage::Keep(call) => {
            let received = received.into_iter();
            kept.extend(received.map(|connection| Kept { call, connection }));
            kept.truncate(MAX_KEPT);
        }
        KeeperMessage::Release(call) => kept.retain(|kept| kept.call != call),
    }
    Ok(Some(()))
}

/// Takes the adapter's next message; none when the adapter is gone. The adapter sends each as a whole.
fn receive(adapter: BorrowedFd<'_>) -> io::Result<Option<(KeeperMessage, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; KeeperMessage::BYTES];
    let message = loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        match recvmsg(
            adapter,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            flags,
        ) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    debug_assert!(!message.flags.contains(ReturnFlags::CTRUNC));
    let mut received = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    if message.bytes == 0 {
        return Ok(None);
    }
    let read = Some(bytes).filter(|_| message.bytes == KeeperMessage::BYTES);
    let read = read.and_then(KeeperMessage::decode);
    let read = read.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(Some((read, received)))
}

/// Reads each connection to the end of its call, in the place of the adapter that is gone.
fn drain(kept: Vec<Kept>) -> io::Result<()> {
    let mut kept: Vec<_> = kept
        .into_iter()
        .map(|kept| (File::from(kept.connection), AnswerScan::default()))
        .collect();
    while !kept.is_empty() {
        let flags = {
            let mut polled: Vec<_> = kept
                .iter()
                .map(|(file, _)| PollFd::new(file, PollFlags::IN))
                .collect();
            if wait(&mut polled, Some(LONGEST_SILENCE))? == 0 {
                return Ok(());
            }
            let flags = polled.iter().map(PollFd::revents);
            flags.collect::<Vec<_>>()
        };
        let mut ready = flags.into_iter().map(|flags| !flags.is_empty());
        kept.retain_mut(|(file, scan)| !ready.next().unwrap_or(false) || !is_through(file, scan));
    }
    Ok(())
}

/// Reads what has come; returns whether the call has ended in it, or the connection.
fn is_through(file: &mut File, scan: &mut AnswerScan) -> bool {
    let mut chunk = [0; CHUNK];
    match file.read(&mut chunk) {
        Ok(0) => true,
        Ok(bytes) => scan.ends_in(&chunk[..bytes]),
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        ),
    }
}

fn wait(polled: &mut [PollFd<'_>], within: Option<Duration>) -> io::Result<usize> {
    let timeout = within.map(Timespec::try_from).transpose();
    let timeout = timeout.map_err(io::Error::other)?;
    loop {
        match poll(polled, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::creating::keeper::send;

    /// A frame without payload: its type and flags.
    fn frame(kind: u8, flags: u8) -> [u8; 9] {
        [0, 0, 0, kind, flags, 0, 0, 0, 1]
    }

    fn keeper() -> (UnixStream, thread::JoinHandle<io::Result<()>>) {
        let (adapter, own) = UnixStream::pair().unwrap();
        (adapter, thread::spawn(move || keep(own.as_fd())))
    }

    fn keep_call(adapter: &UnixStream, call: u32, connection: &UnixStream) {
        let message = KeeperMessage::Keep(call);
        send(adapter.as_fd(), message, Some(connection.as_fd())).unwrap();
    }

    #[test]
    fn a_connection_without_a_call_is_not_held_when_the_adapter_is_gone() {
        let (adapter, keeper) = keeper();
        let (connection, mut runtime) = UnixStream::pair().unwrap();
        // Used for two calls, one after the other; the second is through as well.
        for call in [7, 8] {
            keep_call(&adapter, call, &connection);
            send(adapter.as_fd(), KeeperMessage::Release(call), None).unwrap();
        }
        drop((adapter, connection));
        assert_eq!(runtime.read(&mut [0; 8]).unwrap(), 0);
        keeper.join().unwrap().unwrap();
    }

    #[test]
    fn a_call_whose_adapter_is_gone_keeps_its_connection_to_its_end() {
        let (adapter, keeper) = keeper();
        let mut runtimes = Vec::new();
        for call in 0..3 {
            let (connection, runtime) = UnixStream::pair().unwrap();
            keep_call(&adapter, call, &connection);
            runtimes.push(runtime);
        }
        drop(adapter);
        for mut runtime in runtimes {
            for (kind, flags) in [(6, 0), (1, 4), (0, 0), (1, 5)] {
                runtime.write_all(&frame(kind, flags)).unwrap();
            }
            let mut rest = Vec::new();
            assert_eq!(runtime.read_to_end(&mut rest).unwrap(), 0);
        }
        keeper.join().unwrap().unwrap();
    }

    #[test]
    fn what_the_adapter_has_closed_is_let_go_of_while_it_lives() {
        let (adapter, keeper) = keeper();
        let (connection, mut runtime) = UnixStream::pair().unwrap();
        keep_call(&adapter, 0, &connection);
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(runtime.read(&mut [0; 8]).unwrap(), 0);
        // As a server does when its client has closed.
        drop(runtime);
        drop(adapter);
        keeper.join().unwrap().unwrap();
    }
}
