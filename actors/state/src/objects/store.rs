//! The store of objects: one writer, many readers.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use kernel::watch;
use logic_api::objects::{
    Objects, PodCertificate, PodCertificateSpec, ServiceAccountToken, StaticObjects, TokenSpec,
};

/// The writing end of a store.
pub type StoreWriter = watch::Sender<Arc<StaticObjects>>;

/// The reading end of a store; every clone sees the same objects.
#[derive(Clone)]
pub struct ObjectStore {
    now: watch::Receiver<Arc<StaticObjects>>,
}

/// Reports changes of a store.
#[derive(Clone)]
pub struct Changes {
    now: watch::Receiver<Arc<StaticObjects>>,
}

impl ObjectStore {
    /// Returns a store with these objects, and its writer.
    pub fn new(objects: StaticObjects) -> (StoreWriter, ObjectStore) {
        let (supply, now) = watch::channel(Arc::new(objects));
        (supply, ObjectStore { now })
    }

    /// Returns a store that never changes.
    pub fn fixed(objects: StaticObjects) -> ObjectStore {
        ObjectStore::new(objects).1
    }

    /// Returns the objects of this moment, for lookups that belong together.
    pub fn snapshot(&self) -> Arc<StaticObjects> {
        self.now.borrow().clone()
    }

    /// Returns a receiver of every change from now on.
    pub fn changes(&self) -> Changes {
        let mut now = self.now.clone();
        now.mark_unchanged();
        Changes { now }
    }
}

impl Changes {
    /// Waits until something has changed since this was last called; several changes in a row are one. Waits for ever
    /// once the writer is gone.
    pub async fn next(&mut self) {
        if self.now.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

// Some of it is secret.
impl fmt::Debug for ObjectStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Shelf({:?})", *self.now.borrow())
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Changes")
    }
}

impl Objects for ObjectStore {
    fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMap>> {
        self.now.borrow().config_map(namespace, name)
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Arc<Secret>> {
        self.now.borrow().secret(namespace, name)
    }

    fn runtime_class(&self, name: &str) -> Option<Arc<RuntimeClass>> {
        self.now.borrow().runtime_class(name)
    }

    fn services(&self) -> Vec<Arc<Service>> {
        self.now.borrow().services()
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.now.borrow().claim(namespace, name)
    }

    fn persistent_volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.now.borrow().persistent_volume(name)
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.now.borrow().storage_class(name)
    }

    fn csi_driver(&self, name: &str) -> Option<Arc<CSIDriver>> {
        self.now.borrow().csi_driver(name)
    }

    fn volume_attachment(&self, name: &str) -> Option<Arc<VolumeAttachment>> {
        self.now.borrow().volume_attachment(name)
    }

    fn trust_bundles(&self) -> Vec<Arc<ClusterTrustBundle>> {
        self.now.borrow().trust_bundles()
    }

    fn token(&self, wanted: &TokenSpec) -> Option<ServiceAccountToken> {
        self.now.borrow().token(wanted)
    }

    fn pod_certificate(&self, wanted: &PodCertificateSpec) -> PodCertificate {
        self.now.borrow().pod_certificate(wanted)
    }

    fn refused(&self, kind: &str, namespace: &str, name: &str) -> Option<String> {
        self.now.borrow().refused(kind, namespace, name)
    }

    fn refused_token(&self, wanted: &TokenSpec) -> Option<String> {
        self.now.borrow().refused_token(wanted)
    }
}
