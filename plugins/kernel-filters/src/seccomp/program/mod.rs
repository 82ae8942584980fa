//! A profile is compiled: one straight chain of comparisons, forward jumps only.

use std::collections::BTreeSet;
use std::str::FromStr;

use libc::sock_filter;
use syscalls::Sysno;

use crate::seccomp::profile::{Action, Argument, Operator, Profile, Rule};

/// The kernel's bound on a program (`BPF_MAXINSNS`).
const MAX_INSTRUCTIONS: usize = 4096;
/// Offsets in `struct seccomp_data` (linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// The bit of x32's system calls, which share x86_64's architecture.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// `AUDIT_ARCH_*` (linux/audit.h) of this machine, and its name in a profile.
#[cfg(target_arch = "x86_64")]
const NATIVE: (u32, &str) = (0xc000_003e, "SCMP_ARCH_X86_64");
#[cfg(target_arch = "aarch64")]
const NATIVE: (u32, &str) = (0xc000_00b7, "SCMP_ARCH_AARCH64");

/// The other architectures that programs on this machine can call as.
#[cfg(target_arch = "x86_64")]
const FOREIGN: &[(u32, &str)] = &[(0x4000_0003, "SCMP_ARCH_X86")];
#[cfg(target_arch = "aarch64")]
const FOREIGN: &[(u32, &str)] = &[(0x4000_0028, "SCMP_ARCH_ARM")];

/// A compiled profile.
#[derive(Clone)]
pub struct Filter {
    pub(crate) instructions: Vec<sock_filter>,
    /// `SECCOMP_FILTER_FLAG_*`.
    pub(crate) flags: libc::c_ulong,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter of {} instructions", self.instructions.len())
    }
}

/// Why a profile cannot be enforced; nothing of it is then.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    #[error("seccomp: {0} is not supported")]
    Unsupported(String),
    #[error("seccomp: argument {0} of a system call, there are 0 to 5")]
    ArgumentIndex(u8),
    #[error("seccomp: profile of {0} instructions, the kernel takes {MAX_INSTRUCTIONS}")]
    TooLong(usize),
    #[error("seccomp: filter cannot be installed")]
    Install(#[source] std::io::Error),
}

impl Filter {
    /// Compiles a profile for this machine.
    pub fn compile(profile: &Profile) -> Result<Filter, SeccompError> {
        if !profile.listener_path.is_empty() || !profile.listener_metadata.is_empty() {
            return Err(SeccompError::Unsupported("listenerPath".to_owned()));
        }
        let default = verdict(profile.default_action, profile.default_errno_ret)?;
        let mut chain = Chain::default();
        chain.architecture(profile);
        let mut known = BTreeSet::new();
        for rule in &profile.syscalls {
            known.extend(rule.names.iter().filter_map(|name| number(name)));
            let verdict = verdict(rule.action, rule.errno_ret)?;
            if verdict != default {
                chain.rule(rule, verdict)?;
            }
        }
        if let (Action::Errno, Some(newest)) = (profile.default_action, known.last()) {
            chain.load_number();
            chain.push(jump(libc::BPF_JGT, *newest, 0, 1));
            chain.push(answer(errno(libc::ENOSYS)));
        }
        chain.push(answer(default));
        if chain.instructions.len() > MAX_INSTRUCTIONS {
            return Err(SeccompError::TooLong(chain.instructions.len()));
        }
        Ok(Filter {
            instructions: chain.instructions,
            flags: flags(&profile.flags)?,
        })
    }
}

/// Instructions, and whether the accumulator holds the system call's number.
#[derive(Default)]
struct Chain {
    instructions: Vec<sock_filter>,
    has_number: bool,
}

impl Chain {
    fn push(&mut self, instruction: sock_filter) {
        self.instructions.push(instruction);
    }

    fn load_number(&mut self) {
        if !self.has_number {
            self.push(load(NUMBER));
            self.has_number = true;
        }
    }

    /// Lets only this machine's own system calls pass on.
    fn architecture(&mut self, profile: &Profile) {
        self.push(load(ARCHITECTURE));
        for (architecture, name) in FOREIGN {
            if profile.architectures.iter().any(|listed| listed == name) {
                self.push(jump(libc::BPF_JEQ, *architecture, 0, 1));
                self.push(answer(errno(libc::ENOSYS)));
            }
        }
        self.push(jump(libc::BPF_JEQ, NATIVE.0, 1, 0));
        self.push(answer(libc::SECCOMP_RET_KILL_PROCESS));
        self.load_number();
        #[cfg(target_arch = "x86_64")]
        {
            self.push(jump(libc::BPF_JGE, X32_BIT, 0, 1));
            self.push(answer(errno(libc::ENOSYS)));
        }
    }

    fn rule(&mut self, rule: &Rule, verdict: u32) -> Result<(), SeccompError> {
        if let Some(argument) = rule.args.iter().find(|argument| argument.index > 5) {
            return Err(SeccompError::ArgumentIndex(argument.index));
        }
        let mut indexes = BTreeSet::new();
        let alternatives: Vec<&[Argument]> = if rule
            .args
            .iter()
            .all(|argument| indexes.insert(argument.index))
        {
            vec![&rule.args]
        } else {
            rule.args.chunks(1).collect()
        };
        for number in rule.names.iter().filter_map(|name| number(name)) {
            for arguments in &alternatives {
                self.call(number, arguments, verdict);
            }
        }
        Ok(())
    }

    /// One system call with all of these conditions.
    fn call(&mut self, number: u32, arguments: &[Argument], verdict: u32) {
        let mut body: Vec<Step> = arguments.iter().flat_map(condition).collect();
        body.push(Step::Plain(answer(verdict)));
        let length = body.len();
        // Six arguments of five instructions and the verdict.
        let skip = u8::try_from(length).expect("a rule is at most 31 instructions long");
        self.load_number();
        self.push(jump(libc::BPF_JEQ, number, 0, skip));
        for (at, step) in body.into_iter().enumerate() {
            let to_end =
                u8::try_from(length - at - 1).expect("a rule is at most 31 instructions long");
            self.push(step.resolve(to_end));
        }
        self.has_number &= arguments.is_empty();
    }
}

/// An instruction whose jumps may lead to the end of its rule.
enum Step {
    Plain(sock_filter),
    /// Operation, operand, where to when it holds and when not.
    Jump(u32, u32, To, To),
}

#[derive(Clone, Copy)]
enum To {
    /// So many instructions further.
    Skip(u8),
    /// The condition does not hold.
    End,
}

impl Step {
    fn resolve(self, to_end: u8) -> sock_filter {
        let far = |to: To| match to {
            To::Skip(count) => count,
            To::End => to_end,
        };
        match self {
            Step::Plain(instruction) => instruction,
            Step::Jump(operation, operand, then, otherwise) => {
                jump(operation, operand, far(then), far(otherwise))
            }
        }
    }
}

/// Compares one argument, its upper half first.
fn condition(argument: &Argument) -> Vec<Step> {
    use To::{End, Skip};
    let offset = ARGUMENTS + 8 * u32::from(argument.index);
    let (upper, lower) = (load(offset + 4), load(offset));
    let (high, low) = halves(argument.value);
    let (equal, greater, at_least) = (libc::BPF_JEQ, libc::BPF_JGT, libc::BPF_JGE);
    let plain = Step::Plain;
    match argument.op {
        Operator::Equal => vec![
            plain(upper),
            Step::Jump(equal, high, Skip(0), End),
            plain(lower),
            Step::Jump(equal, low, Skip(0), End),
        ],
        Operator::NotEqual => vec![
            plain(upper),
            Step::Jump(equal, high, Skip(0), Skip(2)),
            plain(lower),
            Step::Jump(equal, low, End, Skip(0)),
        ],
        Operator::Greater | Operator::GreaterOrEqual => {
            let last = if argument.op == Operator::Greater {
                greater
            } else {
                at_least
            };
            vec![
                plain(upper),
                Step::Jump(greater, high, Skip(3), Skip(0)),
                Step::Jump(equal, high, Skip(0), End),
                plain(lower),
                Step::Jump(last, low, Skip(0), End),
            ]
        }
        Operator::Less | Operator::LessOrEqual => {
            let last = if argument.op == Operator::Less {
                at_least
            } else {
                greater
            };
            vec![
                plain(upper),
                Step::Jump(greater, high, End, Skip(0)),
                Step::Jump(equal, high, Skip(0), Skip(2)),
                plain(lower),
                Step::Jump(last, low, End, Skip(0)),
            ]
        }
        Operator::MaskedEqual => masked(argument, upper, lower),
    }
}

fn masked(argument: &Argument, upper: sock_filter, lower: sock_filter) -> Vec<Step> {
    let ((high_mask, low_mask), (high, low)) = (halves(argument.value), halves(argument.value_two));
    vec![
        Step::Plain(upper),
        Step::Plain(instruction(
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            high_mask,
            0,
            0,
        )),
        Step::Jump(libc::BPF_JEQ, high, To::Skip(0), To::End),
        Step::Plain(lower),
        Step::Plain(instruction(
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            low_mask,
            0,
            0,
        )),
        Step::Jump(libc::BPF_JEQ, low, To::Skip(0), To::End),
    ]
}

fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

fn number(name: &str) -> Option<u32> {
    u32::try_from(Sysno::from_str(name).ok()?.id()).ok()
}

fn verdict(action: Action, errno_ret: Option<u16>) -> Result<u32, SeccompError> {
    let data = u32::from(errno_ret.unwrap_or(1));
    match action {
        Action::KillThread => Ok(libc::SECCOMP_RET_KILL_THREAD),
        Action::KillProcess => Ok(libc::SECCOMP_RET_KILL_PROCESS),
        Action::Trap => Ok(libc::SECCOMP_RET_TRAP),
        Action::Errno => Ok(libc::SECCOMP_RET_ERRNO | data),
        Action::Trace => Ok(libc::SECCOMP_RET_TRACE | data),
        Action::Allow => Ok(libc::SECCOMP_RET_ALLOW),
        Action::Log => Ok(libc::SECCOMP_RET_LOG),
        Action::Notify => Err(SeccompError::Unsupported("SCMP_ACT_NOTIFY".to_owned())),
    }
}

fn errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | u32::try_from(number).expect("error numbers are positive")
}

fn flags(names: &[String]) -> Result<libc::c_ulong, SeccompError> {
    names.iter().try_fold(0, |flags, name| {
        let flag = match name.as_str() {
            // There is one thread.
            "SECCOMP_FILTER_FLAG_TSYNC" => 0,
            "SECCOMP_FILTER_FLAG_LOG" => libc::SECCOMP_FILTER_FLAG_LOG,
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            other => return Err(SeccompError::Unsupported(format!("flag {other}"))),
        };
        Ok(flags | flag)
    })
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn answer(verdict: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, verdict, 0, 0)
}

fn jump(operation: u32, operand: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(
        libc::BPF_JMP | operation | libc::BPF_K,
        operand,
        then,
        otherwise,
    )
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = u16::try_from(code).expect("codes are 16 bits");
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests;
