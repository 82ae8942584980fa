//! Laws of the runtime as a whole.

use futures_util::FutureExt;
use proto::cri::{StatusRequest, VersionRequest};

use super::super::{CheckResult, CheckStop, holds, same};
use super::RuntimeCheck;
use super::case::RuntimeCase;

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    ("Version names the runtime and speaks CRI v1", |case| {
        version(case).boxed()
    }),
    (
        "Status reports a ready runtime and a ready network",
        |case| status(case).boxed(),
    ),
];

async fn version(case: &mut RuntimeCase) -> CheckResult {
    let answer = case
        .runtime
        .version(VersionRequest {
            version: "v1".to_owned(),
        })
        .await?
        .into_inner();
    same(
        "runtime_api_version",
        answer.runtime_api_version.as_str(),
        "v1",
    )?;
    holds(!answer.runtime_name.is_empty(), || {
        "runtime_name is empty".to_owned()
    })?;
    holds(!answer.runtime_version.is_empty(), || {
        "runtime_version is empty".to_owned()
    })
}

async fn status(case: &mut RuntimeCase) -> CheckResult {
    let answer = case
        .runtime
        .status(StatusRequest { verbose: false })
        .await?
        .into_inner();
    let conditions = answer
        .status
        .map(|status| status.conditions)
        .unwrap_or_default();
    for wanted in ["RuntimeReady", "NetworkReady"] {
        let found = conditions
            .iter()
            .find(|condition| condition.r#type == wanted);
        let found =
            found.ok_or_else(|| CheckStop::Broken(format!("there is no condition {wanted}")))?;
        holds(found.status, || {
            format!("{wanted} is false: {} {}", found.reason, found.message)
        })?;
    }
    Ok(())
}
