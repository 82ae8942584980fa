//! The last steps before the container's program runs: seccomp and capabilities, and then `exec`.
//!
//! libcontainer without its C library has no seccomp, and drops capabilities before it calls an executor. A filter
//! without no-new-privileges needs CAP_SYS_ADMIN, so the capabilities are taken out of the spec that libcontainer sees,
//! and set here: after the filter where privileges may be gained, before it where not, as runc does.

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
        if self.no_new_privileges {
            self.drop_capabilities()?;
            self.install_filter()?;
        } else {
            self.install_filter()?;
            self.drop_capabilities()?;
        }
        DefaultExecutor {}.exec(spec)
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        DefaultExecutor {}.validate(spec)
    }

    fn setup_envs(
        &self,
        envs: std::collections::HashMap<String, String>,
    ) -> Result<(), ExecutorSetEnvsError> {
        DefaultExecutor {}.setup_envs(envs)
    }
}
