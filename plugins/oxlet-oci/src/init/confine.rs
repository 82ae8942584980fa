//! The last steps before the container's program runs: capabilities and seccomp, and then `execve`.
//!
//! A filter without no-new-privileges needs CAP_SYS_ADMIN: it is installed before capabilities are dropped then, and after
//! it where no privileges can be gained, as runc does.

use std::convert::Infallible;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use oci_spec::runtime::{Capabilities, LinuxCapabilities};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities,
};

use super::process::{ProcessPlan, Ready};
use super::{InitError, REFUSED_CODE, cannot};
use crate::program;

/// No kernel has more.
const MAX_CAPABILITIES: u32 = 64;

/// Becomes the program. Returns only where that can't be tried.
pub(crate) fn become_program(
    process: &ProcessPlan,
    ready: &Ready,
) -> Result<Infallible, InitError> {
    let path = CString::new(ready.program.as_os_str().as_bytes());
    let words = |all: &[String]| {
        all.iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
    };
    let (Ok(path), Ok(args), Ok(env)) = (path, words(&process.args), words(&ready.env)) else {
        let text = "process.args: a word contains a nul byte";
        return Err(InitError::Refused(text.to_owned()));
    };
    raise()?;
    if process.no_new_privileges {
        drop_capabilities(process.capabilities.as_ref())?;
        install(process)?;
    } else {
        install(process)?;
        drop_capabilities(process.capabilities.as_ref())?;
    }
    // Not by `execvp`, which would have a shell try what the kernel does not run.
    match nix::unistd::execve(&path, &args, &env) {
        Ok(never) => match never {},
        Err(error) => {
            // Nobody waits for an answer any more: it is told to who reads the container's output, as by runc.
            let text = program::refused(&ready.program, error);
            // A container may have closed it.
            drop(writeln!(io::stderr(), "{text}"));
            std::process::exit(REFUSED_CODE)
        }
    }
}

fn install(process: &ProcessPlan) -> Result<(), InitError> {
    process
        .filter
        .as_ref()
        .map_or(Ok(()), kernel_filters::install)
        .map_err(|error| cannot("install the seccomp filter")(io::Error::other(error)))
}

/// Makes effective what this process still has: becoming another user has taken that away.
fn raise() -> Result<(), InitError> {
    let mut sets = capabilities(None).map_err(cannot("read capabilities"))?;
    sets.effective = sets.permitted;
    set_capabilities(None, sets).map_err(cannot("raise capabilities"))
}

fn drop_capabilities(wanted: Option<&LinuxCapabilities>) -> Result<(), InitError> {
    let set = |of: fn(&LinuxCapabilities) -> &Option<Capabilities>| {
        wanted.map_or_else(CapabilitySet::empty, |wanted| set(of(wanted)))
    };
    let bounding = set(LinuxCapabilities::bounding);
    for number in 0..MAX_CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if bounding.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no such capability, and none after it.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(cannot("drop capabilities from the bounding set")(error)),
        }
    }
    set_keep_capabilities(false).map_err(cannot("stop keeping capabilities"))?;
    let sets = CapabilitySets {
        effective: set(LinuxCapabilities::effective),
        permitted: set(LinuxCapabilities::permitted),
        inheritable: set(LinuxCapabilities::inheritable),
    };
    set_capabilities(None, sets).map_err(cannot("set capabilities"))?;
    match clear_ambient_capability_set() {
        // Before Linux 4.3.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(cannot("clear ambient capabilities")(error)),
    }
    for one in set(LinuxCapabilities::ambient).iter() {
        match configure_capability_in_ambient_set(one, true) {
            // One that this process does not have is left out, as by runc.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(cannot("set ambient capabilities")(error)),
        }
    }
    Ok(())
}

/// A set as the kernel's bits; absent is empty. A name that the kernel's headers lack is none that it has.
fn set(names: &Option<Capabilities>) -> CapabilitySet {
    names
        .iter()
        .flatten()
        .filter_map(|one| {
            let name = one.to_string();
            CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap_or(&name))
        })
        .fold(CapabilitySet::empty(), CapabilitySet::union)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn capabilities_have_the_kernels_numbers() {
        let bits = |names: &[String]| {
            let sets = json!({ "bounding": names });
            let sets: LinuxCapabilities = serde_json::from_value(sets).unwrap();
            set(sets.bounding()).bits()
        };
        let all: Vec<_> = CapabilitySet::all().iter_names().collect();
        assert!(all.len() > 40);
        for (name, one) in all {
            assert_eq!(bits(&[format!("CAP_{name}")]), one.bits(), "{name}");
        }
        assert_eq!(set(&None), CapabilitySet::empty());
    }
}
