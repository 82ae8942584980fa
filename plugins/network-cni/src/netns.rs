//! Network namespaces of sandboxes: whether there is one at a path, and its loopback interface.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::fstatfs;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// `NSFS_MAGIC` of linux/magic.h: a path of another file system is no namespace, whatever it was before.
const NSFS_MAGIC: i64 = 0x6e73_6673;
const OWN: &str = "/proc/self/ns/net";

/// The interface that every namespace has, as its first.
const LOOPBACK: i32 = 1;
const IFF_UP: u32 = 1;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;

/// Why a path cannot be taken for a sandbox's namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// It cannot be opened.
    #[error("netns {path}: {source}")]
    Open {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Something else is at the path.
    #[error("netns {0}: no network namespace")]
    NotOne(String),
    /// It is the namespace in which this process runs.
    #[error("netns {0}: the node's own network namespace, expected a sandbox's")]
    Host(String),
    /// Its first interface stays down.
    #[error("netns {path}: its loopback interface cannot be brought up: {source}")]
    Loopback {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Opens the namespace at a path, which must not be the node's own.
///
/// # Errors
/// [`NetnsError`] says what is there instead.
pub fn open(path: &str) -> Result<File, NetnsError> {
    let cannot = |source| NetnsError::Open {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(cannot)?;
    let system = fstatfs(&file).map_err(|error| cannot(error.into()))?;
    if system.f_type != NSFS_MAGIC {
        return Err(NetnsError::NotOne(path.to_owned()));
    }
    let (it, own) = (file.metadata(), fs::metadata(OWN));
    let (it, own) = (it.map_err(cannot)?, own.map_err(cannot)?);
    match (it.dev(), it.ino()) == (own.dev(), own.ino()) {
        true => Err(NetnsError::Host(path.to_owned())),
        false => Ok(file),
    }
}

/// Tells whether there is a namespace at the path still.
pub(crate) fn is_there(path: &str) -> bool {
    !path.is_empty() && open(path).is_ok()
}

/// Brings the loopback interface of the namespace at `path` up; nothing changes if it is.
pub(crate) fn bring_loopback_up(path: &str) -> Result<(), NetnsError> {
    let namespace = open(path)?;
    let cannot = |source| NetnsError::Loopback {
        path: path.to_owned(),
        source,
    };
    // A thread belongs to a namespace: this one is made for it and ends with it. The socket stays in the namespace
    // in which it was made.
    let entered = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let thread = thread.spawn_scoped(scope, || socket_in(&namespace))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread within it panicked")))
    });
    entered.and_then(|socket| set_up(&socket)).map_err(cannot)
}

fn socket_in(namespace: &File) -> io::Result<OwnedFd> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    // NETLINK_ROUTE is protocol 0, which is what no protocol means.
    Ok(socket_with(family, SocketType::RAW, flags, None)?)
}

/// Sends RTM_NEWLINK (rtnetlink(7)) and reads the kernel's answer, which is there when the request was taken.
fn set_up(socket: &OwnedFd) -> io::Result<()> {
    let mut request = Vec::with_capacity(32);
    request.extend(32_u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(LOOPBACK.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(socket, &request, SendFlags::empty(), &kernel)?;
    let mut answer = [0; 512];
    let (_, length) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let answer = &answer[..length.min(answer.len())];
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let code = answer
        .get(HEADER..HEADER + 4)
        .and_then(|bytes| bytes.try_into().ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Err(io::Error::other("the kernel's answer is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_a_missing_path_and_the_node_s_own_namespace_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert!(matches!(open(path), Err(NetnsError::NotOne(_))));
        assert!(matches!(open("/no/such"), Err(NetnsError::Open { .. })));
        assert!(matches!(open(OWN), Err(NetnsError::Host(_))));
        assert!(!is_there("") && !is_there(OWN));
    }
}
