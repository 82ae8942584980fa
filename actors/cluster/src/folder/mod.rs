//! Folders of manifests, whatever the manifests are: when to read them, and what is opened at all.
//!
//! [`Watch`] says when something has changed, [`Turns`] lets one reading happen at a time, [`Stamp`] tells the versions
//! of a file apart, and [`open`] waits for nobody.

mod file;
mod turns;
mod watch;

pub use self::file::{Place, SETTLED_AFTER, Stamp, Unread, contents, look, open};
pub use self::turns::Turns;
pub use self::watch::{Pace, Sight, Watch, WatchEnded};
