//! The difference between two sets of objects.
//!
//! An immutable ConfigMap or Secret keeps its content, whether a pod uses it or not: the API server would refuse the
//! change, and upstream does not even check for one. To replace it, delete it and create another.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::StaticObjects;
use super::static_objects::ObjectKey;

/// What replacing a set of objects by another changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectsChange {
    /// Whether anything is not as it was.
    pub differs: bool,
    /// Messages about changes of immutable objects, which are not taken over.
    pub refused: Vec<String>,
}

impl StaticObjects {
    /// Replaces `before`: an unchanged object keeps its `Arc`, an immutable one its content.
    pub fn succeed(&mut self, before: &Self) -> ObjectsChange {
        let mut refused = keep("ConfigMap", &before.config_maps, &mut self.config_maps);
        refused.extend(keep("Secret", &before.secrets, &mut self.secrets));
        let differ = [
            reuse_unchanged(&before.config_maps, &mut self.config_maps),
            reuse_unchanged(&before.secrets, &mut self.secrets),
            reuse_unchanged(&before.services, &mut self.services),
            reuse_unchanged(&before.runtime_classes, &mut self.runtime_classes),
            reuse_unchanged(&before.claims, &mut self.claims),
            reuse_unchanged(&before.persistent_volumes, &mut self.persistent_volumes),
            reuse_unchanged(&before.storage_classes, &mut self.storage_classes),
            reuse_unchanged(&before.csi_drivers, &mut self.csi_drivers),
            reuse_unchanged(&before.volume_attachments, &mut self.volume_attachments),
            reuse_unchanged(&before.trust_bundles, &mut self.trust_bundles),
            reuse_unchanged(&before.pod_certificates, &mut self.pod_certificates),
            reuse_unchanged(&before.issuances, &mut self.issuances),
            before.tokens != self.tokens,
            before.refused != self.refused || before.refused_tokens != self.refused_tokens,
        ];
        ObjectsChange {
            differs: differ.contains(&true),
            refused,
        }
    }
}

impl StaticObjects {
    /// The objects that `other` does not have.
    pub fn missing_in(&self, other: &Self) -> Self {
        Self {
            config_maps: less(&self.config_maps, &other.config_maps),
            secrets: less(&self.secrets, &other.secrets),
            services: less(&self.services, &other.services),
            runtime_classes: less(&self.runtime_classes, &other.runtime_classes),
            claims: less(&self.claims, &other.claims),
            persistent_volumes: less(&self.persistent_volumes, &other.persistent_volumes),
            storage_classes: less(&self.storage_classes, &other.storage_classes),
            csi_drivers: less(&self.csi_drivers, &other.csi_drivers),
            volume_attachments: less(&self.volume_attachments, &other.volume_attachments),
            trust_bundles: less(&self.trust_bundles, &other.trust_bundles),
            pod_certificates: less(&self.pod_certificates, &other.pod_certificates),
            issuances: less(&self.issuances, &other.issuances),
            tokens: less(&self.tokens, &other.tokens),
            refused: BTreeMap::new(),
            refused_tokens: BTreeMap::new(),
        }
    }
}

fn less<K: Ord + Clone, V: Clone>(own: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> BTreeMap<K, V> {
    let own = own.iter().filter(|(key, _)| !other.contains_key(key));
    own.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Puts the old object in the place of an equal one; whether the maps differ after that.
fn reuse_unchanged<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, Arc<V>>,
    now: &mut BTreeMap<K, Arc<V>>,
) -> bool {
    let mut differs = before.len() != now.len();
    for (key, value) in now {
        match before.get(key) {
            Some(old) if Arc::ptr_eq(old, value) => {}
            Some(old) if old == value => *value = old.clone(),
            _ => differs = true,
        }
    }
    differs
}

/// An object that can be closed to changes.
trait ImmutableObject {
    fn is_immutable(&self) -> bool;
    /// The field that differs though it must not.
    fn forbidden(&self, next: &Self) -> Option<&'static str>;
}

impl ImmutableObject for ConfigMap {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn forbidden(&self, next: &Self) -> Option<&'static str> {
        let fields = [
            ("immutable", next.is_immutable()),
            ("data", same(&self.data, &next.data)),
            ("binaryData", same(&self.binary_data, &next.binary_data)),
        ];
        first_changed(&fields)
    }
}

impl ImmutableObject for Secret {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn forbidden(&self, next: &Self) -> Option<&'static str> {
        let fields = [
            ("immutable", next.is_immutable()),
            ("data", same(&self.data, &next.data)),
        ];
        first_changed(&fields)
    }
}

fn first_changed(fields: &[(&'static str, bool)]) -> Option<&'static str> {
    fields.iter().find(|(_, same)| !same).map(|(name, _)| *name)
}

/// No map is an empty one.
fn same<V: PartialEq>(
    one: &Option<BTreeMap<String, V>>,
    other: &Option<BTreeMap<String, V>>,
) -> bool {
    one.iter().flatten().eq(other.iter().flatten())
}

fn keep<V: ImmutableObject>(
    kind: &str,
    before: &BTreeMap<ObjectKey, Arc<V>>,
    now: &mut BTreeMap<ObjectKey, Arc<V>>,
) -> Vec<String> {
    let mut refused = Vec::new();
    for (key, old) in before.iter().filter(|(_, old)| old.is_immutable()) {
        let Some(next) = now.get_mut(key).filter(|next| !Arc::ptr_eq(next, old)) else {
            continue;
        };
        if let Some(field) = old.forbidden(next) {
            refused.push(format!(
                "{kind} {}/{}: {field}: field is immutable when `immutable` is set",
                key.0, key.1
            ));
            *next = old.clone();
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn objects(text: &str) -> StaticObjects {
        let parsed = parse(text.as_bytes());
        assert_eq!(parsed.problems, []);
        parsed.objects
    }

    fn map(immutable: &str, value: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, {immutable} data: {{k: {value}}}}}\n---\n"
        )
    }

    fn secret(immutable: &str, value: &str) -> String {
        map(immutable, value)
            .replace("ConfigMap", "Secret")
            .replace(" data:", " stringData:")
    }

    #[test]
    fn what_did_not_change_is_the_very_same_object() {
        let before = objects(&map("", "one"));
        let mut now = objects(&map("", "one"));
        assert_eq!(now.succeed(&before), ObjectsChange::default());
        let key = ("default".to_owned(), "a".to_owned());
        assert!(Arc::ptr_eq(
            &now.config_maps[&key],
            &before.config_maps[&key]
        ));
    }

    #[test]
    fn every_kind_of_change_is_noticed() {
        let before = objects(&map("", "one"));
        let token = "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: a}, spec: {audiences: []}, \
                     status: {token: t, expirationTimestamp: '2030-01-01T00:00:00Z'}}";
        let cases = [
            map("", "two"),
            String::new(),
            map("", "one") + &secret("", "one"),
            map("", "one") + token,
        ];
        for text in cases {
            assert!(objects(&text).succeed(&before).differs, "{text}");
        }
        let mut refusing = before.clone();
        let bad = ("Secret".into(), "default".into(), "b".into());
        refusing.refused.insert(bad, "why".into());
        assert!(refusing.succeed(&before).differs);
    }

    #[test]
    fn what_is_missing_is_found_kind_by_kind() {
        let before = objects(&(map("", "one") + &secret("", "one")));
        let missing = before.missing_in(&objects(&map("", "two")));
        assert_eq!((missing.len(), missing.secrets.len()), (1, 1));
        assert!(before.missing_in(&before).is_empty());
    }

    /// Upstream's TestImmutableSecretStopsTheReflector.
    #[test]
    fn what_is_immutable_keeps_its_content_until_it_is_taken_away() {
        let closed = "immutable: true,";
        for make in [map, secret] {
            let before = objects(&make(closed, "one"));
            for next in [make(closed, "two"), make("", "one"), make("", "two")] {
                let mut now = objects(&next);
                let came = now.succeed(&before);
                assert!(!came.differs, "{next}");
                assert!(
                    came.refused[0].ends_with("field is immutable when `immutable` is set"),
                    "{:?}",
                    came.refused
                );
            }
            let mut labelled =
                objects(&make(closed, "one").replace("name: a", "name: a, labels: {b: c}"));
            let came = labelled.succeed(&before);
            assert!(came.differs && came.refused.is_empty());

            let mut gone = objects("");
            assert!(gone.succeed(&before).differs);
            let mut again = objects(&make(closed, "two"));
            assert!(again.succeed(&gone).refused.is_empty());
        }
    }
}
