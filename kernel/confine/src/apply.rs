//! An order is carried out, and the plugin's program takes this one's place.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::stdio::{dup2_stdout, stdout};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::{Capabilities, Order, SystemCalls, Word, tmp};

/// As a shell has it for a program that cannot be executed.
const NOT_EXECUTED: u8 = 126;
/// Beyond the plugin's socket, which is descriptor 3.
const LOWEST_DESCRIPTOR: i32 = 10;
/// Bits that the kernel may give to capabilities: the highest known one answers no more above the last.
const BITS: u32 = 64;

/// Why the program is not executed.
#[derive(Debug, thiserror::Error)]
enum ConfineError {
    #[error("usage: oxlet-confine ORDER PROGRAM [ARGUMENT...]")]
    Usage,
    #[error("order")]
    Order(#[source] serde_json::Error),
    #[error("standard output")]
    Output(#[source] io::Error),
    #[error("{0}")]
    Execute(io::Error),
}

/// Reads `ORDER PROGRAM [ARGUMENT...]`, carries the order out and becomes the program. Returns only if that fails.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut told = match take_output() {
        Ok(told) => told,
        Err(error) => return fail(&mut io::stderr(), &ConfineError::Output(error)),
    };
    let error = confine(arguments, &mut told);
    fail(&mut told, &error)
}

fn fail(told: &mut impl Write, error: &ConfineError) -> ExitCode {
    let cause =
        std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    tell(told, &Word::Failed(format!("{error}{cause}")));
    ExitCode::from(NOT_EXECUTED)
}

/// Returns what the host reads; the plugin gets `/dev/null` in its place.
fn take_output() -> io::Result<File> {
    let told: OwnedFd = fcntl_dupfd_cloexec(stdout(), LOWEST_DESCRIPTOR)?;
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(told.into())
}

fn confine(mut arguments: impl Iterator<Item = OsString>, told: &mut File) -> ConfineError {
    let (Some(order), Some(program)) = (arguments.next(), arguments.next()) else {
        return ConfineError::Usage;
    };
    let order: Order = match serde_json::from_slice(order.as_encoded_bytes()) {
        Ok(order) => order,
        Err(error) => return ConfineError::Order(error),
    };
    carry_out(&order, &mut |what: &str, error: &dyn std::fmt::Display| {
        tell(told, &Word::Refused(format!("{what}: {error}")));
    });
    ConfineError::Execute(Command::new(program).args(arguments).exec())
}

fn carry_out(order: &Order, refused: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
    for group in &order.groups {
        if let Err(error) = join(group) {
            refused(&format!("cgroup {}", group.display()), &error);
        }
    }
    if order.private_tmp
        && let Err(error) = tmp::make_private()
    {
        refused("private /tmp", &error);
    }
    if order.capabilities != Capabilities::ALL
        && let Err(error) = bound(order.capabilities)
    {
        refused("bound of capabilities", &error);
    }
    if order.no_new_privileges
        && let Err(error) = set_no_new_privs(true)
    {
        refused("no new privileges", &error);
    }
    if let Err(error) = filter(order.system_calls) {
        refused("filter of system calls", &error);
    }
    // Last: some of what goes before needs the capabilities that end here.
    if order.capabilities != Capabilities::ALL
        && let Err(error) = keep(order.capabilities)
    {
        refused("capabilities", &error);
    }
}

/// Joins a cgroup; 0 is the process that writes.
fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Takes every other capability out of the bounding set: root gets by executing a program what is in there.
fn bound(kept: Capabilities) -> io::Result<()> {
    for bit in 0..BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !kept.bits().contains(one) => remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            // Beyond the last that the kernel knows.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Gives up every other capability that this process has, for those that are not root; and what executed programs inherit.
fn keep(kept: Capabilities) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let held = capabilities(None)?;
    let sets = CapabilitySets {
        effective: held.effective & kept.bits(),
        permitted: held.permitted & kept.bits(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

fn filter(allowed: SystemCalls) -> Result<(), kernel_filters::SeccompError> {
    match allowed.filter()? {
        Some(filter) => kernel_filters::install(&filter),
        None => Ok(()),
    }
}

fn tell(told: &mut impl Write, word: &Word) {
    let line = serde_json::to_string(word).unwrap_or_default();
    // Nobody is there to be told that telling failed.
    drop(writeln!(told, "{line}"));
}
