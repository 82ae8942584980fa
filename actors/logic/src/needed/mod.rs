//! Everything that a pod needs of the API, found step by step: what a claim is bound to shows when the claim is there.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use crate::objects::{Objects, StaticObjects, TokenWanted, Wanted};
use crate::pod::PodView;
use crate::references::{Bundles, Links, References};
use crate::volumes::resolve::needs::{self, Form, Needs};

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
