//! What a predecessor left: every record is read, and what it was about is found out, not guessed.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use monitor::{Exit, Phase, ProcessIdentity};

use super::Pod;
use crate::call::remove_quietly;
use crate::container::{Container, Part, read_pid};
use crate::record::{Found, Record};

/// Why an exit code is not known.
const UNSEEN: &str = "it ended while no monitor ran";

impl Pod {
    /// Takes over what is in a monitor's folder. An error says why it cannot be, and names the record.
    pub(crate) fn recover(
        folder: PathBuf,
        listener: UnixListener,
        children: UnixStream,
    ) -> Result<Pod, String> {
        let mut pod = Pod::empty(folder.clone(), listener, children);
        pod.remove_consoles();
        let containers = folder.join("containers");
        crate::record::make_folder(&containers)
            .map_err(|error| format!("{}: {error}", containers.display()))?;
        let entries = fs::read_dir(&containers)
            .map_err(|error| format!("{}: {error}", containers.display()))?;
        let mut folders: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        folders.sort();
        for folder in folders {
            match Record::read(&folder) {
                Found::Whole(record) => pod.take_over(Container::of(folder, *record)),
                Found::Copy(record, damage) => {
                    let mut container = Container::of(folder, *record);
                    // Written again from the copy. Whoever asks for the status reads what was wrong.
                    let _kept = container.keep();
                    let what = format!("record was damaged, and read from its copy: {damage}");
                    let _new = container.trouble(Part::Damage, &what);
                    pod.take_over(container);
                }
                // Its predecessor died before it meant anything.
                Found::Nothing => {
                    if let Err(error) = files::remove_tree(&folder) {
                        pod.set_aside(folder, &format!("cannot be removed: {error}"));
                    }
                }
                Found::Damaged(damage) => {
                    pod.set_aside(folder, &format!("record cannot be read: {damage}"));
                }
            }
        }
        Ok(pod)
    }

    fn take_over(&mut self, mut container: Container) {
        container.adopted = container.record.process.and_then(ProcessIdentity::open);
        clear(&container.folder, container.pid());
        let phase = container.phase();
        if matches!(phase, Phase::Created | Phase::Starting | Phase::Running) {
            container.reopen_streams();
        }
        if matches!(phase, Phase::Starting | Phase::Running)
            && let Err(error) = container.open_log()
        {
            let what = format!("log cannot be opened again, output is lost: {error}");
            // Whoever asks for the status reads it.
            let _new = container.trouble(Part::Log, &what);
        }
        let is_alive = container.adopted.is_some();
        let number = self.number();
        self.containers.insert(number, container);
        match phase {
            Phase::Creating => self.discard(number, None),
            Phase::Deleting => self.remove(number, None),
            Phase::Starting if is_alive => self.look(number, None),
            Phase::Created | Phase::Running if is_alive => {}
            Phase::Created | Phase::Starting | Phase::Running => {
                self.init_ended(number, Exit::Unknown(UNSEEN.to_owned()));
            }
            Phase::Exited => {
                if let Some(container) = self.containers.get_mut(&number) {
                    container.adopted = None;
                }
            }
        }
    }

    /// Removes the sockets for terminals that a predecessor left.
    fn remove_consoles(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_console = |name: &str| {
            name.strip_prefix('c')
                .is_some_and(|rest| rest.parse::<u64>().is_ok())
        };
        for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_console)) {
            remove_quietly(&entry.path());
        }
    }
}

/// Removes what calls of a predecessor left in a container's folder, and kills the processes that it had just
/// started to run: their clients and streams died with it.
fn clear(folder: &Path, init: Option<i32>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("exec-pid-")
            && let (Ok(pid), Some(init)) = (read_pid(&entry.path()), init)
        {
            kill_if_beside(pid, init);
        }
        if name.contains('-') {
            remove_quietly(&entry.path());
        }
    }
}

/// Kills a process if it is in the same cgroups as a container's init.
fn kill_if_beside(pid: i32, init: i32) {
    let groups = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    let opened = ProcessIdentity::of(pid).and_then(ProcessIdentity::open);
    if let (Some(pidfd), Some(groups_of_it)) = (opened, groups(pid))
        && pid != init
        && Some(groups_of_it) == groups(init)
    {
        // One that ends at this moment needs no signal.
        let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
    }
}
