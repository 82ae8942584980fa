//! Folders of manifests, whatever the manifests are: when to read them, and what is opened at all.
//!
//! [`FolderWatch`] says when something has changed, [`ReadGate`] lets one reading happen at a time, [`Stamp`] tells the
//! versions of a file apart, and [`open`] never blocks.

mod file;
mod read_gate;
mod watch;

pub use self::file::{FileId, FileReadError, SETTLED_AFTER, Stamp, contents, open, stat};
pub use self::read_gate::ReadGate;
pub use self::watch::{FolderChange, FolderWatch, WatchEnded, WatchNotice, WatchPacing};
