//! Everything that a pod needs of the API, found step by step: what a claim is bound to shows when the claim is there.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use logic_api::objects::{ObjectRequest, Objects, StaticObjects, TokenSpec};
use logic_api::pod::PodView;
use logic_volumes::resolve::dependencies::{self, CsiDependencies, CsiVolumeForm};

use crate::api::references::{PodReferences, ServiceLinks, TrustBundleUse};

/// The service whose variables every pod of every namespace gets.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// The pod's dependencies, as far as the objects that exist show them.
pub fn needed(
    pod: &Pod,
    references: &PodReferences,
    objects: &StaticObjects,
    node_name: &str,
) -> BTreeSet<ObjectRequest> {
    let mut found = NeededObjects {
        pod,
        objects,
        node_name,
        wanted: BTreeSet::new(),
    };
    found.take_references(references);
    found.take_volumes(references);
    found.wanted
}

struct NeededObjects<'a> {
    pod: &'a Pod,
    objects: &'a StaticObjects,
    node_name: &'a str,
    wanted: BTreeSet<ObjectRequest>,
}

impl NeededObjects<'_> {
    fn take_references(&mut self, references: &PodReferences) {
        let namespace = &references.namespace;
        let key = |name: &String| (namespace.clone(), name.clone());
        let maps = references.config_maps.iter().map(key);
        self.wanted.extend(maps.map(ObjectRequest::ConfigMap));
        let secrets = references.secrets.iter().map(key);
        self.wanted.extend(secrets.map(ObjectRequest::Secret));
        let claims = references.claims.iter().map(key);
        self.wanted.extend(claims.map(ObjectRequest::Claim));
        let class = references.runtime_class.iter().cloned();
        self.wanted.extend(class.map(ObjectRequest::RuntimeClass));
        let tokens = references.tokens.iter().cloned();
        self.wanted.extend(tokens.map(ObjectRequest::Token));
        let certificates = references.certificates.iter().cloned().map(Box::new);
        self.wanted
            .extend(certificates.map(ObjectRequest::Certificate));
        if references.trust_bundles == TrustBundleUse::Any {
            self.wanted.insert(ObjectRequest::TrustBundles);
        }
        let (master_namespace, master) = MASTER;
        let master = (master_namespace.to_owned(), master.to_owned());
        match references.services {
            ServiceLinks::None => {}
            ServiceLinks::Namespace if *namespace == master.0 => {
                self.wanted.insert(ObjectRequest::Services(master.0));
            }
            ServiceLinks::Namespace => {
                self.wanted
                    .insert(ObjectRequest::Services(namespace.clone()));
                self.wanted.insert(ObjectRequest::Service(master));
            }
            ServiceLinks::Master => drop(self.wanted.insert(ObjectRequest::Service(master))),
        }
    }

    fn take_volumes(&mut self, references: &PodReferences) {
        for driver in &references.drivers {
            self.take_driver(driver, CsiVolumeForm::FileSystem);
        }
        for claim in &references.claims {
            if let Some(dependencies) = self.claimed(&references.namespace, claim) {
                self.take_dependencies(dependencies);
            }
        }
        // One that has ended refers to nothing.
        if references.services == ServiceLinks::None {
            return;
        }
        let volumes = self.pod.spec().and_then(|spec| spec.volumes.as_deref());
        for volume in volumes.unwrap_or_default() {
            let namespace = &references.namespace;
            if let Some(dependencies) = dependencies::of_inline(volume, namespace, self.node_name) {
                self.take_dependencies(dependencies);
            }
        }
    }

    fn claimed(&mut self, namespace: &str, claim: &str) -> Option<CsiDependencies> {
        let claim = self.objects.claim(namespace, claim)?;
        let bound_to = claim.spec.as_ref()?.volume_name.as_ref()?;
        if bound_to.is_empty() {
            return None;
        }
        self.wanted
            .insert(ObjectRequest::PersistentVolume(bound_to.clone()));
        let volume = self.objects.persistent_volume(bound_to)?;
        dependencies::of_persistent(&volume, self.node_name)
    }

    fn take_dependencies(&mut self, dependencies: CsiDependencies) {
        let driver = self.objects.csi_driver(&dependencies.driver);
        let is_attached = driver.is_none_or(|driver| driver.spec.attach_required != Some(false));
        if is_attached {
            self.wanted
                .insert(ObjectRequest::VolumeAttachment(dependencies.attachment));
        }
        let secrets = dependencies.secrets.into_iter();
        self.wanted.extend(secrets.map(ObjectRequest::Secret));
        self.take_driver(&dependencies.driver, dependencies.form);
    }

    fn take_driver(&mut self, name: &str, form: CsiVolumeForm) {
        self.wanted.insert(ObjectRequest::CsiDrivers);
        let driver = self.objects.csi_driver(name);
        let driver = driver.filter(|_| form == CsiVolumeForm::FileSystem);
        let requests = driver.and_then(|driver| driver.spec.token_requests.clone());
        for request in requests.unwrap_or_default() {
            let wanted = TokenSpec::for_driver(self.pod, &request);
            self.wanted.insert(ObjectRequest::Token(wanted));
        }
    }
}

#[cfg(test)]
mod tests;
