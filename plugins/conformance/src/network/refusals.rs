//! Laws of refusals: what makes no sense is refused, and changes nothing.

use futures_util::FutureExt;
use proto::network::{AddRequest, Attachment, Capabilities, GcRequest, PortMapping};
use tonic::Code;

use super::super::{CheckResult, refused, same};
use super::NetworkCheck;
use super::case::{INTERFACE, NetworkCase, add};

pub(super) const LAWS: &[(&str, NetworkCheck)] = &[
    (
        "request that makes no sense is refused, and makes nothing",
        |case| senseless(case).boxed(),
    ),
    ("network that is not there is refused by its name", |case| {
        missing(case).boxed()
    }),
    (
        "identity that cannot be one is refused by every call",
        |case| identity(case).boxed(),
    ),
];

async fn senseless(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let good = add(&sandbox, INTERFACE);
    let netns = |netns: &str| AddRequest {
        netns: netns.to_owned(),
        ..good.clone()
    };
    let with = |edit: &dyn Fn(&mut AddRequest)| {
        let mut request = good.clone();
        edit(&mut request);
        request
    };
    let requests = [
        ("no attachment", with(&|request| request.attachment = None)),
        ("no namespace", netns("")),
        ("a relative namespace", netns("run/netns/x")),
        ("a missing namespace", netns("/run/netns/no-such-one")),
        ("a namespace that is a folder", netns("/tmp")),
        ("the node's own namespace", netns("/proc/self/ns/net")),
        ("no owner", with(&|request| request.owner.clear())),
        (
            "an argument with ';'",
            with(&|request| drop(request.cni_args.insert("A".to_owned(), "1;B=2".to_owned()))),
        ),
        (
            "a version of the future",
            with(&|request| request.result_version = "9.9.9".to_owned()),
        ),
        (
            "a port too large",
            with(&|request| request.capabilities = Some(port(70_000))),
        ),
        (
            "a port of zero",
            with(&|request| request.capabilities = Some(port(0))),
        ),
    ];
    for (words, request) in requests {
        let status = refused(words, case.network.add(request).await)?;
        same(words, status.code(), Code::InvalidArgument)?;
        case.attached(&sandbox, INTERFACE, false)?;
    }
    Ok(())
}

fn port(host_port: u32) -> Capabilities {
    let mapping = PortMapping {
        host_port,
        container_port: 80,
        protocol: "tcp".to_owned(),
        host_ip: String::new(),
    };
    Capabilities {
        port_mappings: vec![mapping],
        ..Capabilities::default()
    }
}

async fn missing(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let mut request = add(&sandbox, INTERFACE);
    request.attachment.get_or_insert_default().network = "no-such-network".to_owned();
    let status = refused("an unknown network", case.network.add(request).await)?;
    same("code", status.code(), Code::NotFound)?;
    same("named", status.message().contains("no-such-network"), true)
}

async fn identity(case: &mut NetworkCase) -> CheckResult {
    let sandbox = case.sandbox().await?;
    let long = "a".repeat(300);
    for (sandbox_id, network, interface) in [
        ("", "", INTERFACE),
        ("../../etc/passwd", "", INTERFACE),
        ("-a", "", INTERFACE),
        (long.as_str(), "", INTERFACE),
        ("a", "../net", INTERFACE),
        ("a", "", "an/interface"),
        ("a", "", "a-name-that-is-too-long"),
        ("a", "", ".."),
    ] {
        let attachment = Attachment {
            sandbox_id: sandbox_id.to_owned(),
            network: network.to_owned(),
            interface_name: interface.to_owned(),
        };
        let words = format!("{attachment:?}");
        let request = AddRequest {
            attachment: Some(attachment.clone()),
            ..add(&sandbox, INTERFACE)
        };
        let mut codes = vec![refused(&words, case.network.add(request).await)?.code()];
        let request = proto::network::DeleteRequest {
            attachment: Some(attachment.clone()),
            ..Default::default()
        };
        codes.push(refused(&words, case.network.delete(request).await)?.code());
        let request = proto::network::CheckRequest {
            attachment: Some(attachment.clone()),
            ..Default::default()
        };
        codes.push(refused(&words, case.network.check(request).await)?.code());
        let request = GcRequest {
            owner: "a".to_owned(),
            valid: vec![attachment],
            ..GcRequest::default()
        };
        codes.push(refused(&words, case.network.gc(request).await)?.code());
        same(&words, codes, vec![Code::InvalidArgument; 4])?;
    }
    Ok(())
}
