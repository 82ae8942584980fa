//! The file system: a root with one folder, and the replies that wait while it blocks.

use std::ffi::OsStr;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, OpenFlags, ReplyAttr, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyXattr, Request,
};

/// The name of the one folder.
pub(super) const FOLDER_NAME: &str = "data";
const FOLDER: INodeNo = INodeNo(2);
const BLOCK_BYTES: u32 = 4096;
/// The kernel keeps no attribute and no name: each access is a request of its own.
const UNCACHED: Duration = Duration::ZERO;

type FuseReply = Box<dyn FnOnce() + Send>;

/// The replies: sent at once, or kept until the file system is unblocked.
#[derive(Default)]
pub(super) struct Replies(Mutex<FileSystemState>);

#[derive(Default)]
struct FileSystemState {
    blocks: bool,
    waiting: Vec<FuseReply>,
}

impl Replies {
    pub(super) fn block(&self) {
        self.state().blocks = true;
    }

    pub(super) fn unblock(&self) {
        let waiting = {
            let mut state = self.state();
            state.blocks = false;
            std::mem::take(&mut state.waiting)
        };
        for reply in waiting {
            reply();
        }
    }

    pub(super) fn blocked(&self) -> usize {
        self.state().waiting.len()
    }

    fn send(&self, reply: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.blocks {
            state.waiting.push(Box::new(reply));
            return;
        }
        drop(state);
        reply();
    }

    fn state(&self) -> MutexGuard<'_, FileSystemState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        formatter
            .debug_struct("Replies")
            .field("blocks", &state.blocks)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

/// What is mounted. Every operation that a path in it allows goes through [`Replies`]; the others are refused by
/// fuser at once, and the kernel gets to none of them without a lookup before.
#[derive(Debug)]
pub(super) struct EmptyFileSystem(pub(super) std::sync::Arc<Replies>);

impl Filesystem for EmptyFileSystem {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let known = parent == INodeNo::ROOT && name == FOLDER_NAME;
        self.0.send(move || match known {
            true => reply.entry(&UNCACHED, &attributes(FOLDER), Generation(0)),
            false => reply.error(Errno::ENOENT),
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.0
            .send(move || reply.attr(&UNCACHED, &attributes(node)));
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        self.0.send(move || reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.0
            .send(move || reply.statfs(0, 0, 0, 0, 0, BLOCK_BYTES, 255, BLOCK_BYTES));
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        self.0.send(move || reply.error(Errno::ENOSYS));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.0
            .send(move || reply.opened(FileHandle(0), FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.0.send(move || {
            let names = [(node, "."), (INodeNo::ROOT, ".."), (FOLDER, FOLDER_NAME)];
            let count = if node == INodeNo::ROOT { 3 } else { 2 };
            for (next, (node, name)) in (1_u64..).zip(names).take(count) {
                if next > offset && reply.add(node, next, FileType::Directory, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.send(move || reply.ok());
    }
}

/// Of a folder: the file system has nothing else.
fn attributes(node: INodeNo) -> FileAttr {
    FileAttr {
        ino: node,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}
