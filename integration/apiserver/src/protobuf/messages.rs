//! The messages that are known, from upstream's generated.proto files: number, name in JSON, form.

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) repeated: bool,
}

#[derive(Debug)]
pub(super) enum Form {
    Text,
    Blob,
    Truth,
    Number,
    Time,
    /// A map of texts.
    Texts,
    /// A map of bytes.
    Blobs,
    Message(&'static [Field]),
}

const fn one(number: u64, name: &'static str, form: Form) -> Field {
    Field {
        number,
        name,
        form,
        repeated: false,
    }
}

const fn text(number: u64, name: &'static str) -> Field {
    one(number, name, Form::Text)
}

const fn many(number: u64, name: &'static str, form: Form) -> Field {
    Field {
        number,
        name,
        form,
        repeated: true,
    }
}

pub(super) const UNKNOWN: &[Field] = &[
    one(
        1,
        "typeMeta",
        Form::Message(&[text(1, "apiVersion"), text(2, "kind")]),
    ),
    one(2, "raw", Form::Blob),
];

/// Returns the message of a kind.
pub(super) fn of(kind: &str) -> Option<&'static [Field]> {
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

const METADATA: Field = one(
    1,
    "metadata",
    Form::Message(&[
        text(1, "name"),
        text(2, "generateName"),
        text(3, "namespace"),
        text(5, "uid"),
        text(6, "resourceVersion"),
        one(7, "generation", Form::Number),
        one(8, "creationTimestamp", Form::Time),
        one(9, "deletionTimestamp", Form::Time),
        one(10, "deletionGracePeriodSeconds", Form::Number),
        one(11, "labels", Form::Texts),
        one(12, "annotations", Form::Texts),
        many(13, "ownerReferences", Form::Message(OWNER)),
        many(14, "finalizers", Form::Text),
    ]),
);

const OWNER: &[Field] = &[
    text(1, "kind"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "apiVersion"),
    one(6, "controller", Form::Truth),
    one(7, "blockOwnerDeletion", Form::Truth),
];

const CONFIG_MAP: &[Field] = &[
    METADATA,
    one(2, "data", Form::Texts),
    one(3, "binaryData", Form::Blobs),
    one(4, "immutable", Form::Truth),
];

const SECRET: &[Field] = &[
    METADATA,
    one(2, "data", Form::Blobs),
    text(3, "type"),
    one(4, "stringData", Form::Texts),
    one(5, "immutable", Form::Truth),
];

const NAMESPACE: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Form::Message(&[many(1, "finalizers", Form::Text)]),
    ),
];

const SERVICE_ACCOUNT: &[Field] = &[
    METADATA,
    many(3, "imagePullSecrets", Form::Message(&[text(1, "name")])),
    one(4, "automountServiceAccountToken", Form::Truth),
];

const TOKEN_REQUEST: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Form::Message(&[
            many(1, "audiences", Form::Text),
            one(
                3,
                "boundObjectRef",
                Form::Message(&[
                    text(1, "kind"),
                    text(2, "apiVersion"),
                    text(3, "name"),
                    text(4, "uid"),
                ]),
            ),
            one(4, "expirationSeconds", Form::Number),
        ]),
    ),
];

/// Of reviews for oneself and for others: the numbers of what is asked are the same, others name the user too.
const ACCESS_REVIEW: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Form::Message(&[
            one(
                1,
                "resourceAttributes",
                Form::Message(&[
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
                Form::Message(&[text(1, "path"), text(2, "verb")]),
            ),
            text(3, "user"),
            many(4, "groups", Form::Text),
            text(6, "uid"),
        ]),
    ),
];

const SIGNING_REQUEST: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Form::Message(&[
            one(1, "request", Form::Blob),
            text(2, "username"),
            text(3, "uid"),
            many(4, "groups", Form::Text),
            many(5, "usages", Form::Text),
            text(7, "signerName"),
            one(8, "expirationSeconds", Form::Number),
        ]),
    ),
    one(
        3,
        "status",
        Form::Message(&[
            many(
                1,
                "conditions",
                Form::Message(&[
                    text(1, "type"),
                    text(2, "reason"),
                    text(3, "message"),
                    one(4, "lastUpdateTime", Form::Time),
                    one(5, "lastTransitionTime", Form::Time),
                    text(6, "status"),
                ]),
            ),
            one(2, "certificate", Form::Blob),
        ]),
    ),
];

const DELETE_OPTIONS: &[Field] = &[
    one(1, "gracePeriodSeconds", Form::Number),
    one(
        2,
        "preconditions",
        Form::Message(&[text(1, "uid"), text(2, "resourceVersion")]),
    ),
    one(3, "orphanDependents", Form::Truth),
    text(4, "propagationPolicy"),
    many(5, "dryRun", Form::Text),
];

const EVICTION: &[Field] = &[
    METADATA,
    one(2, "deleteOptions", Form::Message(DELETE_OPTIONS)),
];
