//! Scripted faults and delays: which of them a call meets.
//!
//! The script may change at any time through `faults.json`, which is looked at on every call and
//! read when its time or size has changed. One that does not read leaves the last good one in force,
//! is reported in the log once, and shows in the verbose answer of Status.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tonic::{Code, Status};

use crate::rpc::Rpc;
use crate::settings::{CgroupDriverSetting, FakeSettings, FaultScript, ScriptedFault};

/// A longer script is no script.
const LONGEST_SCRIPT: u64 = 1 << 20;

/// The faults of a node.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    settings: FakeSettings,
    script: FaultScript,
    armed: Vec<ArmedFault>,
    file: PathBuf,
    seen: Option<(SystemTime, u64)>,
    complaint: Option<String>,
    calls: [u64; Rpc::COUNT],
}

#[derive(Debug)]
struct ArmedFault {
    fault: ScriptedFault,
    met: u64,
    struck: u64,
}

/// The delay and faults of one call.
#[derive(Debug, Default)]
pub(crate) struct FaultDecision {
    pub(crate) delay: Duration,
    pub(crate) before: Option<FaultAction>,
    pub(crate) after: Option<FaultAction>,
}

/// A fault that hits this call.
#[derive(Debug)]
pub(crate) struct FaultAction {
    delay: Duration,
    end: FaultEffect,
}

#[derive(Debug)]
enum FaultEffect {
    Slow,
    Hang,
    Exit,
    Answer(Status),
}

/// The exit status of a process that a fault has ended.
const EXIT_STATUS: i32 = 70;

impl FaultAction {
    fn of(fault: &ScriptedFault) -> FaultAction {
        let message = || {
            fault
                .message
                .clone()
                .unwrap_or_else(|| "a scripted fault".to_owned())
        };
        let silent = fault.code.is_none() && fault.message.is_none();
        let end = if fault.exit {
            FaultEffect::Exit
        } else if fault.hang {
            FaultEffect::Hang
        } else if silent && !fault.delay.0.is_zero() {
            FaultEffect::Slow
        } else {
            FaultEffect::Answer(Status::new(
                fault.code.map_or(Code::Unknown, |code| code.0),
                message(),
            ))
        };
        FaultAction {
            delay: fault.delay.0,
            end,
        }
    }

    /// Lets the fault happen; returns if the call goes on.
    pub(crate) async fn happen(self) -> Result<(), Status> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        match self.end {
            FaultEffect::Slow => Ok(()),
            FaultEffect::Hang => std::future::pending().await,
            FaultEffect::Exit => std::process::exit(EXIT_STATUS),
            FaultEffect::Answer(status) => Err(status),
        }
    }
}

impl FaultInjector {
    pub(crate) fn new(settings: FakeSettings, file: PathBuf) -> FaultInjector {
        let mut faults = FaultInjector {
            settings,
            script: FaultScript::default(),
            armed: Vec::new(),
            file,
            seen: None,
            complaint: None,
            calls: [0; Rpc::COUNT],
        };
        faults.follow(FaultScript::default());
        faults
    }

    /// Follows a script from now on; all counts begin anew.
    pub(crate) fn follow(&mut self, script: FaultScript) {
        let all = self.settings.faults.iter().chain(&script.faults);
        self.armed = all
            .map(|fault| ArmedFault {
                fault: fault.clone(),
                met: 0,
                struck: 0,
            })
            .collect();
        self.script = script;
    }

    /// Returns what a call meets; `subject` names what it is about.
    pub(crate) fn meet(&mut self, rpc: Rpc, subject: impl FnOnce() -> String) -> FaultDecision {
        self.look_at_file();
        self.calls[rpc as usize] += 1;
        let delays = [&self.script.delays, &self.settings.delays];
        let delay = delays
            .iter()
            .find_map(|delays| delays.get(&rpc))
            .map_or(Duration::ZERO, |delay| delay.0);
        let mut decision = FaultDecision {
            delay,
            before: None,
            after: None,
        };
        let mut subject = Some(subject);
        let mut known: Option<String> = None;
        for armed in self
            .armed
            .iter_mut()
            .filter(|armed| armed.fault.call.include(rpc))
        {
            if let Some(wanted) = &armed.fault.subject {
                let known = known
                    .get_or_insert_with(|| subject.take().map(|name| name()).unwrap_or_default());
                if !known.contains(wanted.as_str()) {
                    continue;
                }
            }
            let place = if armed.fault.after_effect {
                &mut decision.after
            } else {
                &mut decision.before
            };
            if armed.strikes() && place.is_none() {
                armed.struck += 1;
                *place = Some(FaultAction::of(&armed.fault));
            }
        }
        decision
    }

    fn look_at_file(&mut self) {
        let found = fs::metadata(&self.file).ok().map(|meta| {
            (
                meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                meta.len(),
            )
        });
        if found == self.seen {
            return;
        }
        self.seen = found;
        self.complaint = None;
        let Some((_, length)) = found else {
            return self.follow(FaultScript::default());
        };
        match self.read(length) {
            Ok(script) => self.follow(script),
            Err(why) => {
                let complaint = format!("{} does not read: {why}", self.file.display());
                tracing::warn!("{complaint}; the last good script stays in force");
                self.complaint = Some(complaint);
            }
        }
    }

    fn read(&self, length: u64) -> Result<FaultScript, String> {
        if length > LONGEST_SCRIPT {
            return Err(format!(
                "it has {length} bytes, expected at most {LONGEST_SCRIPT}"
            ));
        }
        let text = fs::read(&self.file).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }

    /// Returns what is wrong with the script's file.
    pub(crate) fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Returns how often a call was made.
    pub(crate) fn calls(&self, rpc: Rpc) -> u64 {
        self.calls[rpc as usize]
    }

    pub(crate) fn runtime_handlers(&self) -> &[String] {
        &self.settings.runtime_handlers
    }

    pub(crate) fn pull_time(&self) -> Duration {
        self.script.pull_time.unwrap_or(self.settings.pull_time).0
    }

    pub(crate) fn unpullable(&self, image: &str) -> bool {
        let patterns = self
            .script
            .unpullable
            .as_ref()
            .unwrap_or(&self.settings.unpullable);
        patterns
            .iter()
            .any(|pattern| image.contains(pattern.as_str()))
    }

    /// Whether an image may be pulled with this `user:password`.
    pub(crate) fn opens(&self, image: &str, shown: &str) -> bool {
        let mut asked = self
            .settings
            .private
            .iter()
            .filter(|(pattern, _)| image.contains(pattern.as_str()));
        asked.all(|(_, needed)| needed == shown)
    }

    pub(crate) fn runtime_ready(&self) -> bool {
        self.script
            .runtime_ready
            .unwrap_or(self.settings.runtime_ready)
    }

    pub(crate) fn cgroup_driver(&self) -> CgroupDriverSetting {
        let scripted = self.script.cgroup_driver;
        scripted.unwrap_or(self.settings.cgroup_driver)
    }

    pub(crate) fn supplemental_groups_policy(&self) -> bool {
        let scripted = self.script.supplemental_groups_policy;
        scripted.unwrap_or(self.settings.supplemental_groups_policy)
    }

    pub(crate) fn network_ready(&self) -> bool {
        self.script
            .network_ready
            .unwrap_or(self.settings.network_ready)
    }
}

impl ArmedFault {
    fn strikes(&mut self) -> bool {
        self.met += 1;
        let fault = &self.fault;
        fault.nth.is_none_or(|nth| self.met == nth.get())
            && fault
                .every
                .is_none_or(|every| self.met.is_multiple_of(every.get()))
            && fault.times.is_none_or(|times| self.struck < times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(json: &str) -> (FaultInjector, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            FakeSettings::from_json(format!(r#"{{"faults": [{json}]}}"#).as_bytes()).unwrap();
        (
            FaultInjector::new(settings, dir.path().join("faults.json")),
            dir,
        )
    }

    fn struck(faults: &mut FaultInjector, rpc: Rpc, calls: u32) -> Vec<u32> {
        (1..=calls)
            .filter(|_| faults.meet(rpc, String::new).before.is_some())
            .collect()
    }

    #[test]
    fn a_fault_strikes_the_calls_that_it_names() {
        let (mut nth, _dir) = faults(r#"{"call": "Status", "nth": 3}"#);
        assert_eq!(struck(&mut nth, Rpc::Version, 5), [0u32; 0]);
        assert_eq!(struck(&mut nth, Rpc::Status, 5), [3]);
        let (mut every, _dir) = faults(r#"{"call": "*", "every": 2, "times": 2}"#);
        assert_eq!(struck(&mut every, Rpc::Status, 9), [2, 4]);
    }

    #[test]
    fn a_subject_narrows_a_fault() {
        let (mut faults, _dir) =
            faults(r#"{"call": "PullImage", "subject": "bad", "after_effect": true}"#);
        assert!(
            faults
                .meet(Rpc::PullImage, || "good".into())
                .after
                .is_none()
        );
        assert!(
            faults
                .meet(Rpc::PullImage, || "very bad".into())
                .after
                .is_some()
        );
    }

    #[test]
    fn the_file_rules_as_soon_as_it_changes() {
        let (mut faults, dir) = faults("");
        let file = dir.path().join("faults.json");
        let settings = FakeSettings::default();
        faults.settings = settings;
        fs::write(
            &file,
            r#"{"faults": [{"call": "Status"}], "network_ready": false}"#,
        )
        .unwrap();
        assert_eq!(struck(&mut faults, Rpc::Status, 1), [1]);
        assert!(!faults.network_ready());
        fs::write(&file, r#"{"fault": []}"#).unwrap();
        assert_eq!(struck(&mut faults, Rpc::Status, 1), [1]);
        assert!(
            faults
                .complaint()
                .unwrap()
                .contains("unknown field `fault`")
        );
        fs::remove_file(&file).unwrap();
        assert_eq!(struck(&mut faults, Rpc::Status, 1), [0u32; 0]);
        assert!(faults.complaint().is_none());
        assert_eq!(faults.calls(Rpc::Status), 3);
    }
}
