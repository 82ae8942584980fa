//! The test case of one law: a client, sandboxes with unique names, and the cleanup.

use std::hash::{BuildHasher, RandomState};
use std::io;

use proto::network::network_client::NetworkClient;
use proto::network::{AddRequest, AddResponse, Attachment, DeleteRequest, Pod};
use tokio::process::Command;
use tonic::Status;
use tonic::transport::Channel;

use super::super::{CheckResult, CheckStop, holds};
use super::{Sandbox, Target};

pub(super) const OWNER: &str = "conformance";
pub(super) const INTERFACE: &str = "eth0";

pub(super) struct NetworkCase {
    pub(super) target: Target,
    pub(super) network: NetworkClient<Channel>,
    /// Unlike that of any other check, here or in another process.
    name: String,
    sandboxes: Vec<Sandbox>,
}

impl NetworkCase {
    pub(super) fn new(target: Target) -> Self {
        let network = NetworkClient::new(target.channel.clone())
            .max_decoding_message_size(sdk::MESSAGE_LIMIT);
        let random = RandomState::new().hash_one(0);
        Self {
            target,
            network,
            name: format!("cn{:08x}", random & 0xffff_ffff),
            sandboxes: Vec::new(),
        }
    }

    /// Makes a sandbox with a namespace of its own.
    pub(super) async fn sandbox(&mut self) -> Result<Sandbox, CheckStop> {
        let name = format!("{}-{}", self.name, self.sandboxes.len());
        let sandbox = Sandbox {
            id: format!("{name}-sandbox"),
            netns: format!("/run/netns/{name}"),
            name,
        };
        ip(&["netns", "add", &sandbox.name]).await?;
        self.sandboxes.push(sandbox.clone());
        Ok(sandbox)
    }

    /// Takes a sandbox's namespace away.
    pub(super) async fn end(&self, sandbox: &Sandbox) -> CheckResult {
        Ok(ip(&["netns", "delete", &sandbox.name]).await?)
    }

    /// Makes an attachment on the default network.
    pub(super) async fn add(&mut self, request: AddRequest) -> Result<AddResponse, Status> {
        Ok(self.network.add(request).await?.into_inner())
    }

    pub(super) async fn delete(
        &mut self,
        sandbox: &Sandbox,
        interface: &str,
    ) -> Result<(), Status> {
        self.network
            .delete(delete(sandbox, interface))
            .await
            .map(drop)
    }

    /// Breaks the law unless the backend has the attachment, or has it not.
    pub(super) fn attached(
        &self,
        sandbox: &Sandbox,
        interface: &str,
        expected: bool,
    ) -> CheckResult {
        let attached = (self.target.attached)(sandbox, interface);
        holds(attached == expected, || {
            let what = if attached { "is there" } else { "is not there" };
            format!("{interface} of {} {what}", sandbox.id)
        })
    }

    pub(super) async fn clean_up(mut self) {
        for sandbox in std::mem::take(&mut self.sandboxes) {
            for interface in [INTERFACE, "net1"] {
                if let Err(status) = self.delete(&sandbox, interface).await {
                    tracing::warn!("{}: {}", sandbox.id, status.message());
                }
            }
            drop(ip(&["netns", "delete", &sandbox.name]).await);
        }
    }
}

async fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output().await?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(io::Error::other(format!(
                "ip {}: {words}",
                arguments.join(" ")
            )))
        }
    }
}

pub(super) fn attachment(sandbox: &Sandbox, interface: &str) -> Attachment {
    Attachment {
        sandbox_id: sandbox.id.clone(),
        network: String::new(),
        interface_name: interface.to_owned(),
    }
}

fn pod(sandbox: &Sandbox) -> Pod {
    Pod {
        namespace: "conformance".to_owned(),
        name: sandbox.name.clone(),
        uid: format!("{}-uid", sandbox.name),
    }
}

pub(super) fn add(sandbox: &Sandbox, interface: &str) -> AddRequest {
    AddRequest {
        attachment: Some(attachment(sandbox, interface)),
        pod: Some(pod(sandbox)),
        netns: sandbox.netns.clone(),
        owner: OWNER.to_owned(),
        ..AddRequest::default()
    }
}

pub(super) fn delete(sandbox: &Sandbox, interface: &str) -> DeleteRequest {
    DeleteRequest {
        attachment: Some(attachment(sandbox, interface)),
        pod: Some(pod(sandbox)),
        netns: sandbox.netns.clone(),
        ..DeleteRequest::default()
    }
}

/// The addresses of an answer; an attachment without any breaks the law.
pub(super) fn addresses(answer: &AddResponse) -> Result<Vec<String>, CheckStop> {
    let ips = answer.result.iter().flat_map(|result| &result.ips);
    let addresses: Vec<_> = ips.map(|ip| ip.address.clone()).collect();
    holds(!addresses.is_empty(), || {
        "the result has no address".to_owned()
    })?;
    Ok(addresses)
}

/// Tells whether the sandbox's loopback interface is up.
pub(super) async fn loopback_is_up(sandbox: &Sandbox) -> Result<bool, CheckStop> {
    let shown = Command::new("ip")
        .args(["-n", &sandbox.name, "link", "show", "lo"])
        .output();
    let shown = String::from_utf8_lossy(&shown.await?.stdout).into_owned();
    Ok(shown.contains(",UP") || shown.contains("<UP"))
}
