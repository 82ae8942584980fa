//! A user namespace and the namespaces that belong to it, made by a process of their own (`oxlet-monitor namespaces`)
//! that ends when they are pinned: a process with more than one thread cannot enter a user namespace.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::mount_bind;

use super::namespaces::{self, NamespaceError, OwnNamespaces};
use crate::spec::{IdRange, UserIds};

/// How long the process may take for one step: each is a system call or two.
const STEP_SECONDS: i64 = 20;
/// Overlayfs takes layers with mapped ids since then.
const OVERLAY_SINCE: (u32, u32) = (5, 19);

/// Makes the namespaces and pins them as `FOLDER/NAME`; an empty hostname keeps the node's.
pub(crate) fn pin(
    monitor: &Path,
    folder: &Path,
    own: OwnNamespaces,
    (hostname, ids): (&str, &UserIds),
) -> Result<(), NamespaceError> {
    let held = Held::make(monitor, own.names().filter(|name| *name != "user"), ids)?;
    for name in own.names() {
        let pin = folder.join(name);
        File::create(&pin)
            .and_then(|_| Ok(mount_bind(held.namespace(name), &pin)?))
            .map_err(|error| NamespaceError::Mount(pin, error))?;
    }
    held.release()?;
    match own.uts && !hostname.is_empty() {
        true => namespaces::set_hostname(&folder.join("uts"), hostname),
        false => Ok(()),
    }
}

/// Tells why this machine has no user namespaces for pods whose files lie below `folder`; nothing if it has them.
pub(crate) fn why_not(monitor: &Path, folder: &Path) -> Result<(), String> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    if version(&release) < Some(OVERLAY_SINCE) {
        return Err(format!("the kernel is {release}, expected 5.19 or later"));
    }
    let range = IdRange {
        inside: 0,
        outside: 65_536,
        length: 65_536,
    };
    let ids = UserIds {
        users: range,
        groups: range,
    };
    let tried = Held::make(monitor, [].into_iter(), &ids);
    let held = tried.map_err(|error| sdk::error_chain(&error))?;
    let mapped = id_mapped_mounts::copy(folder, id_mapped_mounts::Depth::Single)
        .and_then(|mount| id_mapped_mounts::map_ids(mount, File::open(held.namespace("user"))?));
    mapped.map_err(|error| format!("no ids can be mapped at {}: {error}", folder.display()))?;
    held.release().map_err(|error| sdk::error_chain(&error))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

/// The process that holds new namespaces. It is killed where it isn't released.
struct Held {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Held {
    fn make(
        monitor: &Path,
        names: impl Iterator<Item = &'static str>,
        ids: &UserIds,
    ) -> Result<Held, NamespaceError> {
        let mut process = Command::new(monitor)
            .arg(monitor::NAMESPACES)
            .args(names)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(NamespaceError::Thread)?;
        let piped = "it was started with pipes";
        let mut held = Held {
            stdin: process.stdin.take(),
            stdout: process.stdout.take().expect(piped),
            process,
        };
        let made = held.turns(ids);
        made.map(|()| held).map_err(NamespaceError::Unshare)
    }

    /// The process is in its user namespace; its ids are mapped; it has made the others.
    fn turns(&mut self, ids: &UserIds) -> io::Result<()> {
        self.wait()?;
        let pid = self.process.id();
        for (file, range) in [("uid_map", ids.users), ("gid_map", ids.groups)] {
            fs::write(format!("/proc/{pid}/{file}"), range.line())?;
        }
        let stdin = self.stdin.as_mut().expect("it is open until the release");
        stdin.write_all(b".")?;
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        let within = Timespec {
            tv_sec: STEP_SECONDS,
            tv_nsec: 0,
        };
        let mut byte = [0];
        match poll(
            &mut [PollFd::new(&self.stdout, PollFlags::IN)],
            Some(&within),
        )? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => match self.stdout.read(&mut byte)? {
                1 if byte == *b"." => Ok(()),
                _ => Err(self.said(byte)),
            },
        }
    }

    /// Where it cannot go on it says so in a line.
    fn said(&mut self, first: [u8; 1]) -> io::Error {
        let mut text = first.to_vec();
        match (&mut self.stdout).take(4096).read_to_end(&mut text) {
            Ok(_) => io::Error::other(String::from_utf8_lossy(&text).trim_end().to_owned()),
            Err(error) => error,
        }
    }

    fn namespace(&self, name: &str) -> String {
        format!("/proc/{}/ns/{name}", self.process.id())
    }

    /// Lets the process end, and waits for it.
    fn release(mut self) -> Result<(), NamespaceError> {
        drop(self.stdin.take());
        self.process
            .wait()
            .map(drop)
            .map_err(NamespaceError::Thread)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // One that was released has ended, and isn't killed again.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_release_begins_with_its_version() {
        for (release, expected) in [
            ("6.18.44-fc", Some((6, 18))),
            ("5.19-rc1", Some((5, 19))),
            ("5.9.1", Some((5, 9))),
            ("x", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(version("x") < Some(OVERLAY_SINCE) && version("5.9.1") < Some(OVERLAY_SINCE));
    }
}
