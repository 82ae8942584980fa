//! The program of a simulated container: a few steps, compiled from its command line.
//!
//! [`shell`] cuts a script into words, [`compile`] makes steps of them, [`machine`] carries them out
//! against an [`environment`]. None of them knows a clock: time is an argument.

pub(crate) mod compile;
pub(crate) mod environment;
pub(crate) mod interpreter;
mod shell;
pub(crate) mod signal;

/// The destination of a line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    Stderr,
    Nowhere,
    File { path: Box<str>, append: bool },
}

/// A program's disposition of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Reaction {
    /// Dies of it, if it is a signal to die of.
    Default,
    Ignore,
    /// Goes on at this step.
    Run(u32),
}

/// One step of a program. Steps are addressed by their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramStep {
    Echo {
        text: Box<str>,
        to: Sink,
    },
    /// Writes `line 1` to `line N`, so many nanoseconds apart.
    Lines {
        total: u32,
        every: i64,
    },
    Sleep(i64),
    Forever,
    Status(i32),
    /// Ends with this code, or with the status of the last step.
    Exit(Option<i32>),
    Jump(u32),
    /// Jumps when the status is zero, or when it is not.
    JumpIf {
        success: bool,
        to: u32,
    },
    Trap {
        signals: Box<[u8]>,
        reaction: Reaction,
    },
    /// Sends a signal to the container's first process.
    Kill(u8),
    Cat {
        path: Box<str>,
        to: Sink,
    },
    Touch(Box<str>),
    Remove {
        path: Box<str>,
        force: bool,
    },
    Exists(Box<str>),
}

impl ProgramStep {
    fn takes_time(&self) -> bool {
        matches!(
            self,
            ProgramStep::Sleep(1..) | ProgramStep::Forever | ProgramStep::Exit(_)
        ) || matches!(self, ProgramStep::Lines { every: 1.., .. })
    }

    /// Tells whether carrying it out twice would show.
    fn shows(&self) -> bool {
        !matches!(
            self,
            ProgramStep::Sleep(_)
                | ProgramStep::Status(_)
                | ProgramStep::Jump(_)
                | ProgramStep::Forever
        )
    }

    fn speaks(&self) -> bool {
        matches!(
            self,
            ProgramStep::Lines { .. }
                | ProgramStep::Echo {
                    to: Sink::Stdout | Sink::Stderr,
                    ..
                }
                | ProgramStep::Cat {
                    to: Sink::Stdout | Sink::Stderr,
                    ..
                }
        )
    }
}

/// How a container meets its end, beside what its steps say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramBehavior {
    /// SIGTERM and its like do nothing.
    pub(crate) ignore_term: bool,
    /// Nanoseconds from the signal to the end.
    pub(crate) stop_delay: i64,
    /// The exit code after a signal, in place of 128 and its number.
    pub(crate) term_exit_code: Option<i32>,
    /// The code of its own end, in place of what the steps say.
    pub(crate) exit_code: Option<i32>,
    /// The reason of its own end, in place of Completed or Error.
    pub(crate) exit_reason: Option<Box<str>>,
}

/// A compiled program. It always ends in a step that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) steps: Box<[ProgramStep]>,
    pub(crate) behavior: Option<Box<ProgramBehavior>>,
}

impl Program {
    /// Tells whether it may ever write to its log.
    pub(crate) fn speaks(&self) -> bool {
        self.steps.iter().any(ProgramStep::speaks)
    }
}
