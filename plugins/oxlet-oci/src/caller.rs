//! A caller may have this program die with itself: the monitor, whose successor must not race with a command that its
//! predecessor began.

use rustix::fs::Mode;
use rustix::process::{Signal, getppid, set_parent_process_death_signal, umask};

/// The process id of the caller, if this process is to die with it (`monitor::PARENT_VARIABLE`).
const VARIABLE: &str = "OXLET_OCI_PARENT";
/// As below every other caller: the monitor's own files are for root alone, what a container finds is not.
const UMASK: u32 = 0o022;

/// Why this process would outlive its caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallerError {
    #[error("cannot ask to die with the caller")]
    Ask(#[source] rustix::io::Errno),
    #[error("the caller has died")]
    Dead,
}

/// Ties this process to its caller, where that asks for it.
pub(crate) fn die_with() -> Result<(), CallerError> {
    let Some(caller) = std::env::var_os(VARIABLE) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(CallerError::Ask)?;
    // Looked at after the request, which a caller that had died before never answers.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    if parent.is_none_or(|pid| caller.as_os_str() != pid.as_str()) {
        return Err(CallerError::Dead);
    }
    umask(Mode::from_raw_mode(UMASK));
    Ok(())
}
