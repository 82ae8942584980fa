//! Hooks: which are well-formed, how they are run, and those that run after a container's end. Of these one that fails is a
//! warning, as the specification wants it: it must not keep a container from being deleted.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use oci_spec::runtime::Hook;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use crate::error::FieldError;

/// The hooks that are kept until the container is deleted, beside its prepared bundle's document.
const FILE: &str = "poststop.json";
/// When hooks run, by the specification's names.
const KINDS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// Checks what a spec says of hooks.
pub(crate) fn check(hooks: &Value) -> Result<(), FieldError> {
    for (kind, list) in hooks.as_object().into_iter().flatten() {
        if !KINDS.contains(&kind.as_str()) {
            return Err(FieldError::Unsupported(format!("hooks.{kind}")));
        }
        for (at, hook) in list.as_array().into_iter().flatten().enumerate() {
            let wrong = |field: &str, why: String| {
                Err(FieldError::Wrong(
                    format!("hooks.{kind}[{at}].{field}"),
                    why,
                ))
            };
            let path = hook["path"].as_str().unwrap_or_default();
            if !path.starts_with('/') {
                return wrong("path", format!("{path:?} is no absolute path"));
            }
            if hook["timeout"].as_i64().is_some_and(|timeout| timeout <= 0) {
                return wrong("timeout", "it is not above zero".to_owned());
            }
        }
    }
    Ok(())
}

/// Takes the hooks that run after a container's end out of its spec, and keeps them in its folder.
pub(crate) fn keep_last(spec: &mut Value, folder: &Path) -> io::Result<()> {
    let hooks = spec["hooks"].as_object_mut();
    match hooks.and_then(|hooks| hooks.remove("poststop")) {
        Some(last) if !last.is_null() => fs::write(folder.join(FILE), last.to_string()),
        Some(_) | None => Ok(()),
    }
}

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
#[error("hook {kind} {path}: {why}", path = .path.display())]
pub(crate) struct HookError {
    kind: &'static str,
    path: PathBuf,
    why: String,
}

/// What hooks are told of a container on their standard input (the OCI runtime specification, "State").
#[derive(Clone, Debug, Default)]
pub(crate) struct HookState {
    pub(crate) id: String,
    pub(crate) bundle: String,
    pub(crate) annotations: HashMap<String, String>,
}

impl HookState {
    /// As a hook is told of a container with this status, whose init has this number where the hook runs.
    pub(crate) fn told(&self, status: &str, pid: i32) -> Value {
        json!({
            "ociVersion": crate::OCI_VERSION,
            "id": self.id,
            "status": status,
            "pid": pid,
            "bundle": self.bundle,
            "annotations": self.annotations,
        })
    }

    /// As the container's init says of itself.
    pub(crate) fn of_this_process(&self, status: &str) -> Value {
        self.told(status, rustix::process::getpid().as_raw_nonzero().get())
    }
}

/// Runs hooks, one after the other, until one fails. One that names no environment has `env`, or none.
pub(crate) fn run_all(
    kind: &'static str,
    hooks: &[Hook],
    state: &Value,
    env: Option<&[String]>,
) -> Result<(), HookError> {
    for hook in hooks {
        run(hook, state, env).map_err(|why| HookError {
            kind,
            path: hook.path().clone(),
            why,
        })?;
    }
    Ok(())
}

fn run(hook: &Hook, state: &Value, env: Option<&[String]>) -> Result<(), String> {
    let mut command = Command::new(hook.path());
    if let Some((name, args)) = hook.args().as_ref().and_then(|args| args.split_first()) {
        command.arg0(name).args(args);
    }
    let env = hook.env().as_deref().or(env).unwrap_or_default();
    let pairs = env.iter().filter_map(|variable| variable.split_once('='));
    let input = in_memory(&state.to_string()).map_err(|error| error.to_string())?;
    let mut child = command
        .env_clear()
        .envs(pairs)
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("cannot be run: {error}"))?;
    let ended = match hook.timeout() {
        None => child.wait().map_err(|error| error.to_string())?,
        Some(seconds) => wait(&mut child, seconds)?,
    };
    if ended.success() {
        Ok(())
    } else {
        Err(ended.to_string())
    }
}

/// A file of memory, so that a hook that does not read its input keeps nobody waiting.
fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("state", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Waits for a hook, and kills one that takes longer than it may.
fn wait(child: &mut Child, seconds: i64) -> Result<ExitStatus, String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process = pid
        .ok_or(rustix::io::Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .map_err(|error| error.to_string())?;
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let ended = poll(&mut polled, Some(&timeout)).map_err(|error| error.to_string())?;
    if ended == 0 {
        // It may have ended in this moment.
        drop(child.kill());
        drop(child.wait());
        return Err(format!("did not end within {seconds} s and was killed"));
    }
    child.wait().map_err(|error| error.to_string())
}

/// The hooks that run after a container's end.
#[derive(Debug, Default)]
pub(crate) struct Last(Vec<Hook>);

impl Last {
    /// Reads what was kept in a folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Last> {
        match crate::document::read_bounded(&folder.join(FILE)) {
            Ok(bytes) => Ok(Last(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Last::default()),
            Err(error) => Err(error),
        }
    }

    /// Runs them, one after the other. What fails is a warning, and hinders no other.
    pub(crate) fn run(&self, state: &Value) {
        for hook in &self.0 {
            let one = std::slice::from_ref(hook);
            if let Err(error) = run_all("poststop", one, state, None) {
                // Nobody is there to be told that telling failed.
                drop(writeln!(io::stderr(), "oxlet-oci: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_that_are_none_are_refused_by_their_names() {
        let refused =
            |hooks: Value| check(&hooks).map_or_else(|error| error.to_string(), |()| String::new());
        for (hooks, expected) in [
            (
                json!({ "prestart": [{ "path": "/a" }], "poststop": [{ "path": "/b", "timeout": 1 }] }),
                "",
            ),
            (
                json!({ "later": [{ "path": "/a" }] }),
                "hooks.later is not supported by this runtime",
            ),
            (
                json!({ "poststart": [{ "path": "/a" }, { "path": "b" }] }),
                "hooks.poststart[1].path: \"b\" is no absolute path",
            ),
            (
                json!({ "createRuntime": [{ "path": "/a", "timeout": 0 }] }),
                "hooks.createRuntime[0].timeout: it is not above zero",
            ),
        ] {
            assert_eq!(refused(hooks), expected);
        }
    }

    #[test]
    fn the_last_hooks_are_kept_apart_from_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let hook = |path: &str| json!([{ "path": path }]);
        let mut spec =
            json!({ "hooks": { "poststop": hook("/last"), "poststart": hook("/first") } });
        keep_last(&mut spec, folder.path()).unwrap();
        assert_eq!(spec, json!({ "hooks": { "poststart": hook("/first") } }));
        let Last(kept) = Last::read(folder.path()).unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].path(), Path::new("/last"));
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        assert!(Last::read(&empty).unwrap().0.is_empty());
    }

    #[test]
    fn a_hook_is_told_the_state_and_ends_in_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let script = |text: &str, timeout: Option<i64>| -> Vec<Hook> {
            let hook =
                json!([{ "path": "/bin/sh", "args": ["sh", "-c", text], "timeout": timeout }]);
            serde_json::from_value(hook).unwrap()
        };
        let state = HookState {
            id: "box".to_owned(),
            ..HookState::default()
        };
        let told = state.told("created", 7);
        let write = format!("cat > {0}; echo $A >> {0}", seen.display());
        let env = ["A=b".to_owned()];
        run_all("poststart", &script(&write, Some(60)), &told, Some(&env)).unwrap();
        assert_eq!(fs::read_to_string(&seen).unwrap(), format!("{told}b\n"));
        for (text, timeout, why) in [
            ("exit 3", None, "exit status: 3"),
            (
                "sleep 1000",
                Some(1),
                "did not end within 1 s and was killed",
            ),
        ] {
            let error = run_all("poststart", &script(text, timeout), &told, None).unwrap_err();
            assert_eq!(error.to_string(), format!("hook poststart /bin/sh: {why}"));
        }
    }
}
