//! The names of claims and drivers.

use std::fmt;

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::{Deserialize, Serialize};

/// A newtype over `String` for each kind of id, so that one kind is never taken for another.
macro_rules! id_type {
    ($(#[doc = $doc:literal] $name:ident),+ $(,)?) => {$(
        #[doc = $doc]
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    )+};
}

id_type! {
    #[doc = "A ResourceClaim's `metadata.uid`."]
    ClaimUid,
    #[doc = "The name of a DRA driver, such as `gpu.example.com`."]
    DriverName,
}

/// Where a ResourceClaim is found: one at a time has that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ClaimKey {
    pub namespace: String,
    pub name: String,
}

/// A claim as drivers are told of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimIdentity {
    pub namespace: String,
    pub uid: ClaimUid,
    pub name: String,
}

impl ClaimKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl ClaimIdentity {
    /// The identity of an object of the API; what it lacks is empty.
    pub fn of(claim: &ResourceClaim) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            namespace: text(&claim.metadata.namespace),
            uid: text(&claim.metadata.uid).into(),
            name: text(&claim.metadata.name),
        }
    }

    pub fn key(&self) -> ClaimKey {
        ClaimKey::new(&self.namespace, &self.name)
    }
}

/// As messages have it: `namespace/name`.
impl fmt::Display for ClaimKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}
