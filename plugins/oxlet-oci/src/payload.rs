//! The last steps before the container's program runs: seccomp and capabilities, and then `exec`.
//!
//! libcontainer without its C library has no seccomp, and drops capabilities before it calls an executor. A filter
//! without no-new-privileges needs CAP_SYS_ADMIN, so the capabilities are taken out of the spec that libcontainer sees,
//! and set here: after the filter where privileges may be gained, before it where not, as runc does.

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kernel_filters::Filter;
use libcontainer::capabilities::drop_privileges;
use libcontainer::oci_spec::runtime::{LinuxCapabilities, Spec};
use libcontainer::syscall::syscall::create_syscall;
use libcontainer::workload::default::DefaultExecutor;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};

use crate::users::JoinedUsers;
use crate::{causes, program};

/// The code of a container whose program the kernel doesn't run; runc's.
const REFUSED_CODE: i32 = 255;

/// What a container's program is confined by.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) filter: Option<Filter>,
    /// Every set is there; an empty one is empty.
    pub(crate) capabilities: LinuxCapabilities,
    pub(crate) no_new_privileges: bool,
    /// Whom a process that is run in a container in a user namespace becomes.
    pub(crate) users: Option<JoinedUsers>,
}

impl Payload {
    fn drop_capabilities(&self) -> Result<(), ExecutorError> {
        let syscall = create_syscall();
        let dropped = drop_privileges(&self.capabilities, syscall.as_ref());
        dropped
            .map_err(|error| ExecutorError::Other(format!("capabilities cannot be set: {error}")))
    }

    fn install_filter(&self) -> Result<(), ExecutorError> {
        let installed = self.filter.as_ref().map_or(Ok(()), kernel_filters::install);
        installed.map_err(|error| ExecutorError::Execution(Box::new(error)))
    }
}

impl Executor for Payload {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        if let Some(users) = &self.users {
            users.join()?;
        }
        kernel_filters::restore_sigpipe()
            .map_err(|error| ExecutorError::Other(format!("SIGPIPE stays ignored: {error}")))?;
        // Before the filter, which may forbid to look for anything.
        let program = find(spec).map_err(ExecutorError::Other)?;
        if self.no_new_privileges {
            self.drop_capabilities()?;
            self.install_filter()?;
        } else {
            self.install_filter()?;
            self.drop_capabilities()?;
        }
        Err(run(spec, &program))
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let found = find(spec).map(drop);
        found.map_err(ExecutorValidationError::ArgValidationError)
    }

    fn setup_envs(
        &self,
        envs: std::collections::HashMap<String, String>,
    ) -> Result<(), ExecutorSetEnvsError> {
        // The last thing that happens before the command which made the process has its answer.
        causes::is_in_container();
        DefaultExecutor {}.setup_envs(envs)
    }
}

/// Returns where a spec's program is. One that is named by its path needs no `PATH`.
fn find(spec: &Spec) -> Result<PathBuf, String> {
    let process = spec.process().as_ref();
    let args = process.and_then(|process| process.args().as_ref());
    let env = process.and_then(|process| process.env().as_ref());
    let path = env.into_iter().flatten();
    let mut path = path.filter_map(|variable| variable.strip_prefix("PATH="));
    let program = args.and_then(|args| args.first());
    let program = program.ok_or_else(|| "no program is named".to_owned())?;
    program::look(program, path.next_back().unwrap_or_default())
}

/// Becomes the program. Returns only where that can't be tried. Where the kernel doesn't run it, nobody waits for an
/// answer any more: it is told to who reads the container's log, as runc does it. Not by `execvp`, which would have a
/// shell try.
fn run(spec: &Spec, program: &Path) -> ExecutorError {
    let process = spec.process().as_ref();
    let args = process.and_then(|process| process.args().as_ref());
    let words = args
        .into_iter()
        .flatten()
        .map(|arg| CString::new(arg.as_bytes()));
    let words: Result<Vec<CString>, _> = words.collect();
    let path = CString::new(program.as_os_str().as_bytes());
    let (Ok(path), Ok(words)) = (path, words) else {
        return ExecutorError::InvalidArg;
    };
    match nix::unistd::execv(&path, &words) {
        Ok(never) => match never {},
        Err(error) => {
            // A container may have closed it.
            drop(writeln!(
                std::io::stderr(),
                "{}",
                program::refused(program, error)
            ));
            std::process::exit(REFUSED_CODE)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_named_by_its_path_needs_no_path_variable() {
        let payload = Payload {
            filter: None,
            capabilities: LinuxCapabilities::default(),
            no_new_privileges: true,
            users: None,
        };
        let found = |program: &str, env: &[&str]| {
            let process = json!({ "args": [program], "env": env, "cwd": "/", "user": { "uid": 0, "gid": 0 } });
            let spec = json!({ "ociVersion": "1.2.0", "process": process });
            let spec: Spec = serde_json::from_value(spec).unwrap();
            payload.validate(&spec).is_ok()
        };
        assert!(found("/bin/sh", &[]) && found("sh", &["PATH=/bin"]));
        assert!(!found("sh", &[]) && !found("/bin/no-such-program", &[]));
    }
}
