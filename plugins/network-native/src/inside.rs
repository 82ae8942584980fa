//! Work within a sandbox's network namespace, on a thread of its own.
//!
//! A thread belongs to a namespace: the one that enters does nothing else, and ends with the work. `/proc/sys/net` is
//! that of the thread's namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use blocking_pool::Cancel;
use network_cni::{CniError, NetnsError, open_netns};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::failure::{OrFail, fail};
use crate::links::Links;

const STACK: usize = 256 << 10;

/// Opens the namespace of a sandbox, which must be there.
pub(crate) fn open(path: &str) -> Result<File, CniError> {
    open_netns(path).map_err(|error| fail(format!("failed to open netns {path:?}: {error}")))
}

/// Opens the namespace of a sandbox; none where it is gone.
pub(crate) fn open_if_there(path: &str) -> Result<Option<File>, CniError> {
    if path.is_empty() {
        return Ok(None);
    }
    match open_netns(path) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(NetnsError::NotOne(_)) => Ok(None),
        Err(NetnsError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(fail(error.to_string())),
    }
}

/// Does `work` within a namespace, with the links of it.
pub(crate) fn within<T: Send>(
    namespace: &File,
    work: impl FnOnce(&mut Links) -> Result<T, CniError> + Send,
) -> Result<T, CniError> {
    let cancel = Cancel::current();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let entered = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .or_fail("failed to enter the sandbox's network namespace")?;
            let mut links = Links::open().or_fail("failed to open a netlink socket")?;
            cancel.scope(|| work(&mut links))
        };
        let thread = thread
            .spawn_scoped(scope, entered)
            .or_fail("failed to start a thread")?;
        thread
            .join()
            .unwrap_or_else(|_| Err(fail("the thread within the sandbox's namespace panicked")))
    })
}
