//! The driver's journal of calls, for tests to read: JSON lines in its folder.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const CALLS: &str = "calls.jsonl";
const COMPLAINTS: &str = "complaints.jsonl";

/// One line about a call: that it came, or how it went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JournalLine {
    /// Unique by the driver's process.
    pub(super) process: u32,
    pub(super) number: u64,
    pub(super) call: String,
    /// Only on the line of the call's beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<Value>,
    /// Only on the line of the call's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<String>,
}

/// A call, as the driver saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// The call's name, such as `NodeStageVolume`.
    pub name: String,
    /// Its fields by their names on the wire; what is empty is left out.
    pub request: Value,
    /// `OK`, or the code and the message; none was not answered, or not yet.
    pub answer: Option<String>,
}

impl RecordedCall {
    /// Whether it was answered OK.
    pub fn went_well(&self) -> bool {
        self.answer.as_deref() == Some("OK")
    }
}

/// A breach of the CSI protocol by the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractViolation {
    pub call: String,
    pub volume: String,
    pub text: String,
}

pub(super) fn write(dir: &Path, line: &JournalLine) -> Result<()> {
    append(&dir.join(CALLS), &serde_json::to_string(line)?)
}

pub(super) fn complain(dir: &Path, complaint: &ContractViolation) -> Result<()> {
    append(&dir.join(COMPLAINTS), &serde_json::to_string(complaint)?)
}

/// One write, so that no kill leaves half a line before another's.
fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(())
}

/// Reads every call, in the order in which they came.
pub(super) fn calls(dir: &Path) -> Result<Vec<RecordedCall>> {
    let mut calls: Vec<((u32, u64), RecordedCall)> = Vec::new();
    for line in lines(&dir.join(CALLS)) {
        let line: JournalLine = serde_json::from_str(&line).with_context(|| line.clone())?;
        let id = (line.process, line.number);
        match line.request {
            Some(request) => calls.push((
                id,
                RecordedCall {
                    name: line.call,
                    request,
                    answer: None,
                },
            )),
            None => {
                let call = calls.iter_mut().rev().find(|(of, _)| *of == id);
                call.context("an answer without a call")?.1.answer = line.answer;
            }
        }
    }
    Ok(calls.into_iter().map(|(_, call)| call).collect())
}

/// Reads the breaches of the protocol that the driver recorded.
pub(super) fn complaints(dir: &Path) -> Result<Vec<ContractViolation>> {
    let lines = lines(&dir.join(COMPLAINTS)).into_iter();
    let parsed = lines.map(|line| serde_json::from_str(&line).with_context(|| line.clone()));
    parsed.collect()
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
