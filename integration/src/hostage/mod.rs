//! A file system that takes hostages: a FUSE of our own, empty but for one folder, that on order reads every request
//! and answers none. Whoever asks it anything is then stuck in the kernel as with a dead mount: SIGKILL does not end
//! them, because a request that was read is waited for to its end.

mod wire;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use self::wire::Request;

/// The kernel refuses to read into less than 8 KiB.
const LONGEST_REQUEST: usize = 64 << 10;

/// A mounted file system. Dropped, it frees whoever it holds, and is gone.
#[derive(Debug)]
pub struct Hostage {
    path: PathBuf,
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Server {
    device: File,
    cell: Mutex<Cell>,
}

#[derive(Debug, Default)]
struct Cell {
    mood: Mood,
    held: Vec<Request>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Answers,
    Holds,
}

impl Hostage {
    /// Mounts it at a folder.
    pub fn mount(path: &Path) -> Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.context("cannot open /dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("hostage"),
            path,
            Some("fuse.hostage"),
            flags,
            Some(options.as_str()),
        )
        .with_context(|| format!("cannot mount a FUSE at {}", path.display()))?;
        let server = Arc::new(Server {
            device,
            cell: Mutex::default(),
        });
        let thread = thread::spawn({
            let server = Arc::clone(&server);
            move || server.serve()
        });
        Ok(Self {
            path: path.to_owned(),
            server,
            thread: Some(thread),
        })
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the one folder in it.
    pub fn folder(&self) -> PathBuf {
        self.path.join(wire::FOLDER_NAME)
    }

    /// Answers nobody from now on.
    pub fn hold(&self) {
        self.server.cell().mood = Mood::Holds;
    }

    /// Answers everybody who waits, and everybody who comes.
    pub fn release(&self) {
        let held = {
            let mut cell = self.server.cell();
            cell.mood = Mood::Answers;
            std::mem::take(&mut cell.held)
        };
        for request in held {
            self.server.answer(&request);
        }
    }

    /// Returns how many requests are held.
    pub fn held(&self) -> usize {
        self.server.cell().held.len()
    }
}

impl Drop for Hostage {
    fn drop(&mut self) {
        // Forced: the kernel ends every request with an error, and the server's next read, too.
        let flags = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
        match umount2(&self.path, flags) {
            Ok(()) => {
                if let Some(thread) = self.thread.take() {
                    // What it panicked about was printed by itself.
                    drop(thread.join());
                }
            }
            Err(error) => {
                eprintln!("cannot unmount {}: {error}", self.path.display());
                self.release();
            }
        }
    }
}

impl Server {
    fn serve(&self) {
        let mut buffer = vec![0; LONGEST_REQUEST];
        loop {
            let length = match (&self.device).read(&mut buffer) {
                Ok(length) => length,
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    // Whoever asked is gone already.
                    Some(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => continue,
                    // Unmounted.
                    Some(_) | None => return,
                },
            };
            let Some(request) = Request::parse(&buffer[..length]) else {
                continue;
            };
            let mut cell = self.cell();
            if cell.mood == Mood::Holds && request.may_be_held() {
                cell.held.push(request);
                continue;
            }
            drop(cell);
            self.answer(&request);
        }
    }

    fn answer(&self, request: &Request) {
        if let Some(answer) = request.answer() {
            // Whoever asked may be gone.
            drop((&self.device).write(&answer));
        }
    }

    fn cell(&self) -> MutexGuard<'_, Cell> {
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
