//! The messages that are known, from upstream's generated.proto files: number, name in JSON, form.

/// One field of a message.
#[derive(Debug)]
pub(super) struct MessageField {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) form: FieldType,
    pub(super) repeated: bool,
}

#[derive(Debug)]
pub(super) enum FieldType {
    Text,
    Blob,
    Truth,
    Number,
    Time,
    /// A map of texts.
    Texts,
    /// A map of bytes.
    Blobs,
    Message(&'static [MessageField]),
}

const fn one(number: u64, name: &'static str, form: FieldType) -> MessageField {
    MessageField {
        number,
        name,
        form,
        repeated: false,
    }
}

const fn text(number: u64, name: &'static str) -> MessageField {
    one(number, name, FieldType::Text)
}

const fn many(number: u64, name: &'static str, form: FieldType) -> MessageField {
    MessageField {
        number,
        name,
        form,
        repeated: true,
    }
}

pub(super) const UNKNOWN: &[MessageField] = &[
    one(
        1,
        "typeMeta",
        FieldType::Message(&[text(1, "apiVersion"), text(2, "kind")]),
    ),
    one(2, "raw", FieldType::Blob),
];

/// Returns the message of a kind.
pub(super) fn of(kind: &str) -> Option<&'static [MessageField]> {
    Some(match kind {
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "Namespace" => NAMESPACE,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "TokenRequest" => TOKEN_REQUEST,
        "SelfSubjectAccessReview" | "SubjectAccessReview" => ACCESS_REVIEW,
        "CertificateSigningRequest" => SIGNING_REQUEST,
        "Eviction" => EVICTION,
        "DeleteOptions" => DELETE_OPTIONS,
        _ => return None,
    })
}

const METADATA: MessageField = one(
    1,
    "metadata",
    FieldType::Message(&[
        text(1, "name"),
        text(2, "generateName"),
        text(3, "namespace"),
        text(5, "uid"),
        text(6, "resourceVersion"),
        one(7, "generation", FieldType::Number),
        one(8, "creationTimestamp", FieldType::Time),
        one(9, "deletionTimestamp", FieldType::Time),
        one(10, "deletionGracePeriodSeconds", FieldType::Number),
        one(11, "labels", FieldType::Texts),
        one(12, "annotations", FieldType::Texts),
        many(13, "ownerReferences", FieldType::Message(OWNER)),
        many(14, "finalizers", FieldType::Text),
    ]),
);

const OWNER: &[MessageField] = &[
    text(1, "kind"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "apiVersion"),
    one(6, "controller", FieldType::Truth),
    one(7, "blockOwnerDeletion", FieldType::Truth),
];

const CONFIG_MAP: &[MessageField] = &[
    METADATA,
    one(2, "data", FieldType::Texts),
    one(3, "binaryData", FieldType::Blobs),
    one(4, "immutable", FieldType::Truth),
];

const SECRET: &[MessageField] = &[
    METADATA,
    one(2, "data", FieldType::Blobs),
    text(3, "type"),
    one(4, "stringData", FieldType::Texts),
    one(5, "immutable", FieldType::Truth),
];

const NAMESPACE: &[MessageField] = &[
    METADATA,
    one(
        2,
        "spec",
        FieldType::Message(&[many(1, "finalizers", FieldType::Text)]),
    ),
];

const SERVICE_ACCOUNT: &[MessageField] = &[
    METADATA,
    many(
        3,
        "imagePullSecrets",
        FieldType::Message(&[text(1, "name")]),
    ),
    one(4, "automountServiceAccountToken", FieldType::Truth),
];

const TOKEN_REQUEST: &[MessageField] = &[
    METADATA,
    one(
        2,
        "spec",
        FieldType::Message(&[
            many(1, "audiences", FieldType::Text),
            one(
                3,
                "boundObjectRef",
                FieldType::Message(&[
                    text(1, "kind"),
                    text(2, "apiVersion"),
                    text(3, "name"),
                    text(4, "uid"),
                ]),
            ),
            one(4, "expirationSeconds", FieldType::Number),
        ]),
    ),
];

/// Of reviews for oneself and for others: the numbers of what is asked are the same, others name the user too.
const ACCESS_REVIEW: &[MessageField] = &[
    METADATA,
    one(
        2,
        "spec",
        FieldType::Message(&[
            one(
                1,
                "resourceAttributes",
                FieldType::Message(&[
                    text(1, "namespace"),
                    text(2, "verb"),
                    text(3, "group"),
                    text(4, "version"),
                    text(5, "resource"),
                    text(6, "subresource"),
                    text(7, "name"),
                ]),
            ),
            one(
                2,
                "nonResourceAttributes",
                FieldType::Message(&[text(1, "path"), text(2, "verb")]),
            ),
            text(3, "user"),
            many(4, "groups", FieldType::Text),
            text(6, "uid"),
        ]),
    ),
];

const SIGNING_REQUEST: &[MessageField] = &[
    METADATA,
    one(
        2,
        "spec",
        FieldType::Message(&[
            one(1, "request", FieldType::Blob),
            text(2, "username"),
            text(3, "uid"),
            many(4, "groups", FieldType::Text),
            many(5, "usages", FieldType::Text),
            text(7, "signerName"),
            one(8, "expirationSeconds", FieldType::Number),
        ]),
    ),
    one(
        3,
        "status",
        FieldType::Message(&[
            many(
                1,
                "conditions",
                FieldType::Message(&[
                    text(1, "type"),
                    text(2, "reason"),
                    text(3, "message"),
                    one(4, "lastUpdateTime", FieldType::Time),
                    one(5, "lastTransitionTime", FieldType::Time),
                    text(6, "status"),
                ]),
            ),
            one(2, "certificate", FieldType::Blob),
        ]),
    ),
];

const DELETE_OPTIONS: &[MessageField] = &[
    one(1, "gracePeriodSeconds", FieldType::Number),
    one(
        2,
        "preconditions",
        FieldType::Message(&[text(1, "uid"), text(2, "resourceVersion")]),
    ),
    one(3, "orphanDependents", FieldType::Truth),
    text(4, "propagationPolicy"),
    many(5, "dryRun", FieldType::Text),
];

const EVICTION: &[MessageField] = &[
    METADATA,
    one(2, "deleteOptions", FieldType::Message(DELETE_OPTIONS)),
];
