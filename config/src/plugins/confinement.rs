//! What a plugin may do and use: the fields of the plugin file, and what its kind needs where the file says nothing.
//!
//! Why each kind has what it has stands in docs/decisions/0032-plugins-confine-themselves.md.

use std::path::Path;

use logic_api::quantity::Quantity;
use serde_json::Value;

use super::{PluginKind, PluginStart, shipped};

/// In the kernel's order, by their bits; without `CAP_`.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];
const ALL: &str = "ALL";
const NONE: &str = "none";
/// Below these no plugin starts.
const MIN_MEMORY: u64 = 16 << 20;
const MIN_PIDS: u64 = 8;

/// The capabilities of a network: interfaces, addresses, rules, namespaces, and files of whatever CNI plugin it runs.
const NETWORK: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "NET_BIND_SERVICE",
    "NET_ADMIN",
    "NET_RAW",
    "SYS_PTRACE",
    "SYS_ADMIN",
];
/// The capabilities of volumes: mounts, files of any owner, and what mount(8) and its helpers need.
const STORAGE: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "NET_BIND_SERVICE",
    "SYS_ADMIN",
];

/// What a plugin may do and use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConfinement {
    /// Their names without `CAP_`; none means all that the agent has.
    pub capabilities: Option<Vec<&'static str>>,
    pub no_new_privileges: bool,
    /// Whether the system calls are refused that its role has no use for.
    pub seccomp: bool,
    pub role: PluginRole,
    /// In bytes.
    pub memory_limit: Option<u64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
}

/// What a plugin does on the node, by which it is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginRole {
    /// Calls a daemon that has the pods.
    Client,
    /// Gives pods their interfaces.
    Network,
    /// Mounts volumes for pods.
    Storage,
    /// Starts containers, which may be allowed everything, and outlive it.
    Containers,
}

/// The fields of a plugin in the plugin file.
#[derive(Debug, Default)]
pub(super) struct RawConfinement {
    pub(super) capabilities: Option<Vec<String>>,
    pub(super) no_new_privileges: Option<bool>,
    pub(super) seccomp: Option<bool>,
    pub(super) memory_limit: Option<Value>,
    pub(super) pids_limit: Option<Value>,
}

impl PluginConfinement {
    /// What a plugin of this kind needs that is started so.
    pub(super) fn of(kind: PluginKind, start: &PluginStart) -> Self {
        let role = PluginRole::of(kind, start);
        let (capabilities, memory, pids) = match role {
            PluginRole::Client => (Some(Vec::new()), Some(256 << 20), Some(128)),
            PluginRole::Network => (Some(NETWORK.to_vec()), Some(1 << 30), Some(4096)),
            PluginRole::Storage => (Some(STORAGE.to_vec()), Some(1 << 30), Some(1024)),
            PluginRole::Containers => (None, None, None),
        };
        let confined = role != PluginRole::Containers;
        Self {
            capabilities,
            no_new_privileges: confined,
            seccomp: confined,
            role,
            memory_limit: memory,
            pids_limit: pids,
        }
    }

    /// The same with what the file says; or the field that is wrong, and why.
    pub(super) fn with(mut self, raw: RawConfinement) -> Result<Self, (&'static str, String)> {
        if let Some(names) = raw.capabilities {
            self.capabilities = capabilities(&names).map_err(|why| ("capabilities", why))?;
        }
        self.no_new_privileges = raw.no_new_privileges.unwrap_or(self.no_new_privileges);
        self.seccomp = raw.seccomp.unwrap_or(self.seccomp);
        if self.seccomp && self.role == PluginRole::Containers {
            let why = "a runtime's containers have filters of their own; expected false";
            return Err(("seccomp", why.to_owned()));
        }
        if let Some(limit) = &raw.memory_limit {
            self.memory_limit = memory(limit).map_err(|why| ("memoryLimit", why))?;
        }
        if let Some(limit) = &raw.pids_limit {
            self.pids_limit = pids(limit).map_err(|why| ("pidsLimit", why))?;
        }
        Ok(self)
    }
}

impl PluginRole {
    fn of(kind: PluginKind, start: &PluginStart) -> Self {
        match kind {
            PluginKind::Network => Self::Network,
            PluginKind::Storage => Self::Storage,
            PluginKind::Runtime => match name(start) {
                Some("runtime-containerd" | "runtime-crio" | "runtime-fake") => Self::Client,
                // Of a program that is not ours nothing is known: it may start containers.
                _ => Self::Containers,
            },
        }
    }
}

impl RawConfinement {
    /// The first field that is said.
    pub(super) fn field(&self) -> Option<&'static str> {
        let fields = [
            (self.capabilities.is_some(), "capabilities"),
            (self.no_new_privileges.is_some(), "noNewPrivileges"),
            (self.seccomp.is_some(), "seccomp"),
            (self.memory_limit.is_some(), "memoryLimit"),
            (self.pids_limit.is_some(), "pidsLimit"),
        ];
        let mut said = fields.into_iter().filter(|(said, _)| *said);
        said.next().map(|(_, field)| field)
    }
}

/// The plugin's name among those that ship, or that of its program.
fn name(start: &PluginStart) -> Option<&str> {
    let PluginStart::Managed { command, args } = start else {
        return None;
    };
    let program = command.file_name()?.to_str()?;
    if Path::new(program) == Path::new(shipped::PROGRAM) {
        return args.first().map(String::as_str);
    }
    Some(program)
}

fn capabilities(names: &[String]) -> Result<Option<Vec<&'static str>>, String> {
    if names == [ALL] {
        return Ok(None);
    }
    let known = |name: &String| {
        let plain = name.strip_prefix("CAP_").unwrap_or(name);
        let known = NAMES.into_iter().find(|known| *known == plain);
        known.ok_or_else(|| {
            format!("{name:?} is no capability; expected names such as NET_ADMIN, or ALL alone")
        })
    };
    let names = names.iter().map(known).collect::<Result<_, _>>()?;
    Ok(Some(names))
}

fn memory(limit: &Value) -> Result<Option<u64>, String> {
    let text = match limit {
        Value::String(text) if text == NONE => return Ok(None),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    };
    let bytes = text.parse::<Quantity>().ok();
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes.value()).ok());
    match bytes.filter(|bytes| *bytes >= MIN_MEMORY) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(format!(
            "{limit} is no limit; expected a quantity of at least {}Mi, or {NONE}",
            MIN_MEMORY >> 20
        )),
    }
}

fn pids(limit: &Value) -> Result<Option<u64>, String> {
    if *limit == NONE {
        return Ok(None);
    }
    match limit.as_u64().filter(|pids| *pids >= MIN_PIDS) {
        Some(pids) => Ok(Some(pids)),
        None => Err(format!(
            "{limit} is no limit; expected a number of at least {MIN_PIDS}, or {NONE}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn start(command: &str, args: &[&str]) -> PluginStart {
        PluginStart::Managed {
            command: command.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        }
    }

    fn raw(mut fields: Value) -> RawConfinement {
        let mut take = |name: &str| fields.as_object_mut().unwrap().remove(name);
        let names = |names| serde_json::from_value(names).unwrap();
        RawConfinement {
            capabilities: take("capabilities").map(names),
            no_new_privileges: take("noNewPrivileges").and_then(|said| said.as_bool()),
            seccomp: take("seccomp").and_then(|said| said.as_bool()),
            memory_limit: take("memoryLimit"),
            pids_limit: take("pidsLimit"),
        }
    }

    #[test]
    fn each_plugin_has_the_role_of_its_kind_or_program() {
        use PluginKind::{Network, Runtime, Storage};
        let shipped = "/opt/oxlet-plugins";
        for (kind, start, role) in [
            (
                Runtime,
                start(shipped, &["runtime-containerd"]),
                PluginRole::Client,
            ),
            (
                Runtime,
                start(shipped, &["runtime-crio", "-x"]),
                PluginRole::Client,
            ),
            (Runtime, start("/opt/runtime-fake", &[]), PluginRole::Client),
            (
                Runtime,
                start(shipped, &["runtime-native"]),
                PluginRole::Containers,
            ),
            (
                Runtime,
                start("/opt/vendor", &["runtime-crio"]),
                PluginRole::Containers,
            ),
            (Network, start("/opt/vendor", &[]), PluginRole::Network),
            (
                Storage,
                start(shipped, &["storage-csi"]),
                PluginRole::Storage,
            ),
        ] {
            let confinement = PluginConfinement::of(kind, &start);
            assert_eq!(confinement.role, role, "{start:?}");
            let confined = role != PluginRole::Containers;
            assert_eq!(confinement.no_new_privileges, confined);
            assert_eq!(confinement.capabilities.is_some(), confined);
        }
        let client = PluginConfinement::of(Runtime, &start(shipped, &["runtime-crio"]));
        assert_eq!(client.capabilities, Some(Vec::new()));
    }

    #[test]
    fn what_the_file_says_counts_and_the_rest_is_the_kinds() {
        let storage = PluginConfinement::of(PluginKind::Storage, &start("/opt/s", &[]));
        let fields = json!({
            "capabilities": ["CAP_SYS_ADMIN", "MKNOD"], "memoryLimit": "64Mi", "pidsLimit": 32, "seccomp": false,
        });
        let said = storage.clone().with(raw(fields)).unwrap();
        let expected = PluginConfinement {
            capabilities: Some(vec!["SYS_ADMIN", "MKNOD"]),
            memory_limit: Some(64 << 20),
            pids_limit: Some(32),
            seccomp: false,
            ..storage.clone()
        };
        assert_eq!(said, expected);
        let open = json!({ "capabilities": ["ALL"], "memoryLimit": "none", "pidsLimit": "none" });
        let open = storage.clone().with(raw(open)).unwrap();
        assert_eq!(
            (open.capabilities, open.memory_limit, open.pids_limit),
            (None, None, None)
        );
        let bytes = raw(json!({ "memoryLimit": 134_217_728 }));
        assert_eq!(storage.with(bytes).unwrap().memory_limit, Some(128 << 20));
    }

    #[test]
    fn what_no_plugin_can_have_is_refused_with_its_field() {
        let native = PluginConfinement::of(PluginKind::Runtime, &start("/opt/n", &[]));
        for (fields, field, words) in [
            (
                json!({ "capabilities": ["FLY"] }),
                "capabilities",
                "\"FLY\" is no capability",
            ),
            (
                json!({ "capabilities": ["ALL", "KILL"] }),
                "capabilities",
                "\"ALL\" is no capability",
            ),
            (
                json!({ "memoryLimit": "much" }),
                "memoryLimit",
                "\"much\" is no limit; expected a quantity of at least 16Mi",
            ),
            (
                json!({ "memoryLimit": "1Mi" }),
                "memoryLimit",
                "\"1Mi\" is no limit",
            ),
            (
                json!({ "memoryLimit": -1 }),
                "memoryLimit",
                "-1 is no limit",
            ),
            (
                json!({ "memoryLimit": [] }),
                "memoryLimit",
                "[] is no limit",
            ),
            (
                json!({ "pidsLimit": 0 }),
                "pidsLimit",
                "0 is no limit; expected a number of at least 8",
            ),
            (
                json!({ "pidsLimit": "64" }),
                "pidsLimit",
                "\"64\" is no limit",
            ),
            (
                json!({ "seccomp": true }),
                "seccomp",
                "filters of their own",
            ),
        ] {
            let (refused, why) = native.clone().with(raw(fields.clone())).unwrap_err();
            assert_eq!(refused, field, "{fields}");
            assert!(why.contains(words), "{fields}: {why}");
        }
    }
}
