//! A container's checkpoint, by its OCI runtime's `checkpoint` and CRIU.
//!
//! CRIU refuses open files that are outside of the container, as its streams are: FIFOs of this process, named so that a
//! successor finds them. It is told that they are the caller's to give again, in the file of settings that it reads in
//! `$HOME`: OCI runtimes have no option for that.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use monitor::{Phase, Reply};

use super::Pod;
use super::calls::Purpose;
use super::lifecycle::system;

impl Pod {
    pub(super) fn checkpoint(&mut self, client: u64, number: u64, images: &Path, work: PathBuf) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        let Some(pid) = container
            .pid()
            .filter(|_| container.phase() == Phase::Running)
        else {
            return self.wrong_phase(client, number, "checkpointed");
        };
        let (id, streams) = (container.id().to_owned(), container.file("", number));
        let streams = streams.parent().unwrap_or(&streams).to_owned();
        let [images, log] = [images, &work].map(|path| path.to_string_lossy().into_owned());
        let args = [
            "checkpoint",
            "--leave-running",
            "--image-path",
            &images,
            "--work-path",
            &log,
            &id,
        ];
        let called = write_settings(&work, pid, &streams)
            .and_then(|()| self.call(number, &args, None, Purpose::Checkpoint { client, work }));
        if let Err(error) = called {
            self.answer(client, &Reply::Refused(system(&error)));
        }
    }
}

/// Names a process's streams that lie in the folder `streams` to CRIU, each by its mount and inode in hexadecimal. What the
/// container has put in their place is only asked for its name: it may be a file whose disk hangs.
fn write_settings(home: &Path, pid: i32, streams: &Path) -> io::Result<()> {
    let mut settings = String::new();
    for fd in 0..3 {
        let path = format!("/proc/{pid}/fd/{fd}");
        // A pipe without a name is CRIU's own to keep.
        if !fs::read_link(&path).is_ok_and(|name| name.starts_with(streams)) {
            continue;
        }
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
        let number = |field: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(field));
            value.and_then(|value| value.trim().parse::<u64>().ok())
        };
        if let (Some(mount), Some(inode)) = (number("mnt_id:"), number("ino:")) {
            settings += &format!("external file[{mount:x}:{inode:x}]\n");
        }
    }
    let folder = home.join(".criu");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    fs::write(folder.join("default.conf"), settings)
}
