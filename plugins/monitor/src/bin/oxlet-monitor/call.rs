//! One call of an OCI runtime's command line: a child process with a deadline.
//!
//! The runtime's own words go to a log file (`--log`), since the outputs of `create` and `exec` are the container's.
//! The child dies with the monitor: it is started through this program (`call`), which asks the kernel for that, so
//! that a successor never races with what its predecessor had begun. Our own runtime asks by itself.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use monitor::{Exit, Handler, PARENT_VARIABLE, RUNTIME_PATH, Refusal, RefusalKind};
use rustix::fs::Mode;
use rustix::process::{Signal, getppid, set_parent_process_death_signal, umask};

use crate::clock::now_ms;
use crate::stdio::output_pipe;

/// The most of an answer or of a log that is read, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// How long a killed call may take to die before it is given up.
const DYING_MS: u64 = 5_000;
/// As below every other parent of containers. A runtime may leave it to the container's process, and folders that a
/// runtime makes (mount points, cgroups) are there for the container's users; the monitor's own files are not.
const RUNTIME_UMASK: u32 = 0o022;

/// A running call.
#[derive(Debug)]
pub(crate) struct Call<P> {
    pub(crate) purpose: P,
    pub(crate) deadline: u64,
    /// What it says on its outputs, where these are not a container's.
    pub(crate) output: Option<OwnedFd>,
    text: Vec<u8>,
    log: PathBuf,
    killed: bool,
}

/// What the process that a call starts inherits as its streams; none is `/dev/null`.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// What a deadline led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// It was killed, and its end is waited for.
    Killed,
    /// It was killed long ago and does not die.
    GivenUp,
}

impl<P> Call<P> {
    /// Starts a call, with `home` as its `$HOME`, and returns the child's process id with it. With `streams` the process that the runtime starts
    /// inherits these; otherwise the runtime's outputs are kept.
    pub(crate) fn start(
        handler: &Handler,
        (args, home): (&[&str], Option<PathBuf>),
        log: PathBuf,
        streams: Option<Inherited>,
        purpose: P,
    ) -> io::Result<(i32, Call<P>)> {
        let mut command = started_for(handler);
        command
            .arg("--root")
            .arg(&handler.root)
            .arg("--log")
            .arg(&log)
            .args(["--log-format", "json"]);
        if handler.systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        // Nothing else of the environment is a runtime's business.
        command
            .args(args)
            .env("PATH", RUNTIME_PATH)
            .envs(home.map(|home| ("HOME", home)))
            .process_group(0);
        let output = match streams {
            Some(streams) => {
                let stdio = |fd: Option<OwnedFd>| fd.map_or_else(Stdio::null, Stdio::from);
                command
                    .stdin(stdio(streams.stdin))
                    .stdout(stdio(streams.stdout))
                    .stderr(stdio(streams.stderr));
                None
            }
            None => {
                let pipe = output_pipe()?;
                command
                    .stdin(Stdio::null())
                    .stdout(pipe.other.try_clone()?)
                    .stderr(pipe.other);
                Some(pipe.own)
            }
        };
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).expect("process ids are positive ints");
        let call = Call {
            purpose,
            deadline: now_ms().saturating_add(handler.deadline_ms),
            output,
            text: Vec::new(),
            log,
            killed: false,
        };
        Ok((pid, call))
    }

    /// Reads what the runtime has said; what is longer than a bound is dropped.
    pub(crate) fn read(&mut self) {
        let Some(output) = &self.output else { return };
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    let room = MAX_TEXT - self.text.len();
                    self.text.extend_from_slice(&buffer[..length.min(room)]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => break,
            }
        }
        self.output = None;
    }

    /// Kills a call that is over its deadline.
    pub(crate) fn overdue(&mut self, pid: i32) -> Overdue {
        if self.killed {
            return Overdue::GivenUp;
        }
        self.killed = true;
        self.deadline = now_ms().saturating_add(DYING_MS);
        // A group that is gone has nothing left to kill.
        kill_quietly(pid);
        Overdue::Killed
    }

    /// Returns what the call answered, or why it failed, in the runtime's words; removes its log.
    pub(crate) fn outcome(&mut self, exit: &Exit) -> Result<String, Refusal> {
        self.read();
        let log = tail(&self.log);
        remove_quietly(&self.log);
        let text = String::from_utf8_lossy(&self.text).into_owned();
        if self.killed {
            let message = "the runtime did not end within its deadline and was killed".to_owned();
            return Err(Refusal {
                kind: RefusalKind::Deadline,
                message,
            });
        }
        if *exit == Exit::Code(0) {
            return Ok(text);
        }
        let words = last_error(&log).unwrap_or_else(|| text.trim().to_owned());
        // Whoever kills a runtime says nothing of the container: what it was to do may be asked for again.
        if let Exit::Signal(signal) = exit {
            return Err(Refusal {
                kind: RefusalKind::System,
                message: format!("the runtime was ended by signal {signal}: {words:?}"),
            });
        }
        let message = if words.is_empty() {
            format!("the runtime failed without a word: {exit:?}")
        } else {
            words
        };
        Err(Refusal {
            kind: RefusalKind::Runtime,
            message,
        })
    }
}

/// The beginning of a call. A runtime that does not ask for its caller's death itself is started through this program.
fn started_for(handler: &Handler) -> Command {
    let own = std::process::id().to_string();
    if handler.is_own {
        let mut command = Command::new(&handler.program);
        command.env_clear().env(PARENT_VARIABLE, own);
        return command;
    }
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("call")
        .arg(own)
        .arg(&handler.program)
        .env_clear();
    command
}

fn kill_quietly(pid: i32) {
    if crate::process::kill_group(pid).is_err() {
        // It has ended in the meantime, which is what is wanted.
    }
}

/// Removes a file that may not be there.
pub(crate) fn remove_quietly(path: &Path) {
    if fs::remove_file(path).is_err() {
        // Either it was never made, or its folder goes with the container.
    }
}

/// The end of a log, at most `MAX_TEXT` of it.
fn tail(path: &Path) -> String {
    use std::io::{Seek, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let bound = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX);
        file.seek(SeekFrom::Start(length.saturating_sub(bound)))?;
        let mut bytes = Vec::new();
        file.take(bound).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last error in a log of JSON lines, as runc, crun and oxlet-oci write them.
fn last_error(log: &str) -> Option<String> {
    let message = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).ok()?;
        let level = entry.get("level")?.as_str()?;
        matches!(level, "error" | "fatal")
            .then(|| Some(entry.get("msg")?.as_str()?.trim().to_owned()))?
    };
    log.lines().rev().find_map(message)
}

/// Becomes a runtime that dies with the monitor: `call MONITOR-PID PROGRAM ARGUMENT...`. Returns only on an error.
pub(crate) fn become_runtime(mut args: std::env::ArgsOs) -> String {
    let (parent, program) = (args.next(), args.next());
    let (Some(parent), Some(program)) = (parent.and_then(|pid| pid.into_string().ok()), program)
    else {
        return "call: expected the monitor's process id and a program".to_owned();
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("call: cannot ask to die with the monitor: {error}");
    }
    // Asked after the request, which a parent that had died before never answers.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get().to_string() != parent) {
        return "call: the monitor has died".to_owned();
    }
    umask(Mode::from_raw_mode(RUNTIME_UMASK));
    let error = Command::new(&program).args(args).exec();
    format!("call: cannot run {}: {error}", program.display())
}

#[cfg(test)]
mod tests {
    use super::last_error;

    #[test]
    fn the_last_error_of_a_log_is_what_a_runtime_says() {
        let log = "{\"level\":\"error\",\"msg\":\"first\"}\nnoise\n{\"level\":\"error\",\"msg\":\"second \"}\n\
                   {\"level\":\"warning\",\"msg\":\"third\"}\n";
        assert_eq!(last_error(log).as_deref(), Some("second"));
        assert_eq!(last_error("noise"), None);
    }
}
