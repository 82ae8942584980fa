//! Faults on demand: a file in the driver's folder that is read at every call.
//!
//! What was used up is written down before it acts, so that a driver that crashes once does so once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const ORDERED: &str = "faults.json";
const USED: &str = "faults.used.json";

/// One fault, for the calls that it fits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriverFault {
    /// Unique; given by [`order`].
    #[serde(default)]
    pub id: String,
    /// The call's name, such as `NodeStageVolume`.
    pub call: String,
    /// Only calls about this volume's handle; none is all calls.
    pub volume: Option<String>,
    /// How many matching calls succeed first.
    pub after_calls: u32,
    /// How many calls it hits; none is all.
    pub times: Option<u32>,
    pub when: FaultPoint,
    pub act: DriverFaultAction,
}

/// The step of a call at which a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultPoint {
    /// Before the call's work.
    Before,
    /// After the call's work, before its record is saved: crashes only.
    Between,
    /// After the call's work and its record, before the answer.
    After,
}

/// What a fault does to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverFaultAction {
    /// The process kills itself with SIGKILL.
    Crash,
    /// The call is never answered.
    Hang,
    /// The call goes on after so many milliseconds.
    Delay(u64),
    /// One of gRPC's codes by its number.
    Error { code: i32, message: String },
    /// The answer is not a valid protobuf message.
    Garbage,
    /// The answer is not a valid gRPC frame.
    Noise,
}

impl DriverFault {
    /// Returns a fault of every call of this name.
    pub fn at(call: &str, when: FaultPoint, act: DriverFaultAction) -> Self {
        Self {
            id: String::new(),
            call: call.to_owned(),
            volume: None,
            after_calls: 0,
            times: None,
            when,
            act,
        }
    }

    /// Limits it to so many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Lets so many matching calls succeed first.
    #[must_use]
    pub fn after_calls(mut self, calls: u32) -> Self {
        self.after_calls = calls;
        self
    }

    /// Limits it to calls about this volume.
    #[must_use]
    pub fn of(mut self, volume: &str) -> Self {
        self.volume = Some(volume.to_owned());
        self
    }

    fn fits(&self, call: &str, volume: &str) -> bool {
        self.call == call && self.volume.as_deref().is_none_or(|of| of == volume)
    }
}

/// Orders these faults, and no others, from a driver that keeps itself in this folder.
pub(super) fn order(dir: &Path, turn: u64, faults: &[DriverFault]) -> Result<()> {
    let numbered = faults.iter().cloned().enumerate().map(|(index, fault)| {
        let id = format!("{turn}-{index}");
        DriverFault { id, ..fault }
    });
    let numbered: Vec<DriverFault> = numbered.collect();
    replace(&dir.join(ORDERED), &serde_json::to_vec_pretty(&numbered)?)
}

/// Takes the fault that hits this call, if one does.
pub(super) fn take(dir: &Path, call: &str, volume: &str) -> Result<Option<DriverFault>> {
    let Ok(text) = fs::read(dir.join(ORDERED)) else {
        return Ok(None);
    };
    let ordered: Vec<DriverFault> = serde_json::from_slice(&text).context("faults.json")?;
    let mut fitting = ordered.into_iter().filter(|fault| fault.fits(call, volume));
    let used = dir.join(USED);
    let mut counts: BTreeMap<String, u32> = match fs::read(&used) {
        Ok(text) => serde_json::from_slice(&text).context("faults.used.json")?,
        Err(_) => BTreeMap::new(),
    };
    let strikes = fitting.find(|fault| {
        let count = counts.entry(fault.id.clone()).or_default();
        *count += 1;
        let last = fault.times.map(|times| fault.after_calls + times);
        *count > fault.after_calls && last.is_none_or(|last| *count <= last)
    });
    replace(&used, &serde_json::to_vec(&counts)?)?;
    Ok(strikes)
}

/// Writes a file that is whole at every moment, as far as processes are concerned.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = PathBuf::from(format!("{}.new", path.display()));
    fs::write(&draft, bytes).with_context(|| draft.display().to_string())?;
    fs::rename(&draft, path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_as_often_as_ordered_whoever_counts() {
        let dir = tempfile::tempdir().unwrap();
        let fault = DriverFault::at(
            "NodeStageVolume",
            FaultPoint::Before,
            DriverFaultAction::Crash,
        );
        let fault = fault.of("a").after_calls(1).times(2);
        order(dir.path(), 7, &[fault]).unwrap();
        let struck = |volume| {
            let taken = take(dir.path(), "NodeStageVolume", volume).unwrap();
            taken.is_some()
        };
        assert!(!struck("b"));
        let calls: Vec<bool> = (0..4).map(|_| struck("a")).collect();
        assert_eq!(calls, [false, true, true, false]);
        let other = take(dir.path(), "NodeUnstageVolume", "a").unwrap();
        assert!(other.is_none());
    }
}
