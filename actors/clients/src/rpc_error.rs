//! Error statuses in the words of Go's gRPC, which users search for.

use tonic::Code;

/// The code's name, as Go has it.
pub(crate) fn code_name(code: Code) -> String {
    match code == Code::Cancelled {
        true => "Canceled".to_owned(),
        false => format!("{code:?}"),
    }
}

/// An error status as Go's gRPC prints it.
pub(crate) fn rpc_error_text(code: Code, message: &str) -> String {
    format!("rpc error: code = {} desc = {message}", code_name(code))
}
