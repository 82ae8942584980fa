//! The status of a command: as the runtime writes it, and as the caller gets it.
//!
//! Upstream: client-go tools/remotecommand/v4.go, apiserver pkg/util/proxy/streamtranslator.go (1.36).

use serde::Deserialize;
use serde_json::{Value, json};

const NON_ZERO: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// The content of a runtime's error stream.
#[derive(Deserialize)]
struct CommandStatus {
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<StatusCause>,
}

#[derive(Deserialize)]
struct StatusCause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Returns the `v1 Status` that the caller gets, from what the runtime wrote.
pub(super) fn command_status(wrote: &[u8]) -> Value {
    if wrote.is_empty() {
        return success();
    }
    let status: CommandStatus = match serde_json::from_slice(wrote) {
        Ok(status) => status,
        Err(error) => {
            let wrote = String::from_utf8_lossy(wrote);
            return failure(&format!(
                "error stream protocol error: {error} in {wrote:?}"
            ));
        }
    };
    match (status.status.as_str(), status.reason.as_str()) {
        ("Success", _) => success(),
        ("Failure", NON_ZERO) => match code(status.details) {
            Ok(code) => exited(code),
            Err(why) => failure(&format!("error stream protocol error: {why}")),
        },
        ("Failure", _) => failure(&status.message),
        _ => failure("error stream protocol error: unknown error"),
    }
}

fn code(details: Option<Details>) -> Result<u8, String> {
    let details = details.ok_or("details must be set")?;
    let mut causes = details.causes.into_iter();
    let cause = causes.find(|cause| cause.reason == EXIT_CODE);
    let cause = cause.ok_or(format!("no {EXIT_CODE} cause given"))?;
    let code = cause.message.parse();
    code.map_err(|_| format!("invalid exit code value {:?}", cause.message))
}

fn success() -> Value {
    json!({ "metadata": {}, "status": "Success" })
}

/// The status of a failure that is not the command's.
pub(super) fn failure(why: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {why}"),
        "reason": "InternalError",
        "details": { "causes": [{ "message": why }] },
        "code": 500,
    })
}

fn exited(code: u8) -> Value {
    let message = format!(
        "command terminated with non-zero exit code: command terminated with exit code {code}"
    );
    json!({
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": NON_ZERO,
        "details": { "causes": [{ "reason": EXIT_CODE, "message": code.to_string() }] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestV4ErrorDecoder and TestStreamTranslator_* of exit codes.
    #[test]
    fn caller_is_told_how_the_command_ended() {
        let cases = [
            ("", "Success", ""),
            (r#"{"metadata":{},"status":"Success"}"#, "Success", ""),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"X","message":"1"},{"reason":"ExitCode","message":"7"}]},"message":"m"}"#,
                "NonZeroExitCode",
                "command terminated with non-zero exit code: command terminated with exit code 7",
            ),
            (
                r#"{"status":"Failure","reason":"InternalError","message":"no such container"}"#,
                "InternalError",
                "Internal error occurred: no such container",
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                "InternalError",
                "Internal error occurred: error stream protocol error: details must be set",
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{}}"#,
                "InternalError",
                "Internal error occurred: error stream protocol error: no ExitCode cause given",
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#,
                "InternalError",
                "Internal error occurred: error stream protocol error: invalid exit code value \"x\"",
            ),
            (
                r#"{"status":"What"}"#,
                "InternalError",
                "Internal error occurred: error stream protocol error: unknown error",
            ),
        ];
        for (wrote, reason, message) in cases {
            let told = command_status(wrote.as_bytes());
            let found = (told["reason"].as_str(), told["message"].as_str());
            match reason {
                "Success" => assert_eq!(told["status"], "Success", "{wrote}"),
                _ => assert_eq!(found, (Some(reason), Some(message)), "{wrote}"),
            }
        }
        assert_eq!(command_status(b"no JSON")["reason"], "InternalError");
        let seven = exited(7);
        assert_eq!(seven["details"]["causes"][0]["message"], "7");
    }
}
