//! The process of a pod whose containers share a PID namespace: it holds the namespace and reaps what is left in it.
//!
//! A namespace of PIDs lives as long as its first process, so a mount alone cannot pin it. The program is the smallest
//! that does the work, and is made here: an ELF file of some 150 bytes that ignores SIGCHLD, by which the kernel reaps
//! orphans itself, and sleeps. It is a container of the pod's monitor, under the sandbox's own id.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use monitor::{Create, Input, Phase};
use proto::cri::{NamespaceMode, PodSandboxConfig};
use serde_json::json;

use super::{namespace_folder, namespace_options, own_namespaces, users};
use crate::container::staging::{Owners, Stage};
use crate::error::CallError;
use crate::layout::private_dir;
use crate::node::Node;
use crate::record::SandboxRecord;
use crate::spec::{CgroupDriver, UserNamespacePath, cgroups_path};

/// rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8), then pause() for ever; the last 32 bytes are the action.
const X86_64: [u8; 68] = [
    0xb8, 0x0d, 0, 0, 0, // mov eax, 13
    0xbf, 0x11, 0, 0, 0, // mov edi, 17
    0x48, 0x8d, 0x35, 0x13, 0, 0, 0, // lea rsi, [rip + 19]
    0x31, 0xd2, // xor edx, edx
    0x41, 0xba, 0x08, 0, 0, 0, // mov r10d, 8
    0x0f, 0x05, // syscall
    0xb8, 0x22, 0, 0, 0, // mov eax, 34
    0x0f, 0x05, // syscall
    0xeb, 0xf7, // jmp to the mov above
    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
const EM_X86_64: u16 = 62;
/// The name of the process's root among a sandbox's staged mounts.
const ROOT: &str = "pause";
/// Where the file is in memory, from its first byte on.
const BASE: u64 = 0x40_0000;
/// The ELF header, and one program header.
const HEADERS: u64 = 64 + 56;

/// Whether the pod's containers share a PID namespace of the pod.
pub(crate) fn is_needed(config: &PodSandboxConfig) -> bool {
    // Without any options nothing is asked for: the zero of CRI's enum means the pod.
    super::security(config).is_some_and(|context| context.namespace_options.is_some())
        && namespace_options(config).pid() == NamespaceMode::Pod
}

/// Returns the program for this machine; none where there is none yet.
fn program() -> Option<Vec<u8>> {
    match std::env::consts::ARCH {
        "x86_64" => Some(elf(EM_X86_64, &X86_64)),
        _ => None,
    }
}

/// Returns an ELF64 file of this code, which is all of it and stands right after the headers.
fn elf(machine: u16, code: &[u8]) -> Vec<u8> {
    let size = HEADERS + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // ET_EXEC, the machine, version 1.
    file.extend([2u16.to_le_bytes(), machine.to_le_bytes()].concat());
    file.extend(1u32.to_le_bytes());
    // The entry; where the program headers are; no sections.
    file.extend([BASE + HEADERS, 64, 0].map(u64::to_le_bytes).concat());
    file.extend(0u32.to_le_bytes());
    // Sizes: this header, a program header and how many, a section header and how many, which has names.
    file.extend([64u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    // PT_LOAD, readable and executable: the whole file.
    file.extend([1u32, 5].map(u32::to_le_bytes).concat());
    file.extend(
        [0, BASE, BASE, size, size, 0x1000]
            .map(u64::to_le_bytes)
            .concat(),
    );
    file.extend(code);
    file
}

impl Node {
    /// Starts the pod's own process; nothing where the pod needs none.
    pub(super) async fn start_pause(&self, record: &SandboxRecord) -> Result<(), CallError> {
        if !is_needed(&record.config.0) {
            return Ok(());
        }
        let program = program().ok_or(CallError::Unsupported(
            "a PID namespace shared by the pod's containers is, on this machine's architecture,",
        ))?;
        let bundle = self.parts.layout.sandbox(&record.id).join("pause");
        let stage = self.parts.layout.stage(&record.id);
        let users = users(&self.parts.layout, record)?;
        let root = match users {
            Some(_) => stage.join(ROOT),
            None => bundle.join("rootfs"),
        };
        let document = self.document(record, &root, users.as_ref());
        let written = bundle.clone();
        self.blocking("writing a pod's own process", move || {
            write(&written, &program, &document).map_err(CallError::file("write", &written))?;
            match &users {
                None => Ok(()),
                Some(users) => Stage::make(stage, &users.ids)?
                    .put(ROOT, &written.join("rootfs"), Owners::Disk)
                    .map(drop),
            }
        })
        .await?;
        let monitor = self.launch(record).await?;
        let create = Create {
            container: record.id.clone(),
            handler: self.handler(&record.handler)?,
            bundle,
            log: None,
            log_folder: None,
            stdin: Input::Closed,
            terminal: false,
        };
        monitor.create(create).await?;
        monitor.start(&record.id).await?;
        Ok(())
    }

    fn document(
        &self,
        record: &SandboxRecord,
        root: &Path,
        users: Option<&UserNamespacePath>,
    ) -> serde_json::Value {
        let pins = namespace_folder(&self.parts.layout, record);
        let own = own_namespaces(&record.config.0);
        let joined = [
            (own.user, "user", "user"),
            (own.network, "network", "net"),
            (own.ipc, "ipc", "ipc"),
            (own.uts, "uts", "uts"),
        ];
        let mut namespaces = vec![json!({ "type": "mount" }), json!({ "type": "pid" })];
        for (_, kind, name) in joined.into_iter().filter(|(own, ..)| *own) {
            namespaces.push(json!({ "type": kind, "path": pins.join(name) }));
        }
        let cgroup = match self.parts.driver {
            driver @ (CgroupDriver::Cgroupfs | CgroupDriver::Systemd) => {
                cgroups_path(&record.config.0, driver, &record.id)
            }
        };
        let mut document = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 65535, "gid": 65535 },
                "args": ["/pause"],
                "env": [],
                "cwd": "/",
                "capabilities": {},
                "noNewPrivileges": true,
            },
            "root": { "path": root, "readonly": true },
            // An OCI runtime makes the devices that every container has, which are not to be left in the folder.
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            ],
            "linux": {
                "namespaces": namespaces,
                "cgroupsPath": cgroup,
                "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
                "maskedPaths": ["/proc/kcore", "/proc/keys"],
                "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"],
            },
        });
        if let Some(users) = users {
            users.write(&mut document["linux"]);
        }
        document
    }

    /// Returns the PID namespace that the pod's containers share.
    pub(crate) async fn shared_pids(&self, record: &SandboxRecord) -> Result<String, CallError> {
        let monitor = self.launch(record).await?;
        let status = monitor.status().await?;
        let mut containers = status.containers.into_iter();
        let pause = containers.find(|container| container.container == record.id);
        let pid = pause
            .filter(|pause| pause.phase == Phase::Running)
            .and_then(|pause| pause.pid);
        let pid = pid.ok_or_else(|| CallError::WrongState {
            what: "sandbox",
            id: record.id.clone(),
            state: "without its own process",
            expected: "with one that holds its PID namespace",
        })?;
        Ok(format!("/proc/{pid}/ns/pid"))
    }
}

fn write(bundle: &Path, program: &[u8], document: &serde_json::Value) -> std::io::Result<()> {
    let root = bundle.join("rootfs");
    private_dir(bundle)?;
    fs::create_dir_all(root.join("proc"))?;
    fs::create_dir_all(root.join("dev"))?;
    // The process is no root: it must reach and read its own program.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
    let path = root.join("pause");
    fs::write(&path, program)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o555))?;
    fs::write(bundle.join("config.json"), document.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const SIGCHLD_BIT: u64 = 1 << 16;

    #[test]
    fn the_program_runs_until_it_is_killed_and_reaps_what_it_is_left() {
        let Some(program) = program() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pause");
        fs::write(&path, program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
        let mut child = Command::new(&path).spawn().unwrap();
        let status = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let ignores = || {
            let status = status();
            let mask = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:\t"));
            u64::from_str_radix(mask.unwrap(), 16).unwrap() & SIGCHLD_BIT != 0
        };
        let mut looks = 0;
        while !ignores() && looks < 100_000 {
            std::thread::yield_now();
            looks += 1;
        }
        assert!(ignores(), "{}", status());
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
