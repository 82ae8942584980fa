//! Laws of readiness.

use futures_util::FutureExt;
use proto::network::StatusRequest;

use super::super::{CheckResult, CheckStop, holds, same};
use super::NetworkCheck;
use super::case::NetworkCase;

pub(super) const LAWS: &[(&str, NetworkCheck)] = &[
    ("default network is told first, and ready", |case| {
        default(case).boxed()
    }),
    ("network that is not known is told, and not ready", |case| {
        unknown(case).boxed()
    }),
];

async fn first(
    case: &mut NetworkCase,
    network: &str,
) -> Result<proto::network::NetworkStatus, CheckStop> {
    let request = StatusRequest {
        network: network.to_owned(),
        within_ms: 0,
    };
    let answer = case.network.status(request).await?.into_inner();
    let first = answer.networks.into_iter().next();
    first.ok_or_else(|| CheckStop::Broken("no network is told".to_owned()))
}

async fn default(case: &mut NetworkCase) -> CheckResult {
    let name = case.target.network.clone();
    for asked in ["", name.as_str()] {
        let status = first(case, asked).await?;
        same("name", status.name.as_str(), name.as_str())?;
        holds(status.ready, || status.message.clone())?;
    }
    Ok(())
}

async fn unknown(case: &mut NetworkCase) -> CheckResult {
    let status = first(case, "no-such-network").await?;
    same("ready", status.ready, false)?;
    same("reason", status.reason.as_str(), "NetworkPluginNotReady")?;
    holds(!status.message.is_empty(), || "no message".to_owned())
}
