//! Why libcontainer failed, in full. Its processes tell each other the outermost words of an error alone; the causes go to
//! `tracing`, in whichever process they are met. They are written into memory that all of them share from before the
//! first is forked, and read when the command has failed.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The most that is kept, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// The most of one cause: libcontainer puts whole structures into its words.
const MAX_CAUSE_BYTES: usize = 4096;

static SHARED: OnceLock<File> = OnceLock::new();
/// Whether this process is about to be the container's program, whose stderr is the container's own.
static IN_CONTAINER: AtomicBool = AtomicBool::new(false);

/// Hears errors from now on, in this process and all that are forked of it.
pub(crate) fn listen() -> io::Result<()> {
    let memory: OwnedFd = memfd_create("causes", MemfdFlags::CLOEXEC)?;
    // Somebody listens already: then it is us.
    if SHARED.set(memory.into()).is_ok() {
        drop(tracing::subscriber::set_global_default(Listener));
    }
    Ok(())
}

/// From now on what is heard is told on stderr: the command that would tell it is over.
pub(crate) fn is_in_container() {
    IN_CONTAINER.store(true, Ordering::Relaxed);
}

/// What libcontainer says of an error that one of its processes has told another: nothing new.
const HANDED_ON: [&str; 3] = [
    "failed to initialize container process",
    "failed to run intermediate process",
    "failed to run container process",
];

/// Returns what was heard where the error was met, the outermost words first.
pub(crate) fn heard() -> Vec<String> {
    let read = || {
        let mut memory = SHARED.get()?;
        let mut text = String::new();
        memory.rewind().ok()?;
        memory.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let text = read().unwrap_or_default();
    let handed_on = |line: &&str| HANDED_ON.iter().any(|words| line.starts_with(words));
    let mut lines: Vec<_> = text
        .lines()
        .take_while(|line| !handed_on(line))
        .map(str::to_owned)
        .collect();
    lines.reverse();
    lines
}

fn note(cause: &str) {
    let line = format!("{}\n", cause.replace('\n', " "));
    if IN_CONTAINER.load(Ordering::Relaxed) {
        // A container may have closed it, or nobody reads it.
        drop(write!(io::stderr(), "oxlet-oci: {line}"));
        return;
    }
    let Some(mut memory) = SHARED.get() else {
        return;
    };
    // All processes write at the same place of one open file. Memory that can't be had costs the cause, not the error.
    let used = memory.metadata().map_or(MAX_BYTES, |meta| meta.len());
    if used + (line.len() as u64) < MAX_BYTES {
        drop(memory.write_all(line.as_bytes()));
    }
}

/// Hears events of errors; spans are nothing to it.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        note(&words.cause());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event's message and its other fields.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Words {
    fn cause(self) -> String {
        let mut cause = match (self.message.is_empty(), self.fields.is_empty()) {
            (_, true) => self.message,
            (true, false) => self.fields,
            (false, false) => format!("{}: {}", self.message, self.fields),
        };
        let end = (0..=MAX_CAUSE_BYTES.min(cause.len()))
            .rev()
            .find(|end| cause.is_char_boundary(*end));
        cause.truncate(end.unwrap_or(0));
        cause
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string never fails.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "err" | "error" if self.fields.is_empty() => write!(self.fields, "{value:?}"),
            name if self.fields.is_empty() => write!(self.fields, "{name} {value:?}"),
            name => write!(self.fields, ", {name} {value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_process_tells_until_it_is_handed_on_is_heard() {
        listen().unwrap();
        assert_eq!(heard(), Vec::<String>::new());
        tracing::warn!("no error");
        tracing::error!(err = ?io::Error::from_raw_os_error(2), path = ?"/a", "cannot\nfind");
        tracing::error!("the outer words: {}", "of it");
        tracing::error!("failed to initialize container process: x");
        tracing::error!("cleanup");
        let heard = heard();
        let [outer, inner] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert_eq!(outer, "the outer words: of it");
        assert!(inner.starts_with("cannot find: Os {"), "{inner}");
        assert!(inner.contains("No such file or directory"), "{inner}");
        assert!(inner.ends_with(", path \"/a\""), "{inner}");
    }
}
