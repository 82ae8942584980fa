//! The last steps before the container's program runs: seccomp and capabilities, and then `exec`.
//!
//! libcontainer without its C library has no seccomp, and drops capabilities before it calls an executor. A filter
//! without no-new-privileges needs CAP_SYS_ADMIN, so the capabilities are taken out of the spec that libcontainer sees,
//! and set here: after the filter where privileges may be gained, before it where not, as runc does.

use crate::users::JoinedUsers;
use kernel_filters::Filter;
use libcontainer::capabilities::drop_privileges;
use libcontainer::oci_spec::runtime::{LinuxCapabilities, Spec};
use libcontainer::syscall::syscall::create_syscall;
use libcontainer::workload::default::DefaultExecutor;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};

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
        if self.no_new_privileges {
            self.drop_capabilities()?;
            self.install_filter()?;
        } else {
            self.install_filter()?;
            self.drop_capabilities()?;
        }
        DefaultExecutor {}.exec(spec)
    }

    /// Looks whether the program is there. libcontainer wants a `PATH` for that, which a program that is named by its
    /// path doesn't need: the one it gets here is empty, and nobody else sees it.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let mut spec = spec.clone();
        if let Some(process) = spec.process_mut() {
            let mut env = process.env().clone().unwrap_or_default();
            if !env.iter().any(|variable| variable.starts_with("PATH=")) {
                env.push("PATH=".to_owned());
                process.set_env(Some(env));
            }
        }
        DefaultExecutor {}.validate(&spec)
    }

    fn setup_envs(
        &self,
        envs: std::collections::HashMap<String, String>,
    ) -> Result<(), ExecutorSetEnvsError> {
        DefaultExecutor {}.setup_envs(envs)
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
