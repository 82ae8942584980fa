//! Reads the termination message of an ended container: its message file, or the end of its log.
//!
//! A container controls what is at the path of its message file, as far as it may write there: only a
//! regular file is read, without blocking, and no more of it than is used. Decisions:
//! `logic_pods::container::termination`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::labels;
use logic_api::types::RuntimeContainer;
use logic_pods::container::termination::{self, LogTail, MAX_MESSAGE_BYTES};
use logic_resources::node::policy::NodePolicy;
use rustix::fs::OFlags;

/// Bytes: room for eighty lines of usual length, and for one of sixteen times the length at which runtimes cut lines.
const LOG_TAIL: u64 = 256 * 1024;

/// The termination message of an ended container; empty if it left none. Reads a bounded part of two files in
/// the blocking pool.
pub async fn last_words(pod: &Pod, container: &RuntimeContainer, node: &NodePolicy) -> String {
    let Some((_, spec)) = pod.container(&container.name) else {
        return String::new();
    };
    let message = termination::has_message_file(&spec)
        .then(|| termination::message_file(pod, &container.name, container.attempt, node));
    let log = termination::falls_back_to_log(&spec, container).then(|| log(pod, container, node));
    let read = kernel::spawn_blocking(move || read(message.as_deref(), log.as_deref())).await;
    read.unwrap_or_else(|error| termination::unreadable_log(&error.to_string()))
}

/// The container's log path as the runtime reports it; else the path that the runtime was given.
fn log(pod: &Pod, container: &RuntimeContainer, node: &NodePolicy) -> PathBuf {
    let folder =
        labels::pod_log_directory(&node.pod_logs_dir, pod.namespace(), pod.name(), &pod.uid());
    let asked = folder.join(labels::container_log_path(
        &container.name,
        container.attempt,
    ));
    match container.log_path.is_empty() {
        true => asked,
        false => folder.join(&container.log_path),
    }
}

fn read(message: Option<&Path>, log: Option<&Path>) -> String {
    let found = message.map_or(Ok(None), |path| {
        let tail = tail(path, MAX_MESSAGE_BYTES as u64, OFlags::NOFOLLOW);
        tail.map_err(|error| {
            termination::unreadable_file(&path.display().to_string(), &error.to_string())
        })
    });
    match (found, log) {
        (Err(unreadable), _) => unreadable,
        (Ok(Some(tail)), _) if !tail.bytes.is_empty() => termination::from_file(&tail),
        (Ok(_), None) => String::new(),
        // Only the runtime writes there, and some runtimes make the log a link.
        (Ok(_), Some(path)) => match tail_of_log(path) {
            Ok(tail) => termination::from_log(&tail),
            Err(error) => termination::unreadable_log(&error.to_string()),
        },
    }
}

fn tail_of_log(path: &Path) -> io::Result<LogTail> {
    let tail = tail(path, LOG_TAIL, OFlags::empty())?;
    tail.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("no log {}", path.display()),
        )
    })
}

/// The end of a file; none if the file does not exist.
fn tail(path: &Path, longest: u64, flags: OFlags) -> io::Result<Option<LogTail>> {
    let flags = (flags | OFlags::NONBLOCK | OFlags::NOCTTY)
        .bits()
        .cast_signed();
    let mut file: File = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let start = meta.len().saturating_sub(longest);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(longest).read_to_end(&mut bytes)?;
    Ok(Some(LogTail {
        bytes,
        cut: start > 0,
    }))
}

#[cfg(test)]
mod tests;
