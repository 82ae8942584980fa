//! Laws of garbage collection: what is not valid goes, everything else stays.

use futures_util::FutureExt;
use proto::network::{AddRequest, Attachment, GcRequest, GcResponse, PrepareGcRequest};
use tonic::Code;

use super::super::{CheckResult, CheckStop, refused, same};
use super::case::{INTERFACE, NetworkCase, OWNER, add, attachment};
use super::{NetworkCheck, Sandbox};

pub(super) const LAWS: &[(&str, NetworkCheck)] = &[
    (
        "attachment that is not valid is collected, a valid one is not",
        |case| stale(case).boxed(),
    ),
    ("attachment of another owner is not collected", |case| {
        foreign(case).boxed()
    }),
    ("attachment made after the mark is not collected", |case| {
        young(case).boxed()
    }),
    (
        "attachment made just now is not collected without a mark",
        |case| unmarked(case).boxed(),
    ),
    (
        "attachment of a network that is not named is not collected",
        |case| unnamed(case).boxed(),
    ),
    ("mark that no plugin made is refused", |case| {
        forged(case).boxed()
    }),
];

async fn mark(case: &mut NetworkCase) -> Result<String, CheckStop> {
    let answer = case.network.prepare_gc(PrepareGcRequest {}).await?;
    Ok(answer.into_inner().mark)
}

/// On the default network, by its name.
fn of_network(case: &NetworkCase, sandbox: &Sandbox) -> Attachment {
    Attachment {
        network: case.target.network.clone(),
        ..attachment(sandbox, INTERFACE)
    }
}

async fn collect(
    case: &mut NetworkCase,
    mark: String,
    valid: &[&Sandbox],
) -> Result<GcResponse, CheckStop> {
    let valid = valid.iter().map(|sandbox| of_network(case, sandbox));
    let request = GcRequest {
        networks: vec![case.target.network.clone()],
        owner: OWNER.to_owned(),
        valid: valid.collect(),
        mark,
        within_ms: 0,
    };
    let answer = case.network.gc(request).await?.into_inner();
    same("failures", &answer.failed, &Vec::new())?;
    Ok(answer)
}

async fn stale(case: &mut NetworkCase) -> CheckResult {
    let (live, dead) = (case.sandbox().await?, case.sandbox().await?);
    case.add(add(&live, INTERFACE)).await?;
    case.add(add(&dead, INTERFACE)).await?;
    case.end(&dead).await?;
    let mark = mark(case).await?;
    let answer = collect(case, mark, &[&live]).await?;
    same("removed", answer.removed, vec![of_network(case, &dead)])?;
    case.attached(&live, INTERFACE, true)?;
    case.attached(&dead, INTERFACE, false)
}

async fn foreign(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let request = AddRequest {
        owner: "another".to_owned(),
        ..add(&sandbox, INTERFACE)
    };
    case.add(request).await?;
    let mark = mark(case).await?;
    let answer = collect(case, mark, &[]).await?;
    same("removed", answer.removed, Vec::new())?;
    case.attached(&sandbox, INTERFACE, true)
}

async fn young(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let mark = mark(case).await?;
    case.add(add(&sandbox, INTERFACE)).await?;
    let answer = collect(case, mark, &[]).await?;
    same("removed", answer.removed, Vec::new())?;
    case.attached(&sandbox, INTERFACE, true)
}

async fn unmarked(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    case.add(add(&sandbox, INTERFACE)).await?;
    collect(case, String::new(), &[]).await?;
    case.attached(&sandbox, INTERFACE, true)
}

async fn unnamed(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    case.add(add(&sandbox, INTERFACE)).await?;
    let mark = mark(case).await?;
    for networks in [vec![], vec!["no-such-network".to_owned()]] {
        let request = GcRequest {
            networks,
            owner: OWNER.to_owned(),
            mark: mark.clone(),
            ..GcRequest::default()
        };
        case.network.gc(request).await?;
        case.attached(&sandbox, INTERFACE, true)?;
    }
    Ok(())
}

async fn forged(case: &mut NetworkCase) -> CheckResult {
    let request = GcRequest {
        networks: vec![case.target.network.clone()],
        owner: OWNER.to_owned(),
        mark: "yesterday".to_owned(),
        ..GcRequest::default()
    };
    let status = refused("a forged mark", case.network.gc(request).await)?;
    same("code", status.code(), Code::InvalidArgument)
}
