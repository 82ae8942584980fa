//! Rules of a pod's metadata.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{FieldErrorKind, FieldErrors, names, text};

/// Bytes of all annotations of an object, names included: the API's `TotalAnnotationSizeLimitB`.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

pub(super) fn check(metadata: &ObjectMeta, report: &mut FieldErrors) {
    let name = text(metadata.name.as_ref());
    if !text(metadata.generate_name.as_ref()).is_empty() {
        let base = text(metadata.generate_name.as_ref());
        report.name(
            "metadata.generateName",
            base.strip_suffix('-').unwrap_or(base),
            names::subdomain,
        );
    }
    report.name("metadata.name", name, names::subdomain);
    report.name(
        "metadata.namespace",
        text(metadata.namespace.as_ref()),
        names::label,
    );
    report.not_negative("metadata.generation", metadata.generation);
    if let Some(labels) = &metadata.labels {
        self::labels("metadata.labels", labels, report);
    }
    let annotations = metadata.annotations.iter().flatten();
    let mut bytes = 0;
    for (key, value) in annotations {
        report.name("metadata.annotations", key, names::annotation);
        bytes += key.len() + value.len();
    }
    if bytes > MAX_ANNOTATION_BYTES {
        report.add(
            "metadata.annotations",
            FieldErrorKind::TooLong {
                limit: MAX_ANNOTATION_BYTES,
            },
        );
    }
}

pub(super) fn labels(field: &str, labels: &BTreeMap<String, String>, report: &mut FieldErrors) {
    for (key, value) in labels {
        report.name(field, key, names::qualified);
        report.name(field, value, names::label_value);
    }
}
