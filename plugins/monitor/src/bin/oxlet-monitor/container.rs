//! One container: its record, its streams, its log, and what is wrong with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use monitor::{ContainerStatus, Create, Exit, Phase, ProcessIdentity};

use crate::call::Inherited;
use crate::cgroup;
use crate::clock::{now_ms, wall};
use crate::log::{Log, OutputStream};
use crate::owner;
use crate::record::Record;
use crate::stdio::{output_fifo, reopen_fifo};
use crate::streams::Streams;

/// How long until a record that the disk refused is tried again.
const RETRY_MS: u64 = 5_000;

/// A part of a container that may be in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Log,
    Record,
    Streams,
    Start,
    Removal,
    /// The record was damaged, and is known from its copy.
    Damage,
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) folder: PathBuf,
    pub(crate) record: Record,
    pub(crate) streams: Streams,
    pub(crate) log: Option<Log>,
    /// Of an init that a predecessor started: no child of ours, its end is all that we see.
    pub(crate) adopted: Option<OwnedFd>,
    /// Whether a call of the runtime decides on its phase.
    pub(crate) busy: bool,
    /// Its init's end, seen while `busy`.
    pub(crate) early: Option<Exit>,
    /// When the record is written again, after the disk refused it.
    pub(crate) retry: Option<u64>,
    problems: BTreeMap<Part, String>,
}

impl Container {
    /// A container of a record, without streams.
    pub(crate) fn of(folder: PathBuf, record: Record) -> Container {
        Container {
            folder,
            record,
            streams: Streams::default(),
            log: None,
            adopted: None,
            busy: false,
            early: None,
            retry: None,
            problems: BTreeMap::new(),
        }
    }

    pub(crate) fn create(&self) -> &Create {
        &self.record.create
    }

    pub(crate) fn id(&self) -> &str {
        &self.record.create.container
    }

    pub(crate) fn phase(&self) -> Phase {
        self.record.phase
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.record.process.map(|process| process.pid)
    }

    /// Opens the container's first process; `None` when it has none, or it has ended.
    pub(crate) fn open_init(&self) -> Option<OwnedFd> {
        self.record.process.and_then(ProcessIdentity::open)
    }

    /// Makes the streams of a new container; the socket for its terminal is made at `console`.
    pub(crate) fn make_streams(&mut self, console: PathBuf) -> io::Result<Inherited> {
        let (streams, inherited) = if self.create().terminal {
            Streams::terminal(console)?
        } else {
            let stdout = output_fifo(&self.folder.join("stdout"))?;
            let stderr = output_fifo(&self.folder.join("stderr"))?;
            Streams::piped(
                stdout,
                stderr,
                self.create().stdin != monitor::Input::Closed,
            )?
        };
        self.streams = streams;
        let (user, ranges) = owner::of_bundle(&self.create().bundle);
        owner::give(&inherited, user, &ranges)?;
        self.record.user_ids = ranges;
        Ok(inherited)
    }

    /// Opens what a predecessor's container still has; a terminal and an input died with the predecessor.
    pub(crate) fn reopen_streams(&mut self) {
        if self.create().terminal {
            self.trouble(
                Part::Streams,
                "its terminal was hung up when its monitor died",
            );
            return;
        }
        let mut open = |name: &str| match reopen_fifo(&self.folder.join(name)) {
            Ok(fd) => Some(fd),
            Err(error) => {
                self.problems.insert(
                    Part::Streams,
                    format!("{name} cannot be opened again: {error}"),
                );
                None
            }
        };
        let (stdout, stderr) = (open("stdout"), open("stderr"));
        self.streams = Streams::outputs(stdout, stderr);
    }

    /// Opens the log; one that cannot be opened is a trouble, not the container's end.
    pub(crate) fn open_log(&mut self) -> io::Result<()> {
        let create = &self.record.create;
        if let Some(path) = &create.log {
            self.log = Some(Log::open(path, create.log_folder.as_deref())?);
        }
        Ok(())
    }

    /// Writes to the log what came out of a stream. Returns a trouble that is new.
    pub(crate) fn log(&mut self, stream: OutputStream, bytes: &[u8]) -> Option<String> {
        let written = self.log.as_mut()?.write(wall(), stream, bytes);
        self.logged(written)
    }

    /// Writes the last line, which has no end. Returns a trouble that is new.
    pub(crate) fn flush_log(&mut self) -> Option<String> {
        let written = self.log.as_mut()?.flush(wall());
        self.logged(written)
    }

    fn logged(&mut self, written: io::Result<()>) -> Option<String> {
        match written {
            // What was lost stays lost: the trouble is over once the log is reopened.
            Ok(()) => None,
            Err(error) => self.trouble(
                Part::Log,
                &format!("log cannot be written, output is lost: {error}"),
            ),
        }
    }

    /// Writes the record, in a phase that is reached. Returns a trouble that is new; the write is tried again.
    pub(crate) fn keep(&mut self) -> Option<String> {
        match self.record.write(&self.folder) {
            Ok(()) => {
                self.retry = None;
                self.problems.remove(&Part::Record);
                None
            }
            Err(error) => {
                self.retry = Some(now_ms() + RETRY_MS);
                self.trouble(Part::Record, &format!("record cannot be written: {error}"))
            }
        }
    }

    /// Writes the intent to reach a phase; without it on disk the deed must not be done.
    pub(crate) fn intend(&mut self, phase: Phase) -> io::Result<()> {
        let before = std::mem::replace(&mut self.record.phase, phase);
        let written = self.record.write(&self.folder);
        if written.is_err() {
            self.record.phase = before;
        }
        written
    }

    /// Remembers what is wrong; returns it when it was not so before.
    pub(crate) fn trouble(&mut self, part: Part, what: &str) -> Option<String> {
        let before = self.problems.insert(part, what.to_owned());
        (before.as_deref() != Some(what)).then(|| what.to_owned())
    }

    /// Forgets what was wrong with a part.
    pub(crate) fn well(&mut self, part: Part) {
        self.problems.remove(&part);
    }

    /// Whether the init is there, running or waiting for its start.
    pub(crate) fn is_alive(&self) -> bool {
        self.record
            .process
            .is_some_and(|init| init.open().is_some())
    }

    pub(crate) fn oom_killed(&self) -> bool {
        let recorded = self.record.end.as_ref().is_some_and(|end| end.oom_killed);
        recorded
            || self
                .record
                .oom_counter
                .as_deref()
                .is_some_and(cgroup::oom_killed)
    }

    pub(crate) fn status(&self) -> ContainerStatus {
        ContainerStatus {
            container: self.id().to_owned(),
            phase: self.phase(),
            pid: self.pid(),
            created_at: self.record.created_at,
            started_at: self.record.started_at,
            end: self.record.end.clone(),
            oom_killed: self.oom_killed(),
            problems: self.problems.values().cloned().collect(),
        }
    }

    /// A file of this container's folder.
    pub(crate) fn file(&self, name: &str, number: u64) -> PathBuf {
        self.folder.join(format!("{name}-{number}"))
    }
}

/// Reads the process id that a runtime has written.
pub(crate) fn read_pid(path: &Path) -> io::Result<i32> {
    let text = std::fs::read_to_string(path)?;
    let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| io::Error::other("the runtime wrote no process id"))
}
