//! Laws of attachments: made, told again, checked, taken away.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use futures_util::future::join_all;
use proto::network::{AddRequest, CheckRequest, DeleteRequest};
use tonic::Code;

use super::super::{CheckResult, holds, refused, same};
use super::NetworkCheck;
use super::case::{INTERFACE, NetworkCase, add, addresses, attachment, delete, loopback_is_up};

pub(super) const LAWS: &[(&str, NetworkCheck)] = &[
    ("attachment is made with an address", |case| {
        made(case).boxed()
    }),
    ("sandbox's loopback interface is up", |case| {
        loopback(case).boxed()
    }),
    (
        "attachment that is there is told again, and not made again",
        |case| again(case).boxed(),
    ),
    ("result is told in the version that is asked for", |case| {
        versions(case).boxed()
    }),
    (
        "attachment that is taken away is gone, and may be taken away again",
        |case| taken(case).boxed(),
    ),
    ("what was never there is taken away with success", |case| {
        unknown(case).boxed()
    }),
    (
        "attachment is taken away although its namespace is gone",
        |case| homeless(case).boxed(),
    ),
    (
        "attachment is taken away without a word about network, pod and namespace",
        |case| tacit(case).boxed(),
    ),
    (
        "attachment is taken away with the configuration that was told of it",
        |case| kept(case).boxed(),
    ),
    (
        "interfaces of one sandbox are attachments of their own",
        |case| interfaces(case).boxed(),
    ),
    (
        "attachment that is there passes its check, one that is not does not",
        |case| checked(case).boxed(),
    ),
    (
        "sandboxes at the same time get addresses of their own",
        |case| together(case).boxed(),
    ),
    (
        "one attachment by many calls at once is made once",
        |case| at_once(case).boxed(),
    ),
    (
        "attachment made and taken away at once ends as either",
        |case| mixed(case).boxed(),
    ),
];

const MANY: usize = 6;

async fn made(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let answer = case.add(add(&sandbox, INTERFACE)).await?;
    addresses(&answer)?;
    same(
        "network",
        answer.network.as_str(),
        case.target.network.as_str(),
    )?;
    holds(!answer.configuration_json.is_empty(), || {
        "no configuration is told".to_owned()
    })?;
    case.attached(&sandbox, INTERFACE, true)
}

async fn loopback(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    holds(!loopback_is_up(&sandbox).await?, || {
        "it is up before".to_owned()
    })?;
    case.add(add(&sandbox, INTERFACE)).await?;
    holds(loopback_is_up(&sandbox).await?, || "it is down".to_owned())
}

async fn again(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let first = case.add(add(&sandbox, INTERFACE)).await?;
    let second = case.add(add(&sandbox, INTERFACE)).await?;
    same("answer", &second, &first)
}

async fn versions(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    for (version, has_version) in [("0.4.0", true), ("1.0.0", false), ("1.1.0", false)] {
        let request = AddRequest {
            result_version: version.to_owned(),
            ..add(&sandbox, INTERFACE)
        };
        let answer = case.add(request).await?;
        let json = String::from_utf8_lossy(&answer.result.unwrap_or_default().json).into_owned();
        holds(
            json.contains(&format!("\"cniVersion\":\"{version}\"")),
            || json.clone(),
        )?;
        holds(json.contains("\"version\":\"4\"") == has_version, || {
            json.clone()
        })?;
    }
    Ok(())
}

async fn taken(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    case.add(add(&sandbox, INTERFACE)).await?;
    case.delete(&sandbox, INTERFACE).await?;
    case.attached(&sandbox, INTERFACE, false)?;
    case.delete(&sandbox, INTERFACE).await?;
    case.add(add(&sandbox, INTERFACE)).await?;
    case.attached(&sandbox, INTERFACE, true)
}

async fn unknown(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    case.delete(&sandbox, INTERFACE).await?;
    for network in [case.target.network.clone(), "no-such-network".to_owned()] {
        let mut request = delete(&sandbox, INTERFACE);
        request.attachment.get_or_insert_default().network = network;
        case.network.delete(request).await?;
    }
    Ok(())
}

async fn homeless(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let first = addresses(&case.add(add(&sandbox, INTERFACE)).await?)?;
    case.end(&sandbox).await?;
    case.delete(&sandbox, INTERFACE).await?;
    case.attached(&sandbox, INTERFACE, false)?;
    holds(!first.is_empty(), || "no address".to_owned())
}

async fn tacit(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    case.add(add(&sandbox, INTERFACE)).await?;
    let request = DeleteRequest {
        attachment: Some(attachment(&sandbox, INTERFACE)),
        ..DeleteRequest::default()
    };
    case.network.delete(request).await?;
    case.attached(&sandbox, INTERFACE, false)
}

async fn kept(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let answer = case.add(add(&sandbox, INTERFACE)).await?;
    let request = DeleteRequest {
        configuration_json: answer.configuration_json,
        ..delete(&sandbox, INTERFACE)
    };
    case.network.delete(request.clone()).await?;
    case.attached(&sandbox, INTERFACE, false)?;
    case.network.delete(request).await?;
    Ok(())
}

async fn interfaces(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let first = addresses(&case.add(add(&sandbox, INTERFACE)).await?)?;
    let second = addresses(&case.add(add(&sandbox, "net1")).await?)?;
    holds(first != second, || format!("both have {first:?}"))?;
    case.delete(&sandbox, INTERFACE).await?;
    case.attached(&sandbox, INTERFACE, false)?;
    case.attached(&sandbox, "net1", true)
}

async fn checked(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let request = CheckRequest {
        attachment: Some(attachment(&sandbox, INTERFACE)),
        netns: sandbox.netns.clone(),
        ..CheckRequest::default()
    };
    let status = refused("check", case.network.check(request.clone()).await)?;
    same("code", status.code(), Code::FailedPrecondition)?;
    case.add(add(&sandbox, INTERFACE)).await?;
    case.network.check(request).await?;
    Ok(())
}

async fn together(case: &mut NetworkCase) -> CheckResult {
    let mut calls = Vec::new();
    for _ in 0..MANY {
        let (mut network, sandbox) = (case.network.clone(), case.sandbox().await?);
        calls.push(async move { network.add(add(&sandbox, INTERFACE)).await });
    }
    let mut seen = BTreeSet::new();
    for answer in join_all(calls).await {
        for address in addresses(&answer?.into_inner())? {
            holds(seen.insert(address.clone()), || {
                format!("{address} is given twice")
            })?;
        }
    }
    Ok(())
}

async fn at_once(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let calls = (0..MANY).map(|_| {
        let (mut network, request) = (case.network.clone(), add(&sandbox, INTERFACE));
        async move { network.add(request).await }
    });
    let mut seen = BTreeSet::new();
    for answer in join_all(calls.collect::<Vec<_>>()).await {
        seen.insert(addresses(&answer?.into_inner())?);
    }
    same("number of different answers", seen.len(), 1)
}

async fn mixed(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let (mut adding, mut deleting) = (case.network.clone(), case.network.clone());
    let (added, deleted) = tokio::join!(
        adding.add(add(&sandbox, INTERFACE)),
        deleting.delete(delete(&sandbox, INTERFACE))
    );
    added?;
    deleted?;
    case.delete(&sandbox, INTERFACE).await?;
    case.attached(&sandbox, INTERFACE, false)
}
