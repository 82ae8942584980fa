//! Reads the termination message of an ended container: its message file, or the end of its log.
//!
//! A pod with a hostPath volume may put links in the place of both: they are opened beneath their folder without
//! following any. Only a regular file is read, without blocking, and no more of it than is used; a log must be the
//! agent's own file, whereas the message file may have been given to the container's user. Decisions:
//! `logic_pods::container::termination`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::labels;
use logic_api::types::RuntimeContainer;
use logic_pods::container::termination::{self, LogTail, MAX_MESSAGE_BYTES};
use logic_resources::node::policy::NodePolicy;

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
    let root = node.root_dir.clone();
    let work = move || read(&root, message.as_deref(), log.as_deref());
    let read = kernel::spawn_blocking(work).await;
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

/// `root` is the agent's folder, which the message file is in.
fn read(root: &Path, message: Option<&Path>, log: Option<&Path>) -> String {
    let found = message.map_or(Ok(None), |path| {
        tail_of_message(root, path).map_err(|error| {
            termination::unreadable_file(&path.display().to_string(), &error.to_string())
        })
    });
    match (found, log) {
        (Err(unreadable), _) => unreadable,
        (Ok(Some(tail)), _) if !tail.bytes.is_empty() => termination::from_file(&tail),
        (Ok(_), None) => String::new(),
        (Ok(_), Some(path)) => match tail_of_log(path) {
            Ok(tail) => termination::from_log(&tail),
            Err(error) => {
                let why = format!("{}: {error}", path.display());
                termination::unreadable_log(&why)
            }
        },
    }
}

/// None if the file does not exist.
fn tail_of_message(root: &Path, path: &Path) -> io::Result<Option<LogTail>> {
    let relative = path.strip_prefix(root).map_err(io::Error::other)?;
    match files::open_regular(root, relative) {
        Ok(file) => tail(file, MAX_MESSAGE_BYTES as u64).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn tail_of_log(path: &Path) -> io::Result<LogTail> {
    let invalid = || io::Error::new(ErrorKind::InvalidInput, "not the path of a log");
    let (root, log) = labels::split_log_path(path).ok_or_else(invalid)?;
    tail(files::open_owned(root, log)?, LOG_TAIL)
}

/// The end of a file.
fn tail(mut file: File, longest: u64) -> io::Result<LogTail> {
    let start = file.metadata()?.len().saturating_sub(longest);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(longest).read_to_end(&mut bytes)?;
    Ok(LogTail {
        bytes,
        cut: start > 0,
    })
}

#[cfg(test)]
mod tests;
