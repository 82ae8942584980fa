//! Rules are compiled: one straight chain of comparisons, forward jumps only.
//!
//! The last rule that fits decides, for each kind of access by itself; without one a device is not to be had. A rule
//! about all devices decides on everything, as cgroup v1 reads it. Where v1 and runc refuse a rule that cuts a hole
//! into a wider one, this does what it says.

use crate::devices::rule::{DeviceRule, default_rules};

/// More rules than these are none: the chain stays far below the kernel's bound of a million instructions.
const MAX_RULES: usize = 4096;

/// `BPF_DEVCG_DEV_*` and `BPF_DEVCG_ACC_*` (linux/bpf.h): what `struct bpf_cgroup_dev_ctx` says.
const BLOCK: i32 = 1;
const CHAR: i32 = 2;
const MKNOD: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;
const ALL: i32 = MKNOD | READ | WRITE;

/// Instructions that are used (linux/bpf.h): class, operation and source of the operand.
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const AND: u8 = 0x54;
pub(crate) const SHIFT_RIGHT: u8 = 0x74;
pub(crate) const MOVE: u8 = 0xb4;
pub(crate) const MOVE_REGISTER: u8 = 0xbc;
pub(crate) const JUMP_NOT_EQUAL: u8 = 0x56;
pub(crate) const JUMP_EQUAL: u8 = 0x16;
pub(crate) const EXIT: u8 = 0x95;

/// The verdict, which is also a register to compute in.
const VERDICT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
/// The kinds of access that no rule has decided on yet.
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// `struct bpf_insn`: operation, registers (source in the upper half), offset, operand.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) operand: i32,
}

/// Compiled rules.
#[derive(Clone)]
pub struct DeviceFilter {
    pub(crate) instructions: Vec<Instruction>,
}

impl std::fmt::Debug for DeviceFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "DeviceFilter of {} instructions",
            self.instructions.len()
        )
    }
}

/// Why rules cannot be enforced; nothing of them is then.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("linux.resources.devices[{0}].type: {1:?} is none of a, b, c")]
    Kind(usize, String),
    #[error("linux.resources.devices[{0}].access: {1:?} is not made of r, w, m")]
    Access(usize, String),
    #[error("linux.resources.devices[{0}]: {1} is no device number")]
    Number(usize, i64),
    #[error("linux.resources.devices: {0} rules, at most {MAX_RULES} are taken")]
    TooMany(usize),
}

impl DeviceFilter {
    /// Compiles the rules of a spec, and after them those that every container has.
    pub fn compile(rules: &[DeviceRule]) -> Result<DeviceFilter, DeviceError> {
        if rules.len() > MAX_RULES {
            return Err(DeviceError::TooMany(rules.len()));
        }
        let mut instructions = prologue();
        let rules: Vec<DeviceRule> = rules.iter().cloned().chain(default_rules()).collect();
        // The last rule goes first: what it decides on, no other does.
        for (at, rule) in rules.iter().enumerate().rev() {
            let decision = Decision::of(at, rule)?;
            instructions.extend(decision.instructions());
            if decision.kind.is_none() {
                return Ok(DeviceFilter { instructions });
            }
        }
        instructions.extend(verdict(false));
        Ok(DeviceFilter { instructions })
    }
}

/// A rule in the kernel's numbers.
struct Decision {
    allow: bool,
    /// None: all devices, all access.
    kind: Option<i32>,
    major: Option<i32>,
    minor: Option<i32>,
    access: i32,
}

impl Decision {
    fn of(at: usize, rule: &DeviceRule) -> Result<Decision, DeviceError> {
        let kind = match rule.kind.as_deref().unwrap_or("a") {
            "" | "a" => None,
            "b" => Some(BLOCK),
            "c" => Some(CHAR),
            other => return Err(DeviceError::Kind(at, other.to_owned())),
        };
        let written = rule.access.as_deref().unwrap_or_default();
        let mut access = if written.is_empty() { ALL } else { 0 };
        for letter in written.chars() {
            access |= match letter {
                'r' => READ,
                'w' => WRITE,
                'm' => MKNOD,
                _ => return Err(DeviceError::Access(at, written.to_owned())),
            };
        }
        let number = |number: Option<i64>| match number {
            None | Some(-1) => Ok(None),
            Some(number) => u32::try_from(number)
                .map(|number| Some(number.cast_signed()))
                .map_err(|_| DeviceError::Number(at, number)),
        };
        Ok(Decision {
            allow: rule.allow,
            kind,
            major: number(rule.major)?,
            minor: number(rule.minor)?,
            access,
        })
    }

    /// The comparisons, each of which leads past the end where it does not hold, and what the rule says.
    fn instructions(&self) -> Vec<Instruction> {
        let Some(kind) = self.kind else {
            return verdict(self.allow).to_vec();
        };
        let mut body = Vec::new();
        let fits = [(KIND, Some(kind)), (MAJOR, self.major), (MINOR, self.minor)];
        for (register, wanted) in fits {
            body.extend(wanted.map(|wanted| instruction(JUMP_NOT_EQUAL, register, wanted)));
        }
        if self.allow {
            // What is allowed needs no further rule; something has to be left for the rest to decide on.
            body.push(instruction(AND, ACCESS, ALL & !self.access));
            body.push(instruction(JUMP_NOT_EQUAL, ACCESS, 0));
        } else {
            body.push(registers(MOVE_REGISTER, VERDICT, ACCESS, 0));
            body.push(instruction(AND, VERDICT, self.access));
            body.push(instruction(JUMP_EQUAL, VERDICT, 0));
        }
        body.extend(verdict(self.allow));
        let length = body.len();
        for (at, instruction) in body.iter_mut().enumerate() {
            if matches!(instruction.code, JUMP_NOT_EQUAL | JUMP_EQUAL) {
                let to_end = length - at - 1;
                instruction.offset = i16::try_from(to_end).expect("a rule is 8 instructions long");
            }
        }
        body
    }
}

/// Reads what is asked for: kind and access share a word, the kind in its lower half.
fn prologue() -> Vec<Instruction> {
    vec![
        registers(LOAD_WORD, KIND, CONTEXT, 0),
        registers(MOVE_REGISTER, ACCESS, KIND, 0),
        instruction(AND, KIND, 0xffff),
        instruction(SHIFT_RIGHT, ACCESS, 16),
        registers(LOAD_WORD, MAJOR, CONTEXT, 4),
        registers(LOAD_WORD, MINOR, CONTEXT, 8),
    ]
}

fn verdict(allow: bool) -> [Instruction; 2] {
    [
        instruction(MOVE, VERDICT, i32::from(allow)),
        instruction(EXIT, 0, 0),
    ]
}

fn instruction(code: u8, register: u8, operand: i32) -> Instruction {
    Instruction {
        code,
        registers: register,
        offset: 0,
        operand,
    }
}

fn registers(code: u8, to: u8, from: u8, offset: i16) -> Instruction {
    Instruction {
        code,
        registers: to | from << 4,
        offset,
        operand: 0,
    }
}

#[cfg(test)]
mod tests;
