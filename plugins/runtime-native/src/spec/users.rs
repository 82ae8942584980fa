//! The users of a pod: which ids of its user namespace are which of the node. As containerd's CRI has them
//! (`internal/cri/server/podsandbox/helpers.go`): one range of users and one of groups, its root among them.

use proto::cri::{IdMapping, Mount, NamespaceMode, NamespaceOption};
use serde_json::{Value, json};

use super::SpecError;

/// A range of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRange {
    /// Its first id in the user namespace.
    pub(crate) inside: u32,
    /// Its first id on the node.
    pub(crate) outside: u32,
    pub(crate) length: u32,
}

/// The ids of a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserIds {
    pub(crate) users: IdRange,
    pub(crate) groups: IdRange,
}

/// A user namespace that is pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserNamespacePath {
    pub(crate) path: String,
    pub(crate) ids: UserIds,
}

impl UserIds {
    /// Reads what a pod or a container asks for; none is the node's own user namespace.
    pub(crate) fn of(options: Option<&NamespaceOption>) -> Result<Option<UserIds>, SpecError> {
        let Some(asked) = options.and_then(|options| options.userns_options.as_ref()) else {
            return Ok(None);
        };
        match asked.mode() {
            NamespaceMode::Node if asked.uids.is_empty() && asked.gids.is_empty() => Ok(None),
            NamespaceMode::Node => Err(SpecError::Invalid {
                field: "userns_options",
                found: "NODE with mappings".to_owned(),
                expected: "the node's user namespace without mappings",
            }),
            NamespaceMode::Pod => {
                let users = range("userns_options.uids", &asked.uids)?;
                let groups = range("userns_options.gids", &asked.gids)?;
                Ok(Some(UserIds { users, groups }))
            }
            mode @ (NamespaceMode::Container | NamespaceMode::Target) => Err(SpecError::Invalid {
                field: "userns_options.mode",
                found: mode.as_str_name().to_owned(),
                expected: "POD or NODE",
            }),
        }
    }

    /// Returns the node's ids of the namespace's root: its user and its group.
    pub(crate) fn root(&self) -> (u32, u32) {
        (self.users.outside, self.groups.outside)
    }

    /// Tells whether the ids of a mount's files are mapped; they can be as the pod's are and in no other way.
    pub(super) fn map(pod: Option<&UserIds>, mount: &Mount) -> Result<bool, SpecError> {
        if mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty() {
            return Ok(false);
        }
        let asked = UserIds {
            users: range("mount.uid_mappings", &mount.uid_mappings)?,
            groups: range("mount.gid_mappings", &mount.gid_mappings)?,
        };
        if pod == Some(&asked) {
            return Ok(true);
        }
        Err(SpecError::Invalid {
            field: "mount.uid_mappings and gid_mappings",
            found: format!("{asked:?}"),
            expected: "those of the pod's user namespace",
        })
    }
}

impl UserNamespacePath {
    /// Writes the ids into the `linux` section. runc wants them beside the namespace's path.
    pub(crate) fn write(&self, linux: &mut Value) {
        linux["uidMappings"] = vec![self.ids.users.document()].into();
        linux["gidMappings"] = vec![self.ids.groups.document()].into();
    }
}

impl IdRange {
    /// Returns the range as OCI has it.
    fn document(self) -> Value {
        json!({ "containerID": self.inside, "hostID": self.outside, "size": self.length })
    }

    /// Returns the range as a line of `/proc/PID/uid_map`.
    pub(crate) fn line(self) -> String {
        format!("{} {} {}\n", self.inside, self.outside, self.length)
    }
}

/// Tells whether a mount asks for mapped ids.
pub(crate) fn asks_for_ids(mount: &Mount) -> bool {
    !(mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty())
}

fn range(field: &'static str, lines: &[IdMapping]) -> Result<IdRange, SpecError> {
    let invalid = |expected| SpecError::Invalid {
        field,
        found: format!("{lines:?}"),
        expected,
    };
    let [line] = lines else {
        return Err(invalid("one mapping"));
    };
    if line.container_id != 0 {
        return Err(invalid("a mapping of container id 0"));
    }
    if line.length == 0 || line.host_id.checked_add(line.length).is_none() {
        return Err(invalid("a length above 0, and ids below 4294967295"));
    }
    Ok(IdRange {
        inside: line.container_id,
        outside: line.host_id,
        length: line.length,
    })
}

#[cfg(test)]
mod tests {
    use proto::cri::UserNamespace;

    use super::*;

    fn line(container_id: u32, host_id: u32, length: u32) -> IdMapping {
        IdMapping {
            container_id,
            host_id,
            length,
        }
    }

    fn asked(mode: NamespaceMode, lines: &[IdMapping]) -> Result<Option<UserIds>, SpecError> {
        let users = UserNamespace {
            mode: mode.into(),
            uids: lines.to_vec(),
            gids: lines.to_vec(),
        };
        UserIds::of(Some(&NamespaceOption {
            userns_options: Some(users),
            ..NamespaceOption::default()
        }))
    }

    const RANGE: IdRange = IdRange {
        inside: 0,
        outside: 65_536,
        length: 65_536,
    };
    const IDS: UserIds = UserIds {
        users: RANGE,
        groups: RANGE,
    };

    #[test]
    fn a_pod_has_the_users_that_it_asks_for_or_the_nodes() {
        let plain = [line(0, 65_536, 65_536)];
        assert_eq!(asked(NamespaceMode::Pod, &plain), Ok(Some(IDS)));
        assert_eq!(asked(NamespaceMode::Node, &[]), Ok(None));
        assert_eq!(UserIds::of(None), Ok(None));
        assert_eq!(UserIds::of(Some(&NamespaceOption::default())), Ok(None));
        assert_eq!(IDS.root(), (65_536, 65_536));
        assert_eq!(RANGE.line(), "0 65536 65536\n");
    }

    #[test]
    fn users_that_no_runtime_can_give_are_refused() {
        let (one, two) = (line(0, 1000, 10), line(10, 5000, 10));
        for (mode, lines) in [
            (NamespaceMode::Pod, vec![]),
            (NamespaceMode::Pod, vec![one, two]),
            (NamespaceMode::Pod, vec![two]),
            (NamespaceMode::Pod, vec![line(0, 1000, 0)]),
            (NamespaceMode::Pod, vec![line(0, u32::MAX, 1)]),
            (NamespaceMode::Node, vec![one]),
            (NamespaceMode::Container, vec![]),
            (NamespaceMode::Target, vec![]),
        ] {
            let found = asked(mode, &lines);
            assert!(
                matches!(found, Err(SpecError::Invalid { .. })),
                "{mode:?} {lines:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_mount_has_the_pods_ids_or_those_of_the_disk() {
        let mount = |lines: &[IdMapping]| Mount {
            uid_mappings: lines.to_vec(),
            gid_mappings: lines.to_vec(),
            ..Mount::default()
        };
        let own = mount(&[line(0, 65_536, 65_536)]);
        assert_eq!(UserIds::map(Some(&IDS), &own), Ok(true));
        assert_eq!(UserIds::map(Some(&IDS), &mount(&[])), Ok(false));
        assert!(UserIds::map(None, &own).is_err());
        assert!(UserIds::map(Some(&IDS), &mount(&[line(0, 1000, 65_536)])).is_err());
        let half = Mount {
            gid_mappings: Vec::new(),
            ..own
        };
        assert!(UserIds::map(Some(&IDS), &half).is_err());
    }
}
