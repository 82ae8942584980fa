//! Who the agent is: to the API server, and to those who call it.

use std::sync::Arc;

use cluster::certificates::{self, CertificatePurpose, IdentityReceiver, Rotation};
use cluster::client::ApiClient;
use k8s_openapi::api::core::v1;
use kernel::{Addr, ChildSpec, Supervisor, mailbox};
use logic_node::certificates::CertificateSubject;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::settings::{AgentSettings, ClientCertificate, ServingCertificate};

/// What TLS offers: put in at one end, taken at the other.
pub(super) type CertificateSender = watch::Sender<Option<Arc<CertifiedKey>>>;

/// The client's own certificate, where it is asked for.
pub(super) fn grow_client(
    group: &Supervisor,
    subject: CertificateSubject,
    certificate: ClientCertificate,
    (peers, offer): (certificates::Peers, CertificateSender),
) {
    let ClientCertificate { store, renewal } = certificate;
    let (_, port) = mailbox(certificates::MAILBOX);
    group.spawn(
        ChildSpec::permanent("client-certificate"),
        port,
        move || {
            let kept = (Some(subject.clone()), offer.clone());
            Rotation::new(
                CertificatePurpose::Client,
                store.clone(),
                peers.clone(),
                kept,
            )
            .renewed(renewal)
        },
    );
}

/// What the serving certificate must say, by the addresses of the node's object.
pub(super) fn identities(node: &v1::Node) -> Option<CertificateSubject> {
    let name = node.metadata.name.as_deref()?;
    let addresses = node.status.as_ref()?.addresses.as_deref()?;
    let addresses = addresses
        .iter()
        .map(|address| (address.type_.as_str(), address.address.as_str()));
    logic_node::certificates::serving(
        name,
        addresses,
        logic_node::certificates::DnsOnlyPolicy::Allowed,
    )
}

/// Where the HTTPS API's certificate comes from, and who is told by which addresses the node is reached.
pub(super) fn grow_serving(
    serving: &Supervisor,
    settings: &AgentSettings,
    client: Option<&ApiClient>,
) -> anyhow::Result<(IdentityReceiver, Option<Addr<certificates::Msg>>)> {
    let (offer, identity) = watch::channel(None);
    let given = |files: certificates::CertificateFiles| {
        let (_, port) = mailbox(certificates::MAILBOX);
        let offer = offer.clone();
        serving.spawn(ChildSpec::permanent("certificate"), port, move || {
            certificates::CertificateReloader::new(files.clone(), offer.clone())
        });
    };
    match (&settings.serving_certificate, client) {
        (ServingCertificate::Given(files), _) => given(files.clone()),
        (ServingCertificate::Asked(store), Some(client)) => {
            let (addr, port) = mailbox(certificates::MAILBOX);
            let (store, offer) = (store.clone(), offer.clone());
            let peers = certificates::Peers {
                client: client.clone(),
                bootstrap: None,
            };
            serving.spawn(ChildSpec::permanent("certificate"), port, move || {
                let kept = (None, offer.clone());
                Rotation::new(
                    CertificatePurpose::Server,
                    store.clone(),
                    peers.clone(),
                    kept,
                )
            });
            return Ok((identity, Some(addr)));
        }
        (ServingCertificate::Asked(_), None) => {
            anyhow::bail!("serverTLSBootstrap needs --kubeconfig")
        }
        (ServingCertificate::SelfSigned(folder), _) => {
            let host = &settings.config.node_name;
            given(certificates::self_signed(folder, host, kernel::wall())?);
        }
    }
    Ok((identity, None))
}
