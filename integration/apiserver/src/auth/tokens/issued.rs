//! The tokens of service accounts that were issued.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

use crate::clock;
use crate::endpoints::request_info::UserInfo;
use crate::kinds::core;
use crate::store::VersionedStore;

const KEPT: usize = 100_000;

/// The tokens that were issued.
#[derive(Default)]
pub(crate) struct IssuedTokens(Mutex<BTreeMap<String, IssuedToken>>);

impl std::fmt::Debug for IssuedTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Issued")
    }
}

#[derive(Clone)]
pub(super) struct IssuedToken {
    pub(super) user: UserInfo,
    pub(super) extra: Value,
    pub(super) audiences: Vec<String>,
    pub(super) end: Timestamp,
    /// The kind, namespace, name and UID of what must still be there.
    pub(super) bound: Option<BoundObject>,
}

impl IssuedTokens {
    pub(super) fn keep(&self, token: String, issue: IssuedToken) {
        let mut issued = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        if issued.len() >= KEPT {
            issued.retain(|_, issue| issue.end > now);
        }
        issued.insert(token, issue);
    }

    pub(super) fn find(&self, token: &str) -> Option<IssuedToken> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(token)
            .cloned()
    }

    pub(crate) fn revoke(&self, token: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(token);
    }
}

/// What a token is bound to: with its end, the token's comes.
#[derive(Clone, Debug)]
pub(super) struct BoundObject {
    pub(super) plural: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl BoundObject {
    pub(super) fn is_there(&self, store: &VersionedStore) -> bool {
        let found = store.get(core(self.plural), &self.namespace, &self.name);
        found.is_some_and(|object| object["metadata"]["uid"] == self.uid.as_str())
    }
}
