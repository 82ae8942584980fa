//! Everything that a pod needs of the API, found step by step: what a claim is bound to shows when the claim is there.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::fixed::{Key, StaticObjects};
use super::references::{Bundles, Links, References};
use super::{Objects, PodCertificateWanted, TokenWanted};
use crate::pod::PodView;
use crate::volumes::resolve::needs::{self, Form, Needs};

/// One thing to fetch or to follow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    ConfigMap(Key),
    Secret(Key),
    Claim(Key),
    PersistentVolume(String),
    VolumeAttachment(String),
    RuntimeClass(String),
    /// A single service.
    Service(Key),
    /// Those of a namespace.
    Services(String),
    CsiDrivers,
    TrustBundles,
    Token(TokenWanted),
    /// Much larger than the others.
    Certificate(Box<PodCertificateWanted>),
}

impl Wanted {
    /// Kind, namespace and name, as [`Objects::refused`] is asked; none where nobody asks. Trust bundles have the empty
    /// name together.
    pub fn place(&self) -> Option<(String, String, String)> {
        let (kind, namespace, name) = match self {
            Self::ConfigMap((namespace, name)) => ("ConfigMap", namespace.as_str(), name),
            Self::Secret((namespace, name)) => ("Secret", namespace.as_str(), name),
            Self::Claim((namespace, name)) => ("PersistentVolumeClaim", namespace.as_str(), name),
            Self::Service((namespace, name)) => ("Service", namespace.as_str(), name),
            Self::PersistentVolume(name) => ("PersistentVolume", "", name),
            Self::VolumeAttachment(name) => ("VolumeAttachment", "", name),
            Self::RuntimeClass(name) => ("RuntimeClass", "", name),
            Self::Token(wanted) => (
                "TokenRequest",
                wanted.namespace.as_str(),
                &wanted.service_account,
            ),
            Self::Certificate(wanted) => (
                "PodCertificateRequest",
                wanted.namespace.as_str(),
                &wanted.pod_name,
            ),
            Self::TrustBundles => {
                return Some((
                    "ClusterTrustBundle".to_owned(),
                    String::new(),
                    String::new(),
                ));
            }
            Self::Services(_) | Self::CsiDrivers => return None,
        };
        Some((kind.to_owned(), namespace.to_owned(), name.clone()))
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, self.place()) {
            (Self::Token(wanted), Some((kind, namespace, name))) => {
                let pod = &wanted.pod_name;
                write!(out, "{kind} {namespace}/{name} for pod {pod}")
            }
            (Self::Certificate(wanted), Some((kind, namespace, _))) => {
                let PodCertificateWanted {
                    pod_name, volume, ..
                } = &**wanted;
                write!(out, "{kind} of {namespace}/{pod_name} for volume {volume}")
            }
            (Self::TrustBundles, _) => out.write_str("ClusterTrustBundles"),
            (_, Some((kind, namespace, name))) if namespace.is_empty() => {
                write!(out, "{kind} {name}")
            }
            (_, Some((kind, namespace, name))) => write!(out, "{kind} {namespace}/{name}"),
            (Self::Services(namespace), None) => write!(out, "Services of {namespace}"),
            (_, None) => out.write_str("CSIDrivers"),
        }
    }
}

/// The service that every pod of every namespace is told of.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// What the pod needs, as far as it shows by the objects that are there.
pub fn needed(
    pod: &Pod,
    references: &References,
    objects: &StaticObjects,
    node_name: &str,
) -> BTreeSet<Wanted> {
    let mut found = Finding {
        pod,
        objects,
        node_name,
        wanted: BTreeSet::new(),
    };
    found.take_references(references);
    found.take_volumes(references);
    found.wanted
}

struct Finding<'a> {
    pod: &'a Pod,
    objects: &'a StaticObjects,
    node_name: &'a str,
    wanted: BTreeSet<Wanted>,
}

impl Finding<'_> {
    fn take_references(&mut self, references: &References) {
        let namespace = &references.namespace;
        let key = |name: &String| (namespace.clone(), name.clone());
        let maps = references.config_maps.iter().map(key);
        self.wanted.extend(maps.map(Wanted::ConfigMap));
        let secrets = references.secrets.iter().map(key);
        self.wanted.extend(secrets.map(Wanted::Secret));
        let claims = references.claims.iter().map(key);
        self.wanted.extend(claims.map(Wanted::Claim));
        let class = references.runtime_class.iter().cloned();
        self.wanted.extend(class.map(Wanted::RuntimeClass));
        let tokens = references.tokens.iter().cloned();
        self.wanted.extend(tokens.map(Wanted::Token));
        let certificates = references.certificates.iter().cloned().map(Box::new);
        self.wanted.extend(certificates.map(Wanted::Certificate));
        if references.trust_bundles == Bundles::Any {
            self.wanted.insert(Wanted::TrustBundles);
        }
        let (master_namespace, master) = MASTER;
        let master = (master_namespace.to_owned(), master.to_owned());
        match references.services {
            Links::None => {}
            Links::Namespace if *namespace == master.0 => {
                self.wanted.insert(Wanted::Services(master.0));
            }
            Links::Namespace => {
                self.wanted.insert(Wanted::Services(namespace.clone()));
                self.wanted.insert(Wanted::Service(master));
            }
            Links::Master => drop(self.wanted.insert(Wanted::Service(master))),
        }
    }

    fn take_volumes(&mut self, references: &References) {
        for driver in &references.drivers {
            self.take_driver(driver, Form::FileSystem);
        }
        for claim in &references.claims {
            if let Some(needs) = self.claimed(&references.namespace, claim) {
                self.take_needs(needs);
            }
        }
        // One that has ended refers to nothing.
        if references.services == Links::None {
            return;
        }
        let volumes = self.pod.spec().and_then(|spec| spec.volumes.as_deref());
        for volume in volumes.unwrap_or_default() {
            let namespace = &references.namespace;
            if let Some(needs) = needs::of_inline(volume, namespace, self.node_name) {
                self.take_needs(needs);
            }
        }
    }

    fn claimed(&mut self, namespace: &str, claim: &str) -> Option<Needs> {
        let claim = self.objects.claim(namespace, claim)?;
        let bound_to = claim.spec.as_ref()?.volume_name.as_ref()?;
        if bound_to.is_empty() {
            return None;
        }
        self.wanted
            .insert(Wanted::PersistentVolume(bound_to.clone()));
        let volume = self.objects.persistent_volume(bound_to)?;
        needs::of_persistent(&volume, self.node_name)
    }

    fn take_needs(&mut self, needs: Needs) {
        let driver = self.objects.csi_driver(&needs.driver);
        let is_attached = driver.is_none_or(|driver| driver.spec.attach_required != Some(false));
        if is_attached {
            self.wanted
                .insert(Wanted::VolumeAttachment(needs.attachment));
        }
        let secrets = needs.secrets.into_iter();
        self.wanted.extend(secrets.map(Wanted::Secret));
        self.take_driver(&needs.driver, needs.form);
    }

    fn take_driver(&mut self, name: &str, form: Form) {
        self.wanted.insert(Wanted::CsiDrivers);
        let driver = self.objects.csi_driver(name);
        let driver = driver.filter(|_| form == Form::FileSystem);
        let requests = driver.and_then(|driver| driver.spec.token_requests.clone());
        for request in requests.unwrap_or_default() {
            let wanted = TokenWanted::for_driver(self.pod, &request);
            self.wanted.insert(Wanted::Token(wanted));
        }
    }
}

#[cfg(test)]
mod tests;
