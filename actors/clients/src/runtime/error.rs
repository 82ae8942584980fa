//! Why a call of the runtime failed, and what that means for who called.

use logic_pods::runtime::creation::CreationSetback;
use plugin_host::CallError;
use thiserror::Error;
use tonic::{Code, Status};

/// Why a call of the runtime failed.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The runtime refused the call.
    #[error("{call}: {message}")]
    Refused {
        call: &'static str,
        code: Code,
        message: String,
        reason: RefusalReason,
    },
    /// The call's outcome is unknown: list what exists before repeating it.
    #[error("{call} was interrupted, its outcome is unknown")]
    Interrupted { call: &'static str },
    /// No answer, and the call was not carried out.
    #[error("{call}: no answer from the runtime")]
    Unanswered {
        call: &'static str,
        source: CallError,
    },
    /// A required field of the answer is missing or invalid.
    #[error("{call}: field {field} of the answer: expected {expected}")]
    Malformed {
        call: &'static str,
        field: &'static str,
        expected: &'static str,
    },
    #[error("the event stream ended")]
    EventsEnded,
    #[error("events came faster than they were taken")]
    EventsLost,
}

impl RuntimeError {
    pub(super) fn new(call: &'static str, error: CallError) -> Self {
        match error {
            CallError::Refused(status) => RuntimeError::refused(call, &status),
            CallError::Interrupted { .. } => RuntimeError::Interrupted { call },
            error @ (CallError::Deadline { .. } | CallError::Unavailable { .. }) => {
                RuntimeError::Unanswered {
                    call,
                    source: error,
                }
            }
        }
    }

    pub(super) fn refused(call: &'static str, status: &Status) -> Self {
        RuntimeError::Refused {
            call,
            code: status.code(),
            message: status.message().to_owned(),
            reason: RefusalReason::of(status),
        }
    }

    /// The error and its causes in one line.
    pub fn describe(&self) -> String {
        kernel::error_chain(self)
    }

    /// The runtime's own message, without the name of the call; for other errors as [`describe`](Self::describe).
    pub fn message(&self) -> String {
        match self {
            RuntimeError::Refused { message, .. } => message.clone(),
            RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => self.describe(),
        }
    }

    /// The error in the form of upstream's log and events about images: users search for these texts.
    pub fn as_grpc(&self) -> String {
        match self {
            RuntimeError::Refused {
                code: Code::Unknown,
                message,
                ..
            } => message.clone(),
            RuntimeError::Refused { .. }
            | RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => self.as_grpc_status(),
        }
    }

    /// The error as Go prints a gRPC status: what upstream's events about sandboxes say.
    pub fn as_grpc_status(&self) -> String {
        match self {
            RuntimeError::Refused { code, message, .. } => {
                format!("rpc error: code = {code:?} desc = {message}")
            }
            RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => self.describe(),
        }
    }

    /// The status code of a refusal; none for other errors.
    pub fn code(&self) -> Option<Code> {
        match self {
            RuntimeError::Refused { code, .. } => Some(*code),
            RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    pub fn is_unimplemented(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// Whether the runtime is still cleaning up after an interrupted call, and will accept this one afterwards.
    pub fn is_clearing_up(&self) -> bool {
        match self {
            RuntimeError::Refused { reason, .. } => match reason {
                RefusalReason::NameReserved { .. } | RefusalReason::ContainerStarting => true,
                RefusalReason::Other => false,
            },
            RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => false,
        }
    }

    /// Why a call that creates brought nothing although it, or an earlier one for the same, may have been carried out; none for
    /// any other failure.
    pub fn setback(&self) -> Option<CreationSetback> {
        match self {
            RuntimeError::Interrupted { .. } => Some(CreationSetback::Interrupted),
            RuntimeError::Refused { .. } if self.is_clearing_up() => {
                Some(CreationSetback::Reserved)
            }
            RuntimeError::Refused { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => None,
        }
    }

    /// Whether the call certainly did not reach the plugin: its process ended before.
    pub fn never_left(&self) -> bool {
        match self {
            RuntimeError::Unanswered { source, .. } => {
                matches!(source, CallError::Unavailable { .. })
            }
            RuntimeError::Refused { .. }
            | RuntimeError::Interrupted { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => false,
        }
    }

    /// The id that a refused name is reserved for, where the runtime says it.
    pub fn name_holder(&self) -> Option<&str> {
        match self {
            RuntimeError::Refused {
                reason: RefusalReason::NameReserved { holder },
                ..
            } => holder.as_deref(),
            RuntimeError::Refused { .. }
            | RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => None,
        }
    }

    /// Whether the same call may succeed soon, without any other change.
    pub fn transient(&self) -> bool {
        match self {
            RuntimeError::Refused { code, .. } => {
                matches!(
                    code,
                    Code::Unavailable | Code::ResourceExhausted | Code::Aborted
                )
            }
            RuntimeError::Interrupted { .. }
            | RuntimeError::Unanswered { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => true,
            RuntimeError::Malformed { .. } => false,
        }
    }
}

/// The cause of a refusal, where CRI has no code for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalReason {
    /// The name is reserved by another sandbox or container, or by a creation that was not cleaned up.
    NameReserved {
        /// The id of it, where the runtime says it.
        holder: Option<String>,
    },
    /// The container is being started by another call, or has been.
    ContainerStarting,
    Other,
}

/// How a refusal to start or remove a container says that a start is under way or has been carried out.
const STARTING: [&str; 3] = [
    "in starting state",
    "failed to set starting state",
    "is not in created state",
];

impl RefusalReason {
    /// Runtimes distinguish these by text alone (containerd: registrar.go, container_remove.go, container_start.go; CRI-O:
    /// container_start.go); nothing but this client reads it.
    fn of(status: &Status) -> Self {
        let text = status.message();
        if text.contains("name is reserved") || text.contains("is reserved for") {
            Self::NameReserved {
                holder: quoted_after(text, "is reserved for "),
            }
        } else if STARTING.iter().any(|words| text.contains(words)) {
            Self::ContainerStarting
        } else {
            Self::Other
        }
    }
}

/// The text in quotation marks that follows these words at once.
fn quoted_after(text: &str, words: &str) -> Option<String> {
    let (_, after) = text.split_once(words)?;
    let (quoted, _) = after.strip_prefix('"')?.split_once('"')?;
    Some(quoted.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_while_an_interrupted_call_is_cleared_up_is_known_by_its_type() {
        let name = r#"failed to reserve sandbox name "a": name "a" is reserved for "b""#;
        let starting = r#"container "a" is in starting state, can't be removed"#;
        let started = r#"failed to set starting state for container "a": container is in CONTAINER_RUNNING state"#;
        let reserved = |holder: Option<&str>| RefusalReason::NameReserved {
            holder: holder.map(str::to_owned),
        };
        let cri_o = "error reserving pod name a for id b: name is reserved";
        for (message, reason, clearing_up) in [
            (name, reserved(Some("b")), true),
            (cri_o, reserved(None), true),
            (starting, RefusalReason::ContainerStarting, true),
            (started, RefusalReason::ContainerStarting, true),
            ("no", RefusalReason::Other, false),
        ] {
            let error = RuntimeError::refused("Call", &Status::unknown(message));
            let RuntimeError::Refused { reason: found, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(*found, reason);
            assert_eq!(error.is_clearing_up(), clearing_up);
            let setback = clearing_up.then_some(CreationSetback::Reserved);
            assert_eq!(error.setback(), setback);
            assert_eq!(error.name_holder(), (message == name).then_some("b"));
            assert!(!error.transient());
        }
    }
}
