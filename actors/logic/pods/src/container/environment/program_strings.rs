//! The kernel's bounds on the strings that a program starts with: its arguments and its environment.
//!
//! A container beyond them cannot start (`E2BIG` of execve), so they bound what is made of a definition as well.

use thiserror::Error;

/// Bytes of one string with its NUL, as the kernel's constant of that name: 32 pages.
pub const MAX_ARG_STRLEN: usize = 32 * 4096;
/// Bytes of all strings with their NULs and pointers: the kernel takes a quarter of `RLIMIT_STACK`, which is 8 MiB
/// wherever nobody raised it.
pub const MAX_ARG_BYTES: usize = 2 << 20;
/// Of a string, in the program's `argv` or `envp`.
const POINTER_BYTES: usize = 8;

/// A string that no program can be started with, or one string too many.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} too long: reached {reached} bytes, at most {max} can be passed to a program")]
pub struct TooLong {
    /// Which string, or which string of all: `environment variable "A" is`.
    pub what: String,
    /// Bytes; what is beyond them was not computed.
    pub reached: usize,
    /// Bytes.
    pub max: usize,
}

/// Counts the strings of one program.
#[derive(Debug, Default)]
pub struct ProgramStrings {
    bytes: usize,
}

impl ProgramStrings {
    /// Adds `NAME=VALUE`.
    ///
    /// # Errors
    /// [`TooLong`] for this variable alone, or with all that were added before.
    pub fn add_variable(&mut self, name: &str, value: &str) -> Result<(), TooLong> {
        self.add(variable_bytes(name, value), || {
            format!("environment variable {name:?}")
        })
    }

    /// Takes a variable away that was added before.
    pub fn remove_variable(&mut self, name: &str, value: &str) {
        let bytes = variable_bytes(name, value) + POINTER_BYTES;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Adds an argument; `what` names it.
    ///
    /// # Errors
    /// As for a variable.
    pub fn add_argument(
        &mut self,
        word: &str,
        what: impl FnOnce() -> String,
    ) -> Result<(), TooLong> {
        self.add(word.len() + 1, what)
    }

    fn add(&mut self, bytes: usize, what: impl FnOnce() -> String) -> Result<(), TooLong> {
        if bytes > MAX_ARG_STRLEN {
            return Err(TooLong {
                what: format!("{} is", what()),
                reached: bytes,
                max: MAX_ARG_STRLEN,
            });
        }
        let reached = self.bytes + bytes + POINTER_BYTES;
        if reached > MAX_ARG_BYTES {
            return Err(TooLong {
                what: format!("environment and arguments up to {} are", what()),
                reached,
                max: MAX_ARG_BYTES,
            });
        }
        self.bytes = reached;
        Ok(())
    }
}

/// With the sign between them and the NUL.
fn variable_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}
