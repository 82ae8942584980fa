//! Which fields of a spec are enforced. One that is not is refused by its name: a container that runs without what
//! was asked for is worse than one that does not run.

use serde_json::Value;

use crate::error::FieldError;
use crate::hooks;

const SPEC: &[&str] = &[
    "ociVersion",
    "process",
    "root",
    "hostname",
    "domainname",
    "mounts",
    "annotations",
    "hooks",
    "linux",
];
const PROCESS: &[&str] = &[
    "terminal",
    "user",
    "args",
    "env",
    "cwd",
    "capabilities",
    "rlimits",
    "noNewPrivileges",
    "apparmorProfile",
    "oomScoreAdj",
    "ioPriority",
    "scheduler",
];
const LINUX: &[&str] = &[
    "namespaces",
    "uidMappings",
    "gidMappings",
    "devices",
    "cgroupsPath",
    "resources",
    "rootfsPropagation",
    "maskedPaths",
    "readonlyPaths",
    "seccomp",
    "sysctl",
    "personality",
    "timeOffsets",
];
/// Kinds of namespaces; one of users is joined and not made.
pub(crate) const NAMESPACES: &[&str] = &[
    "cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts",
];
const RESOURCES: &[&str] = &[
    "devices",
    "memory",
    "cpu",
    "pids",
    "blockIO",
    "hugepageLimits",
    "network",
    "unified",
];
const MOUNT: &[&str] = &["destination", "type", "source", "options"];
/// Options of bind mounts that have an effect; the kernel ignores every other one there.
pub(crate) const BIND_OPTIONS: &[&str] = &[
    "bind",
    "rbind",
    "defaults",
    "ro",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "sync",
    "async",
    "dirsync",
    "remount",
    "private",
    "rprivate",
    "shared",
    "rshared",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "rro",
    "rrw",
    "rnosuid",
    "rsuid",
    "rnodev",
    "rdev",
    "rnoexec",
    "rexec",
    "rnodiratime",
    "rdiratime",
    "rrelatime",
    "rnorelatime",
    "rnoatime",
    "ratime",
    "rstrictatime",
    "rnostrictatime",
];

/// Checks a whole spec; `unified` tells whether cgroups are v2.
pub(crate) fn check_spec(spec: &Value, unified: bool) -> Result<(), FieldError> {
    only(spec, "", SPEC)?;
    hooks::check(&spec["hooks"])?;
    check_process(&spec["process"])?;
    for (at, mount) in list(&spec["mounts"]) {
        let name = format!("mounts[{at}].");
        only(mount, &name, MOUNT)?;
        let options: Vec<&str> = list(&mount["options"])
            .filter_map(|(_, option)| option.as_str())
            .collect();
        let is_bind = options
            .iter()
            .any(|option| matches!(*option, "bind" | "rbind"))
            || mount["type"] == "bind";
        if let Some(option) = options
            .iter()
            .find(|option| is_bind && !BIND_OPTIONS.contains(option))
        {
            return Err(FieldError::Unsupported(format!("{name}options: {option}")));
        }
    }
    let linux = &spec["linux"];
    only(linux, "linux.", LINUX)?;
    for (at, device) in list(&linux["devices"]) {
        check_id(&device["uid"], &format!("linux.devices[{at}].uid"))?;
        check_id(&device["gid"], &format!("linux.devices[{at}].gid"))?;
    }
    check_users(linux)?;
    check_resources(&linux["resources"], unified)
}

/// A user namespace is one that stands: its ids are mapped already, and what the spec says of them is no more than that.
fn check_users(linux: &Value) -> Result<(), FieldError> {
    let user = list(&linux["namespaces"]).find(|(_, namespace)| namespace["type"] == "user");
    let joins = user.is_some_and(|(_, namespace)| !is_empty(&namespace["path"]));
    if user.is_some() && !joins {
        let name = "linux.namespaces: user without a path";
        return Err(FieldError::Unsupported(name.to_owned()));
    }
    for field in ["uidMappings", "gidMappings"] {
        if !joins && !is_empty(&linux[field]) {
            let name = format!("linux.{field} without a user namespace's path");
            return Err(FieldError::Unsupported(name));
        }
    }
    Ok(())
}

/// Checks a process, of a spec or one that is run in a container.
pub(crate) fn check_process(process: &Value) -> Result<(), FieldError> {
    only(process, "process.", PROCESS)?;
    check_ids(process)?;
    let cwd = process["cwd"].as_str().unwrap_or_default();
    if !cwd.starts_with('/') {
        return Err(FieldError::Wrong(
            "process.cwd".to_owned(),
            format!("{cwd:?} is no absolute path"),
        ));
    }
    let profile = process["apparmorProfile"].as_str().unwrap_or_default();
    if !profile.is_empty() && !has_apparmor() {
        let why = format!("{profile:?} cannot be applied, the kernel has no AppArmor");
        return Err(FieldError::Wrong("process.apparmorProfile".to_owned(), why));
    }
    Ok(())
}

/// Whether the kernel has AppArmor and it is on.
fn has_apparmor() -> bool {
    const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
    std::fs::read_to_string(ENABLED).is_ok_and(|text| text.starts_with('Y'))
}

/// The id that no user and no group has: the kernel takes it for "unchanged".
const NO_ID: u64 = 4_294_967_295;

/// Checks that a number is a user's or a group's, if it is there.
fn check_id(value: &Value, name: &str) -> Result<(), FieldError> {
    let is_id = value.is_null() || value.as_u64().is_some_and(|id| id < NO_ID);
    if is_id {
        return Ok(());
    }
    let why = format!("{value} is no id, expected 0 to {}", NO_ID - 1);
    Err(FieldError::Wrong(name.to_owned(), why))
}

fn check_ids(process: &Value) -> Result<(), FieldError> {
    let user = &process["user"];
    check_id(&user["uid"], "process.user.uid")?;
    check_id(&user["gid"], "process.user.gid")?;
    for (at, group) in list(&user["additionalGids"]) {
        check_id(group, &format!("process.user.additionalGids[{at}]"))?;
    }
    Ok(())
}

/// Checks limits.
pub(crate) fn check_resources(resources: &Value, unified: bool) -> Result<(), FieldError> {
    only(resources, "linux.resources.", RESOURCES)?;
    if !unified && !is_empty(&resources["unified"]) {
        return Err(FieldError::Unsupported(
            "linux.resources.unified on cgroup v1".to_owned(),
        ));
    }
    Ok(())
}

/// Refuses every field that is set and not among the known ones.
fn only(object: &Value, prefix: &str, known: &[&str]) -> Result<(), FieldError> {
    let fields = object.as_object().into_iter().flatten();
    let unknown =
        |(name, value): &(&String, &Value)| !known.contains(&name.as_str()) && !is_empty(value);
    match fields.into_iter().find(unknown) {
        Some((name, _)) => Err(FieldError::Unsupported(format!("{prefix}{name}"))),
        None => Ok(()),
    }
}

/// Whether a field says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

fn list(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(change: impl Fn(&mut Value), unified: bool) -> String {
        let mut spec = json!({
            "ociVersion": "1.2.0",
            "process": {"args": ["true"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]}],
            "linux": {"namespaces": [{"type": "mount"}]},
        });
        check_spec(&spec, unified).unwrap();
        change(&mut spec);
        check_spec(&spec, unified).map_or_else(|error| error.to_string(), |()| "nothing".to_owned())
    }

    #[test]
    fn what_is_not_enforced_is_refused_by_its_name() {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 10] = [
            ("hooks.later", |spec| {
                spec["hooks"] = json!({"later": [{"path": "/bin/true"}]})
            }),
            ("linux.netDevices", |spec| {
                spec["linux"]["netDevices"] = json!({"eth1": {"name": "eth0"}})
            }),
            ("process.selinuxLabel", |spec| {
                spec["process"]["selinuxLabel"] = json!("system_u:x")
            }),
            ("linux.mountLabel", |spec| {
                spec["linux"]["mountLabel"] = json!("system_u:x")
            }),
            ("user", |spec| {
                spec["linux"]["namespaces"] = json!([{"type": "user"}])
            }),
            ("linux.uidMappings", |spec| {
                spec["linux"]["uidMappings"] = json!([{"size": 1}])
            }),
            ("mounts[0].uidMappings", |spec| {
                spec["mounts"][0]["uidMappings"] = json!([{"size": 1}])
            }),
            ("ridmap", |spec| {
                spec["mounts"][0]["options"] = json!(["bind", "ridmap"])
            }),
            ("linux.intelRdt", |spec| {
                spec["linux"]["intelRdt"] = json!({"closID": "x"})
            }),
            ("linux.resources.rdma", |spec| {
                spec["linux"]["resources"] = json!({"rdma": {"x": {"hcaHandles": 1}}})
            }),
        ];
        for (name, change) in changes {
            assert!(
                refused(change, false).contains(name),
                "{name}: {}",
                refused(change, false)
            );
        }
    }

    #[test]
    fn what_is_no_id_is_refused_wherever_it_stands() {
        for wrong in [json!(4_294_967_295_u32), json!(-1), json!(1.5), json!("7")] {
            type Change = fn(&mut Value, Value);
            let changes: [(&str, Change); 4] = [
                ("process.user.uid", |spec, id| {
                    spec["process"]["user"]["uid"] = id
                }),
                ("process.user.gid", |spec, id| {
                    spec["process"]["user"]["gid"] = id
                }),
                ("process.user.additionalGids[1]", |spec, id| {
                    spec["process"]["user"]["additionalGids"] = json!([1, id])
                }),
                ("linux.devices[0].gid", |spec, id| {
                    spec["linux"]["devices"] = json!([{ "gid": id }])
                }),
            ];
            for (name, change) in changes {
                let text = refused(|spec| change(spec, wrong.clone()), false);
                assert!(
                    text.starts_with(&format!("{name}: {wrong} is no id")),
                    "{text}"
                );
            }
        }
        let largest = |spec: &mut Value| spec["process"]["user"]["uid"] = json!(4_294_967_294_u32);
        assert_eq!(refused(largest, false), "nothing");
    }

    #[test]
    fn a_user_namespace_that_stands_may_be_joined() {
        let joined = |spec: &mut Value| {
            let users = json!([{"containerID": 0, "hostID": 1000, "size": 10}]);
            spec["linux"] = json!({
                "namespaces": [{"type": "user", "path": "/run/user"}],
                "uidMappings": users,
                "gidMappings": users,
            });
        };
        assert_eq!(refused(joined, false), "nothing");
    }

    #[test]
    fn fields_that_say_nothing_are_no_reason() {
        let empty = |spec: &mut Value| {
            spec["hooks"] = json!({});
            spec["process"]["selinuxLabel"] = json!("");
            spec["linux"]["uidMappings"] = json!([]);
        };
        assert_eq!(refused(empty, false), "nothing");
    }
}
