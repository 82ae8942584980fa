//! Which volumes a change of objects may change.

use std::sync::Arc;

use logic_api::objects::{Issuance, Objects, PodCertificateSpec, StaticObjects};

use super::Dependency;

/// Whether an object that a volume was made from is another one now. What did not change is the very same object.
pub fn is_changed(uses: &Dependency, before: &StaticObjects, now: &StaticObjects) -> bool {
    if let Some(wanted) = &uses.token {
        // Only this pod's: each start of a pod changes the tokens of its account.
        return before.token(wanted) != now.token(wanted)
            || before.refused_token(wanted) != now.refused_token(wanted);
    }
    let name = uses.name.as_str();
    let key = (uses.namespace.clone(), uses.name.clone());
    let refusal = (
        uses.kind.to_owned(),
        uses.namespace.clone(),
        uses.name.clone(),
    );
    if before.refused.get(&refusal) != now.refused.get(&refusal) {
        return true;
    }
    match uses.kind {
        "ConfigMap" => differs(before.config_maps.get(&key), now.config_maps.get(&key)),
        "Secret" => differs(before.secrets.get(&key), now.secrets.get(&key)),
        "PersistentVolumeClaim" => differs(before.claims.get(&key), now.claims.get(&key)),
        "PersistentVolume" => {
            let (before, now) = (&before.persistent_volumes, &now.persistent_volumes);
            differs(before.get(name), now.get(name))
        }
        "CSIDriver" => differs(before.csi_drivers.get(name), now.csi_drivers.get(name)),
        "VolumeAttachment" => {
            let (before, now) = (&before.volume_attachments, &now.volume_attachments);
            differs(before.get(name), now.get(name))
        }
        "PodCertificateRequest" if !has_manifests(before) && !has_manifests(now) => {
            certificates(uses, before) != certificates(uses, now)
        }
        // Found by their labels or signers: any of them may be one.
        _ => true,
    }
}

fn has_manifests(objects: &StaticObjects) -> bool {
    !objects.pod_certificates.is_empty()
}

/// How far it is with the certificates of a pod.
fn certificates<'a>(uses: &Dependency, objects: &'a StaticObjects) -> Vec<&'a Arc<Issuance>> {
    let first = PodCertificateSpec::first_of(&uses.namespace, &uses.name);
    objects
        .issuances
        .range(first..)
        .take_while(|(wanted, _)| {
            wanted.namespace == uses.namespace && wanted.pod_name == uses.name
        })
        .map(|(_, issuance)| issuance)
        .collect()
}

fn differs<T>(before: Option<&Arc<T>>, now: Option<&Arc<T>>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use logic_api::objects::{
        BoundPod, PendingCertificateRequest, ServiceAccountToken, StaticToken, TokenSpec, parse,
    };

    use super::*;

    fn objects(text: &str) -> StaticObjects {
        parse(text.as_bytes()).objects
    }

    fn uses(kind: &'static str, namespace: &str, name: &str) -> Dependency {
        Dependency::new(kind, namespace, name)
    }

    fn token_of(pod: &str) -> TokenSpec {
        TokenSpec {
            namespace: "default".into(),
            service_account: "shared".into(),
            audiences: Vec::new(),
            expiration_seconds: 3600,
            pod_name: pod.into(),
            pod_uid: "u".into(),
        }
    }

    fn put(objects: &mut StaticObjects, bound_to: Option<&str>, text: &str) {
        let token = StaticToken {
            audiences: Vec::new(),
            bound_to: bound_to.map(|name| BoundPod {
                name: name.into(),
                uid: String::new(),
            }),
            asked: None,
            token: ServiceAccountToken {
                token: text.into(),
                expires: Timestamp::MAX,
                issued: None,
            },
        };
        objects.put_token("default".into(), "shared".into(), token);
    }

    #[test]
    fn a_token_of_another_pod_of_the_account_does_not_count() {
        let changed = |before: &StaticObjects, now: &StaticObjects| {
            ["a", "b"].map(|pod| is_changed(&Dependency::token(&token_of(pod)), before, now))
        };
        let none = StaticObjects::default();
        let mut one = none.clone();
        put(&mut one, Some("a"), "first");
        let mut renewed = none.clone();
        put(&mut renewed, Some("a"), "second");
        let mut of_all = one.clone();
        put(&mut of_all, None, "of every pod");
        let mut refused = one.clone();
        refused.refused_tokens.insert(token_of("b"), "why".into());
        assert_eq!(changed(&none, &one), [true, false]);
        assert_eq!(changed(&one, &renewed), [true, false]);
        assert_eq!(changed(&one, &one), [false, false]);
        assert_eq!(changed(&one, &of_all), [true, true]);
        assert_eq!(changed(&one, &refused), [false, true]);
    }

    #[test]
    fn a_certificate_of_another_pod_does_not_count() {
        let of = |pod: &str, name: &str| {
            let wanted = PodCertificateSpec {
                namespace: "default".into(),
                pod_name: pod.into(),
                pod_uid: "u".into(),
                service_account: "s".into(),
                signer_name: "a.io/b".into(),
                key_type: "ED25519".into(),
                max_expiration_seconds: None,
                user_annotations: Vec::new(),
                volume: "v".into(),
                source: 0,
            };
            let asked = PendingCertificateRequest {
                name: name.into(),
                key_pem: Vec::new(),
                request: Vec::new(),
            };
            let issuance = Issuance {
                asked: Some(asked),
                ..Issuance::default()
            };
            let mut objects = StaticObjects::default();
            objects.issuances.insert(wanted, Arc::new(issuance));
            objects
        };
        let own = uses("PodCertificateRequest", "default", "a");
        assert!(is_changed(&own, &of("a", "one"), &of("a", "two")));
        assert!(is_changed(&own, &of("b", "one"), &of("a", "one")));
        assert!(!is_changed(&own, &of("a", "one"), &of("a", "one")));
        assert!(!is_changed(&own, &of("b", "one"), &of("b", "two")));
        let manifest = "{apiVersion: certificates.k8s.io/v1beta1, kind: PodCertificateRequest, metadata: {name: r}, \
                        spec: {signerName: a.io/b, podName: b}}";
        assert!(is_changed(&own, &objects(""), &objects(manifest)));
    }

    #[test]
    fn only_what_is_used_counts() {
        let object = |kind: &str, name: &str, value: &str| {
            format!(
                "{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}}}, data: {{k: {value}}}}}\n---\n"
            )
        };
        let before = objects(&(object("ConfigMap", "a", "b25l") + &object("Secret", "a", "b25l")));
        let mut now = objects(&(object("ConfigMap", "a", "dHdv") + &object("Secret", "a", "b25l")));
        assert!(now.succeed(&before).differs);
        let cases = [
            (uses("ConfigMap", "default", "a"), true),
            (uses("ConfigMap", "default", "b"), false),
            (uses("ConfigMap", "other", "a"), false),
            (uses("Secret", "default", "a"), false),
            (uses("PersistentVolumeClaim", "default", "a"), false),
            (uses("PersistentVolume", "", "a"), false),
            (uses("CSIDriver", "", "a"), false),
            (uses("VolumeAttachment", "", "a"), false),
            (Dependency::token(&token_of("a")), false),
            (uses("ClusterTrustBundle", "", "a"), true),
        ];
        for (uses, expected) in cases {
            assert_eq!(is_changed(&uses, &before, &now), expected, "{uses:?}");
        }
        let gone = objects("");
        assert!(is_changed(&uses("Secret", "default", "a"), &before, &gone));
        assert!(is_changed(&uses("Secret", "default", "a"), &gone, &before));
        let mut refusing = before.clone();
        let refusal = ("Secret".to_owned(), "default".to_owned(), "b".to_owned());
        refusing.refused.insert(refusal, "why".to_owned());
        assert!(is_changed(
            &uses("Secret", "default", "b"),
            &before,
            &refusing
        ));
    }
}
