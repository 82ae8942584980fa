//! What the plugin file may say about this node ([`FakeSettings`]), and what may change while it runs
//! ([`FaultScript`]). Unknown fields are refused; errors name the field and what was expected.

pub(crate) mod annotations;
pub(crate) mod duration;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use tonic::Code;

use crate::rpc::{Calls, Rpc};
use crate::settings::duration::DurationSetting;
use crate::state::address::AddressRange;

/// The plugin's section cannot be read: the JSON error.
#[derive(Debug, thiserror::Error)]
#[error("the configuration of runtime-fake does not read: {0}")]
pub struct SettingsError(serde_json::Error);

/// The settings of the simulated node: the plugin's section of the plugin file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(rename = "Settings")]
pub struct FakeSettings {
    /// Images that are there from the beginning; one that was removed stays removed.
    pub images: Vec<ImageSetting>,
    /// The range of the pods' addresses.
    pub ip_range: AddressRange,
    /// Names of runtime handlers beside the default one.
    pub runtime_handlers: Vec<String>,
    /// As in [`FaultScript`].
    pub delays: BTreeMap<Rpc, DurationSetting>,
    /// As in [`FaultScript`].
    pub faults: Vec<ScriptedFault>,
    /// An image whose name contains one of these cannot be pulled.
    pub unpullable: Vec<String>,
    /// An image whose name contains one of these is pulled only with its `user:password`.
    pub private: BTreeMap<String, String>,
    /// The time that pulling an image takes.
    pub pull_time: DurationSetting,
    /// The value of the condition RuntimeReady.
    pub runtime_ready: bool,
    /// The value of the condition NetworkReady.
    pub network_ready: bool,
    /// The answer of RuntimeConfig.
    pub cgroup_driver: CgroupDriverSetting,
    /// Whether Status reports the feature.
    pub supplemental_groups_policy: bool,
}

/// A cgroup driver by its name in the kubelet's configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriverSetting {
    #[default]
    Cgroupfs,
    Systemd,
}

impl Default for FakeSettings {
    fn default() -> Self {
        FakeSettings {
            images: vec![
                "localhost/pause:latest".into(),
                "localhost/busybox:latest".into(),
            ],
            ip_range: AddressRange::default(),
            runtime_handlers: vec!["fake".to_owned()],
            delays: BTreeMap::new(),
            faults: Vec::new(),
            unpullable: vec!["absent".to_owned()],
            private: BTreeMap::new(),
            pull_time: DurationSetting(Duration::ZERO),
            runtime_ready: true,
            network_ready: true,
            cgroup_driver: CgroupDriverSetting::default(),
            supplemental_groups_policy: true,
        }
    }
}

impl FakeSettings {
    /// Reads the plugin's section of the plugin file; nothing at all means the defaults.
    pub fn from_json(json: &[u8]) -> Result<FakeSettings, SettingsError> {
        if json.trim_ascii().is_empty() || json.trim_ascii() == b"null" {
            return Ok(FakeSettings::default());
        }
        serde_json::from_slice(json).map_err(SettingsError)
    }
}

/// What may change while the node runs, through `faults.json` or in process. What it leaves out stays as configured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(rename = "Script")]
pub struct FaultScript {
    /// Delays of calls, by the call's name; each replaces a configured delay of the same call.
    pub delays: BTreeMap<Rpc, DurationSetting>,
    /// Faults beside the configured ones, which come first.
    pub faults: Vec<ScriptedFault>,
    /// Replaces the configured patterns.
    pub unpullable: Option<Vec<String>>,
    /// Replaces the configured time of a pull.
    pub pull_time: Option<DurationSetting>,
    /// Replaces the condition RuntimeReady.
    pub runtime_ready: Option<bool>,
    /// Replaces the condition NetworkReady.
    pub network_ready: Option<bool>,
    /// Replaces the answer of RuntimeConfig.
    pub cgroup_driver: Option<CgroupDriverSetting>,
    /// Replaces the feature in Status.
    pub supplemental_groups_policy: Option<bool>,
}

/// A scripted fault: the calls that it hits, and its effect.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Fault")]
pub struct ScriptedFault {
    /// The call's name, or `*`.
    pub call: Calls,
    /// Only calls about something whose name contains this: `namespace/pod/container`, or an image.
    #[serde(default)]
    pub subject: Option<String>,
    /// Hits only the nth of these calls, counted from 1 since the process began.
    #[serde(default)]
    pub nth: Option<NonZeroU64>,
    /// Hits every nth of these calls.
    #[serde(default)]
    pub every: Option<NonZeroU64>,
    /// Hits at most this many calls; none is all.
    #[serde(default)]
    pub times: Option<u64>,
    /// Hits after the work is done rather than before, so that its result is lost.
    #[serde(default)]
    pub after_effect: bool,
    /// The delay before the call goes on or fails.
    #[serde(default)]
    pub delay: DurationSetting,
    /// The call is never answered.
    #[serde(default)]
    pub hang: bool,
    /// The process ends.
    #[serde(default)]
    pub exit: bool,
    /// The gRPC code of the answer.
    #[serde(default)]
    pub code: Option<FaultCode>,
    /// The message of the answer.
    #[serde(default)]
    pub message: Option<String>,
}

/// A gRPC code by its name, such as `Unavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultCode(pub Code);

const CODES: [(&str, Code); 16] = [
    ("Cancelled", Code::Cancelled),
    ("Unknown", Code::Unknown),
    ("InvalidArgument", Code::InvalidArgument),
    ("DeadlineExceeded", Code::DeadlineExceeded),
    ("NotFound", Code::NotFound),
    ("AlreadyExists", Code::AlreadyExists),
    ("PermissionDenied", Code::PermissionDenied),
    ("ResourceExhausted", Code::ResourceExhausted),
    ("FailedPrecondition", Code::FailedPrecondition),
    ("Aborted", Code::Aborted),
    ("OutOfRange", Code::OutOfRange),
    ("Unimplemented", Code::Unimplemented),
    ("Internal", Code::Internal),
    ("Unavailable", Code::Unavailable),
    ("DataLoss", Code::DataLoss),
    ("Unauthenticated", Code::Unauthenticated),
];

impl<'de> Deserialize<'de> for FaultCode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let found = CODES.iter().find(|(known, _)| *known == name);
        found.map(|(_, code)| FaultCode(*code)).ok_or_else(|| {
            let names: Vec<_> = CODES.iter().map(|(known, _)| *known).collect();
            let shown: String = name.chars().take(64).collect();
            de::Error::custom(format!(
                "{shown:?} is not a gRPC code: expected one of {}",
                names.join(", ")
            ))
        })
    }
}

/// An image of the node: its name, or an object with more fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "ImageForm")]
pub struct ImageSetting {
    /// Its name; `:latest` is added where it has no tag. One that begins with `sha256:` is no name: the image has none.
    pub name: String,
    /// Its size in bytes, or one made from its name.
    pub size: Option<u64>,
    /// The user it runs as, by number.
    pub uid: Option<i64>,
    /// The user it runs as, by name.
    pub username: String,
    /// What a container without a command of its own runs.
    pub command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum ImageForm {
    Name(String),
    Full {
        name: String,
        #[serde(default)]
        size: Option<u64>,
        #[serde(default)]
        uid: Option<i64>,
        #[serde(default)]
        username: String,
        #[serde(default)]
        command: Vec<String>,
    },
}

impl From<ImageForm> for ImageSetting {
    fn from(form: ImageForm) -> Self {
        match form {
            ImageForm::Name(name) => name.as_str().into(),
            ImageForm::Full {
                name,
                size,
                uid,
                username,
                command,
            } => ImageSetting {
                name,
                size,
                uid,
                username,
                command,
            },
        }
    }
}

impl From<&str> for ImageSetting {
    fn from(name: &str) -> Self {
        let name = name.to_owned();
        ImageSetting {
            name,
            size: None,
            uid: None,
            username: String::new(),
            command: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_configuration_reads() {
        let json = br#"{
            "images": ["localhost/a", {"name": "localhost/b:1", "uid": 7, "command": ["sleep", "1"]}],
            "ip_range": "10.9.0.0/24",
            "delays": {"RunPodSandbox": "50ms"},
            "faults": [{"call": "CreateContainer", "nth": 3, "code": "Unavailable", "message": "no"},
                       {"call": "*", "every": 10, "hang": true, "after_effect": true}]
        }"#;
        let settings = FakeSettings::from_json(json).unwrap();
        assert_eq!(
            settings.delays[&Rpc::RunPodSandbox].0,
            Duration::from_millis(50)
        );
        assert_eq!(settings.faults[0].code, Some(FaultCode(Code::Unavailable)));
        assert_eq!(settings.faults[1].call, Calls::All);
        assert_eq!(settings.images[1].command, ["sleep", "1"]);
        assert!(FakeSettings::from_json(b"").unwrap().network_ready);
    }

    #[test]
    fn a_wrong_configuration_is_refused_by_name() {
        let refused = |json: &str| {
            FakeSettings::from_json(json.as_bytes())
                .unwrap_err()
                .to_string()
        };
        assert!(refused(r#"{"delay": {}}"#).contains("unknown field `delay`"));
        assert!(
            refused(r#"{"delays": {"RunPod": "1s"}}"#).contains("\"RunPod\" is not a call of CRI")
        );
        assert!(refused(r#"{"delays": {"Status": "1"}}"#).contains("is not a duration"));
        assert!(refused(r#"{"ip_range": "10.88.0.0"}"#).contains("10.88.0.0"));
        assert!(
            refused(r#"{"faults": [{"call": "*", "code": "Nope"}]}"#)
                .contains("is not a gRPC code")
        );
        assert!(refused(r#"{"faults": [{"call": "*", "nth": 0}]}"#).contains("nonzero"));
    }
}
