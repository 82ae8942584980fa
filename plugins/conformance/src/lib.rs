//! One suite a kind: what every plugin of that kind must keep, whatever is behind it.
//!
//! A suite is a list of laws. Each is checked by itself over real gRPC, against a clock that runs,
//! and leaves nothing behind.

pub mod network;
pub mod runtime;
pub mod storage;

use std::fmt;
use std::time::Duration;

/// The longest that one check may take, on the slowest machine that we have seen.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// The outcome of every law of a suite.
#[derive(Debug)]
pub struct Report {
    /// In the order in which they were checked.
    pub laws: Vec<Law>,
}

/// A law of the contract, and its outcome.
#[derive(Debug)]
pub struct Law {
    /// The law, a sentence.
    pub words: &'static str,
    /// Its outcome on the target.
    pub outcome: Outcome,
}

/// The outcome of checking a law.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target keeps it.
    Kept,
    /// The target breaks it: what was seen, and what was expected.
    Broken(String),
    /// Not checked, for this reason: the target lacks the ability.
    Skipped(&'static str),
}

impl Report {
    /// Returns the laws that were not kept.
    pub fn broken(&self) -> impl Iterator<Item = &Law> {
        self.laws
            .iter()
            .filter(|law| matches!(law.outcome, Outcome::Broken(_)))
    }

    /// Panics with the whole report if a law was not kept: the last line of a contract test.
    pub fn assert_kept(&self) {
        let broken = self.broken().count();
        assert!(
            broken == 0,
            "{broken} of {} laws are broken:\n{self}",
            self.laws.len()
        );
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.laws.iter().try_for_each(|law| match &law.outcome {
            Outcome::Kept => writeln!(f, "kept     {}", law.words),
            Outcome::Broken(why) => writeln!(f, "BROKEN   {}: {why}", law.words),
            Outcome::Skipped(why) => writeln!(f, "skipped  {}: {why}", law.words),
        })
    }
}

/// Why a check ended early.
#[derive(Debug)]
enum CheckStop {
    Broken(String),
    Skipped(&'static str),
}

impl From<tonic::Status> for CheckStop {
    fn from(status: tonic::Status) -> Self {
        Self::Broken(format!(
            "unexpected {:?}: {}",
            status.code(),
            status.message()
        ))
    }
}

impl From<std::io::Error> for CheckStop {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

type CheckResult = Result<(), CheckStop>;

/// Runs one check within its time.
async fn check(words: &'static str, body: impl Future<Output = CheckResult>) -> Law {
    let outcome = match tokio::time::timeout(CHECK_TIMEOUT, body).await {
        Ok(Ok(())) => Outcome::Kept,
        Ok(Err(CheckStop::Broken(why))) => Outcome::Broken(why),
        Ok(Err(CheckStop::Skipped(why))) => Outcome::Skipped(why),
        Err(_) => Outcome::Broken(format!("not done after {CHECK_TIMEOUT:?}")),
    };
    Law { words, outcome }
}

/// Breaks the law unless two values are the same.
fn same<T: PartialEq + fmt::Debug>(what: &str, seen: T, expected: T) -> CheckResult {
    if seen == expected {
        Ok(())
    } else {
        Err(CheckStop::Broken(format!(
            "{what} is {seen:?}, expected {expected:?}"
        )))
    }
}

/// Breaks the law unless `kept`.
fn holds(kept: bool, otherwise: impl FnOnce() -> String) -> CheckResult {
    if kept {
        Ok(())
    } else {
        Err(CheckStop::Broken(otherwise()))
    }
}

/// Breaks the law unless the call was refused; returns how.
fn refused<T>(
    what: &str,
    answer: Result<tonic::Response<T>, tonic::Status>,
) -> Result<tonic::Status, CheckStop> {
    match answer {
        Ok(_) => Err(CheckStop::Broken(format!(
            "{what} was accepted, expected a refusal"
        ))),
        Err(status) => {
            holds(!status.message().is_empty(), || {
                format!("{what} was refused without a word ({:?})", status.code())
            })?;
            Ok(status)
        }
    }
}

/// Accepts both answers to a call that is to stop a container that is gone: newer runtimes are
/// content, older ones say NotFound.
fn gone<T>(answer: Result<T, tonic::Status>) -> CheckResult {
    match answer {
        Err(status) if status.code() != tonic::Code::NotFound => Err(status.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}
