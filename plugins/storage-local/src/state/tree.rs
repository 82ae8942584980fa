//! The files and folders of one version of a volume: walked and removed by their paths below it, however deep they
//! lie, and never across a mount point or a link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, unlinkat};
use rustix::io::Errno;

/// An entry below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileNode {
    pub(crate) path: String,
    pub(crate) kind: FileType,
}

/// Opens a folder below another one; neither a link nor a mount point is crossed.
pub(crate) fn folder(root: impl AsFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), stay())?)
}

/// Opens a file below a folder, to be read.
pub(crate) fn file(root: impl AsFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), stay())?)
}

fn stay() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV
}

/// Returns what lies directly in a folder, sorted.
pub(crate) fn entries(root: impl AsFd) -> io::Result<Vec<FileNode>> {
    let mut nodes = Vec::new();
    for entry in Dir::read_from(root)? {
        let entry = entry?;
        let name = entry.file_name().to_str();
        let name = name.map_err(|_| io::Error::other("a name is not UTF-8"))?;
        if name != "." && name != ".." {
            nodes.push(FileNode {
                path: name.to_owned(),
                kind: entry.file_type(),
            });
        }
    }
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(nodes)
}

/// Returns what lies below a folder, each folder before what is in it.
pub(crate) fn walk(root: impl AsFd) -> io::Result<Vec<FileNode>> {
    let mut nodes = entries(root.as_fd())?;
    let mut next = 0;
    while next < nodes.len() {
        if nodes[next].kind == FileType::Directory {
            let above = nodes[next].path.clone();
            let inner = entries(folder(root.as_fd(), &above)?)?;
            nodes.extend(inner.into_iter().map(|node| FileNode {
                path: format!("{above}/{}", node.path),
                kind: node.kind,
            }));
        }
        next += 1;
    }
    Ok(nodes)
}

/// Removes what is at `name` in a folder, with everything below it. Nothing there is fine.
pub(crate) fn remove(root: impl AsFd, node: &FileNode) -> io::Result<()> {
    if node.kind != FileType::Directory {
        return gone(unlinkat(root, node.path.as_str(), AtFlags::empty()));
    }
    let inside = match folder(root.as_fd(), &node.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for below in walk(&inside)?.into_iter().rev() {
        gone(unlinkat(&inside, below.path.as_str(), how(below.kind)))?;
    }
    gone(unlinkat(root, node.path.as_str(), AtFlags::REMOVEDIR))
}

fn how(kind: FileType) -> AtFlags {
    match kind == FileType::Directory {
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    }
}

fn gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
