//! iptables, by its programs.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use logic_node::iptables::IpFamily;
use tokio::process::Command;

/// A call waits five seconds for another one that writes; the kernel does the rest within milliseconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call has not done what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It is there already, or it is not there: exit status 1.
    #[error("{call}: refused")]
    Refused { call: String },
    /// The machine has no such program.
    #[error("{call}: no such program")]
    NoProgram { call: String },
    /// Anything else, with what the program said.
    #[error("{call}: {why}")]
    Failed { call: String, why: String },
}

/// Runs iptables.
#[allow(
    async_fn_in_trait,
    reason = "the actor stays on its thread, so the futures need no Send"
)]
pub trait Iptables: Clone + 'static {
    /// Runs one call of a family's program.
    async fn call(&self, family: IpFamily, arguments: &[&str]) -> Result<(), CallError>;
}

/// The node's own programs, found on the PATH.
#[derive(Debug, Clone, Copy, Default)]
pub struct IptablesPrograms;

impl Iptables for IptablesPrograms {
    async fn call(&self, family: IpFamily, arguments: &[&str]) -> Result<(), CallError> {
        let call = format!("{} {}", family.program(), arguments.join(" "));
        let running = Command::new(family.program())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(CALL_TIMEOUT, running).await {
            Ok(ended) => judged(call, ended),
            Err(_) => Err(CallError::Failed {
                call,
                why: format!("no answer within {CALL_TIMEOUT:?}"),
            }),
        }
    }
}

/// What the end of a program means.
fn judged(call: String, ended: io::Result<Output>) -> Result<(), CallError> {
    match ended {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) if output.status.code() == Some(1) => Err(CallError::Refused { call }),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = format!("{}: {}", output.status, said.trim());
            Err(CallError::Failed { call, why })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CallError::NoProgram { call }),
        Err(error) => Err(CallError::Failed {
            call,
            why: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    /// Upstream's TestEnsureChain, TestEnsureRuleErrorChecking and TestEnsureRuleErrorCreating, in what they say of exit statuses.
    #[test]
    fn a_status_of_one_is_a_refusal_and_any_other_a_failure() {
        let call = || "iptables -N X".to_owned();
        let ended = |raw| {
            let output = Output {
                status: ExitStatus::from_raw(raw),
                stdout: Vec::new(),
                stderr: b"no lock\n".to_vec(),
            };
            judged(call(), Ok(output)).map_err(|error| error.to_string())
        };
        assert_eq!(ended(0), Ok(()));
        assert_eq!(ended(1 << 8), Err("iptables -N X: refused".to_owned()));
        let failed = "iptables -N X: exit status: 4: no lock";
        assert_eq!(ended(4 << 8), Err(failed.to_owned()));
        let killed = "iptables -N X: signal: 9 (SIGKILL): no lock";
        assert_eq!(ended(9), Err(killed.to_owned()));
        let absent = judged(call(), Err(io::ErrorKind::NotFound.into()));
        assert_eq!(absent, Err(CallError::NoProgram { call: call() }));
        let denied = judged(call(), Err(io::ErrorKind::PermissionDenied.into()));
        assert!(
            matches!(denied, Err(CallError::Failed { .. })),
            "{denied:?}"
        );
    }
}
