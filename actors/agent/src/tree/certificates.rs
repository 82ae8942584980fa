//! The agent's certificates: the client's to the API server, and the HTTPS API's.

use std::sync::Arc;

use api_client::ApiClient;
use cluster::certificates::{self, CertificatePurpose, IdentityReceiver, Rotation};
use k8s_openapi::api::core::v1;
use kernel::watch;
use kernel::{Addr, ChildSpec, Supervisor, mailbox};
use logic_node::certificates::CertificateSubject;
use rustls::sign::CertifiedKey;

use crate::settings::{AgentSettings, ClientCertificate, ServingCertificate};

/// Carries the certificate from its manager to the TLS configuration that offers it.
pub(super) type CertificateSender = watch::Sender<Option<Arc<CertifiedKey>>>;

/// Spawns the manager of the client certificate.
pub(super) fn spawn_client(
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

/// The names and addresses of the serving certificate, from the node's object.
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

/// The HTTPS API's certificate, and the manager that must be told the node's addresses, if there is one.
pub(super) fn spawn_serving(
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
