//! Which features are on. An unknown gate is refused, a locked one cannot be changed, and `AllAlpha` and `AllBeta` set
//! the gates that are not named.

mod table;

use std::collections::BTreeMap;

/// Where a gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prerelease {
    Alpha,
    Beta,
    /// Generally available, or deprecated: `AllAlpha` and `AllBeta` leave it alone.
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct FeatureSpec {
    on: bool,
    stage: Prerelease,
    locked: bool,
}

fn gate(name: &str) -> Option<FeatureSpec> {
    let groups = [
        (table::ALPHA, false, Prerelease::Alpha, false),
        (table::BETA_ON, true, Prerelease::Beta, false),
        (table::BETA_OFF, false, Prerelease::Beta, false),
        (table::SETTLED_ON, true, Prerelease::Settled, false),
        (table::SETTLED_OFF, false, Prerelease::Settled, false),
        (table::LOCKED_ON, true, Prerelease::Settled, true),
        (table::LOCKED_OFF, false, Prerelease::Settled, true),
    ];
    groups
        .into_iter()
        .find(|(names, ..)| names.contains(&name))
        .map(|(_, on, stage, locked)| FeatureSpec { on, stage, locked })
}

/// Why a set of gates is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GateError {
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    #[error("cannot set feature gate {name} to {wanted}, feature is locked to {locked}")]
    Locked {
        name: String,
        wanted: bool,
        locked: bool,
    },
    #[error("{name} is enabled, but depends on features that are disabled: [{}]", .off.join(" "))]
    Needs {
        name: &'static str,
        off: Vec<&'static str>,
    },
}

/// The gates as they are set, over their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    set: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// Checks a set of gates.
    pub fn new(set: &BTreeMap<String, bool>) -> Result<Self, GateError> {
        for (name, &wanted) in set {
            match gate(name) {
                _ if matches!(name.as_str(), "AllAlpha" | "AllBeta") => {}
                None => return Err(GateError::Unknown(name.clone())),
                Some(gate) if gate.locked && gate.on != wanted => {
                    let name = name.clone();
                    return Err(GateError::Locked {
                        name,
                        wanted,
                        locked: gate.on,
                    });
                }
                Some(_) => {}
            }
        }
        let gates = FeatureGates { set: set.clone() };
        for &(name, needs) in table::NEEDS {
            let off: Vec<_> = needs
                .iter()
                .copied()
                .filter(|name| !gates.enabled(name))
                .collect();
            if gates.enabled(name) && !off.is_empty() {
                return Err(GateError::Needs { name, off });
            }
        }
        Ok(gates)
    }

    /// Tells whether a feature is on; one that 1.36 does not know is off.
    pub fn enabled(&self, name: &str) -> bool {
        if let Some(on) = self.set.get(name) {
            return *on;
        }
        let Some(gate) = gate(name) else { return false };
        let all = match gate.stage {
            Prerelease::Alpha => self.set.get("AllAlpha"),
            Prerelease::Beta => self.set.get("AllBeta"),
            Prerelease::Settled => None,
        };
        *all.unwrap_or(&gate.on)
    }

    /// Returns the gates that are set although that changes nothing here.
    pub fn unheeded(&self) -> impl Iterator<Item = &'static str> {
        let turned = |name: &&str| gate(name).is_some_and(|gate| gate.on != self.enabled(name));
        table::UNHEEDED.iter().copied().filter(turned)
    }

    /// Returns every gate with its stage as the metrics word it (`ALPHA`, `BETA`, `DEPRECATED`; empty when it is
    /// generally available), and whether it is on.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let groups = [
            (table::ALPHA, "ALPHA"),
            (table::BETA_ON, "BETA"),
            (table::BETA_OFF, "BETA"),
            (table::SETTLED_ON, ""),
            (table::SETTLED_OFF, "DEPRECATED"),
            (table::LOCKED_ON, ""),
            (table::LOCKED_OFF, "DEPRECATED"),
        ];
        let gates = groups.into_iter().flat_map(move |(names, stage)| {
            names.iter().map(move |name| {
                let stage = match table::DEPRECATED_ON.contains(name) {
                    true => "DEPRECATED",
                    false => stage,
                };
                (*name, stage, self.enabled(name))
            })
        });
        let all = |name: &str| self.set.get(name) == Some(&true);
        let groups = [
            ("AllAlpha", "ALPHA", all("AllAlpha")),
            ("AllBeta", "BETA", all("AllBeta")),
        ];
        gates.chain(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(set: &[(&str, bool)]) -> Result<FeatureGates, GateError> {
        FeatureGates::new(
            &set.iter()
                .map(|(name, on)| ((*name).to_owned(), *on))
                .collect(),
        )
    }

    #[test]
    fn no_gate_stands_in_two_groups() {
        let mut names: Vec<_> = [
            table::ALPHA,
            table::BETA_ON,
            table::BETA_OFF,
            table::SETTLED_ON,
            table::SETTLED_OFF,
            table::LOCKED_ON,
            table::LOCKED_OFF,
        ]
        .concat();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (name, needs) in table::NEEDS {
            assert!(
                gate(name).is_some() && needs.iter().all(|name| gate(name).is_some()),
                "{name}"
            );
        }
    }

    #[test]
    fn unknown_and_locked_gates_are_refused() {
        assert_eq!(
            gates(&[("Nonsense", true)]).unwrap_err().to_string(),
            "unrecognized feature gate: Nonsense"
        );
        assert_eq!(
            gates(&[("NodeSwap", false)]).unwrap_err().to_string(),
            "cannot set feature gate NodeSwap to false, feature is locked to true"
        );
        assert!(gates(&[("NodeSwap", true)]).unwrap().enabled("NodeSwap"));
    }

    #[test]
    fn all_alpha_turns_what_nobody_named() {
        let gates = gates(&[("AllAlpha", true), ("EventedPLEG", false)]).unwrap();
        assert!(gates.enabled("MemoryQoS"));
        assert!(!gates.enabled("EventedPLEG"));
        assert!(!gates.enabled("SELinuxMount"));
    }

    #[test]
    fn every_gate_is_listed_with_its_stage() {
        let gates = gates(&[("AllAlpha", true), ("EnvFiles", false)]).unwrap();
        let listed: Vec<_> = gates.all().collect();
        for expected in [
            ("MemoryQoS", "ALPHA", true),
            ("EnvFiles", "BETA", false),
            ("NodeSwap", "", true),
            ("GitRepoVolumeDriver", "DEPRECATED", false),
            ("StorageNamespaceIndex", "DEPRECATED", true),
            ("DisableNodeKubeProxyVersion", "DEPRECATED", true),
            ("MutatingAdmissionPolicy", "", true),
            ("AllAlpha", "ALPHA", true),
            ("AllBeta", "BETA", false),
        ] {
            assert!(listed.contains(&expected), "{expected:?}");
        }
        assert_eq!(listed.len(), 240 + 2);
        for name in table::DEPRECATED_ON {
            assert!(listed.contains(&(name, "DEPRECATED", true)), "{name}");
        }
    }

    #[test]
    fn a_gate_that_changes_nothing_is_named_when_it_is_turned() {
        let named = |set: &[(&str, bool)]| gates(set).unwrap().unheeded().collect::<Vec<_>>();
        let none: [&str; 0] = [];
        assert_eq!(named(&[]), none);
        let heeded = [
            ("CPUManagerPolicyAlphaOptions", true),
            ("MemoryQoS", true),
            ("PodsAPI", true),
            ("SELinuxMount", true),
        ];
        assert_eq!(named(&heeded), none);
        let as_before = [
            ("PLEGOnDemandRelist", true),
            ("TopologyManagerPolicyAlphaOptions", false),
        ];
        assert_eq!(named(&as_before), none);
        let turned = [("PLEGOnDemandRelist", false), ("EnvFiles", false)];
        assert_eq!(named(&turned), ["EnvFiles", "PLEGOnDemandRelist"]);
        assert!(named(&[("AllAlpha", true)]).contains(&"TopologyManagerPolicyAlphaOptions"));
        for name in table::UNHEEDED {
            assert!(gate(name).is_some_and(|gate| !gate.locked), "{name}");
        }
    }

    #[test]
    fn all_beta_leaves_what_is_settled() {
        let gates = gates(&[("AllBeta", false)]).unwrap();
        assert!(!gates.enabled("KubeletCrashLoopBackOffMax"));
        assert!(gates.enabled("NodeSwap"));
        assert!(!gates.enabled("NoSuchGate"));
    }

    #[test]
    fn a_gate_needs_what_it_depends_on() {
        assert_eq!(
            gates(&[("GracefulNodeShutdown", false)])
                .unwrap_err()
                .to_string(),
            "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: [GracefulNodeShutdown]"
        );
        assert_eq!(
            gates(&[("AllBeta", false), ("PodLevelResourceManagers", true)])
                .unwrap_err()
                .to_string(),
            "PodLevelResourceManagers is enabled, but depends on features that are disabled: [PodLevelResources]"
        );
        assert_eq!(
            gates(&[
                ("AllBeta", false),
                ("InPlacePodLevelResourcesVerticalScaling", true)
            ])
            .unwrap_err()
            .to_string(),
            "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: [NodeDeclaredFeatures PodLevelResources]"
        );
    }

    #[test]
    fn defaults_and_whole_stages_have_what_they_need() {
        for set in [
            &[][..],
            &[("AllAlpha", true)],
            &[("AllBeta", true)],
            &[("AllAlpha", true), ("AllBeta", true)],
            &[("AllBeta", false)],
        ] {
            assert!(gates(set).is_ok(), "{set:?}");
        }
        for (name, needs) in table::NEEDS {
            let can_be_off = |name: &&str| !table::LOCKED_ON.contains(name);
            assert!(needs.iter().all(can_be_off), "{name}");
        }
    }

    #[test]
    fn gates_stand_where_1_36_has_them() {
        use Prerelease::{Alpha, Beta, Settled};
        for (name, stage, on, locked) in [
            ("CRIListStreaming", Alpha, false, false),
            ("DRANodeAllocatableResources", Alpha, false, false),
            ("ManifestBasedAdmissionControlConfig", Alpha, false, false),
            ("NativeHistograms", Alpha, false, false),
            ("PodLevelResourceManagers", Alpha, false, false),
            ("PodsAPI", Alpha, false, false),
            ("ShardedListAndWatch", Alpha, false, false),
            ("ClientsAllowCARotation", Beta, true, false),
            ("ClientsAllowTLSCacheGC", Beta, true, false),
            ("ComponentFlagz", Beta, true, false),
            ("ComponentStatusz", Beta, true, false),
            ("InPlacePodLevelResourcesVerticalScaling", Beta, true, false),
            ("InPlacePodVerticalScalingInitContainers", Beta, true, false),
            ("PLEGOnDemandRelist", Beta, true, false),
            ("ReloadKubeletClientCAFile", Beta, true, false),
            ("RestartAllContainersOnContainerExits", Beta, true, false),
            ("StaleControllerConsistencyJob", Beta, true, false),
            ("StrictIPCIDRValidation", Beta, true, false),
            ("DRADeviceTaintRules", Beta, false, false),
            ("MaxUnavailableStatefulSet", Beta, false, false),
            ("CustomCPUCFSQuotaPeriod", Settled, true, false),
            ("DisableCPUQuotaWithExclusiveCPUs", Settled, true, false),
            ("KubeletRegistrationGetOnExistsOnly", Settled, false, false),
            ("ImageVolume", Settled, true, true),
            ("KubeletPSI", Settled, true, true),
            ("NodeLogQuery", Settled, true, true),
            ("ProcMountType", Settled, true, true),
            ("GitRepoVolumeDriver", Settled, false, true),
        ] {
            let gate = gate(name).expect(name);
            assert_eq!(
                (gate.stage, gate.on, gate.locked),
                (stage, on, locked),
                "{name}"
            );
            assert_eq!(gates(&[(name, !on)]).is_err(), locked, "{name}");
        }
    }

    #[test]
    fn gates_that_left_before_1_36_or_come_after_it_are_refused() {
        for name in [
            "CPUManager",
            "CSIMigrationPortworx",
            "HonorPVReclaimPolicy",
            "InPlacePodVerticalScalingAllocatedStatus",
            "InTreePluginPortworxUnregister",
            "LegacySidecarContainers",
            "VolumeBindMountOptions",
            "WatchListCompression",
        ] {
            let unknown = GateError::Unknown(name.to_owned());
            assert_eq!(gates(&[(name, true)]), Err(unknown), "{name}");
        }
    }
}
