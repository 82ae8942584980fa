//! From the entries to the object store, and which pods have all that they need.

use std::collections::BTreeSet;
use std::sync::Arc;

use kernel::Context;
use logic_api::objects::{
    GATE_IS_OFF, IssuancePolicy, ObjectRequest, PodCertificateSpec, StaticObjects,
};
use logic_api::types::PodUid;

use super::entry::{ObjectEntry, ResponseState};
use super::{Msg, ObjectManager, TELL_AGAIN};

impl ObjectManager {
    /// Collects what all entries hold.
    pub(super) fn gather(&mut self) {
        let mut held = StaticObjects::default();
        for (wanted, entry) in &self.entries {
            for object in entry.objects.values() {
                held.put(object.clone());
            }
            if let (ObjectRequest::Token(wanted), Some(token)) = (wanted, &entry.token) {
                let account = wanted.service_account.clone();
                held.put_token(wanted.namespace.clone(), account, token.clone());
            }
            if let (ObjectRequest::Certificate(own), Some(issuance)) =
                (wanted, &entry.course.issuance)
            {
                let own = PodCertificateSpec::clone(own);
                held.issuances.insert(own, issuance.clone());
            }
        }
        self.held = held;
    }

    pub(super) fn publish(&mut self, ctx: &mut Context<Msg>) {
        self.publishing = false;
        self.gather();
        // A new object may show that more is needed, or less.
        self.want(ctx);
        self.find_supplied();
        let mut shown = self.held.clone();
        for (wanted, entry) in &self.entries {
            let Some(why) = refusal(wanted, entry) else {
                continue;
            };
            if let ObjectRequest::Token(wanted) = wanted {
                shown.refused_tokens.insert(wanted.clone(), why);
            } else if let Some(place) = wanted.place() {
                shown.refused.insert(place, why);
            }
        }
        self.refuse_certificates(&mut shown);
        if let Some(folder) = &self.peers.folder {
            drop(shown.merge(StaticObjects::clone(&folder.snapshot())));
        }
        self.peers.store_writer.send_replace(Arc::new(shown));
        self.published += 1;
        self.count_certificates(ctx);
        self.tell(ctx);
    }

    /// Says why certificates are not requested, where that is so.
    fn refuse_certificates(&self, shown: &mut StaticObjects) {
        if self.asking == IssuancePolicy::Always {
            return;
        }
        let consumers = self.consumers.values();
        for own in consumers.flat_map(|consumer| &consumer.references.certificates) {
            let place = ObjectRequest::Certificate(Box::new(own.clone())).place();
            let refusals = place.map(|place| (place, GATE_IS_OFF.to_owned()));
            shown.refused.extend(refusals);
        }
    }

    fn find_supplied(&mut self) {
        let waiting = self
            .consumers
            .iter()
            .filter(|(_, consumer)| !consumer.supplied && !consumer.is_removed);
        let supplied: Vec<PodUid> = waiting
            .filter(|(_, consumer)| {
                let is_answered = |wanted: &ObjectRequest| {
                    let entry = self.entries.get(wanted);
                    entry.is_some_and(|entry| entry.answer == ResponseState::Given)
                };
                self.needs(consumer).iter().all(is_answered)
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in supplied {
            if let Some(consumer) = self.consumers.get_mut(&uid) {
                consumer.supplied = true;
            }
        }
    }

    /// After the objects are in the store, and only when the set has changed.
    fn tell(&mut self, ctx: &mut Context<Msg>) {
        let supplied = self
            .consumers
            .iter()
            .filter(|(_, consumer)| consumer.supplied && !consumer.is_removed);
        let supplied: BTreeSet<PodUid> = supplied.map(|(uid, _)| uid.clone()).collect();
        if self.notified.as_ref() == Some(&supplied) {
            return;
        }
        let mut all_sent = true;
        for peer in &self.peers.supplied {
            all_sent &= peer.tell(supplied.clone()).is_ok();
        }
        self.notified = all_sent.then_some(supplied);
        if !all_sent {
            ctx.after(TELL_AGAIN, Msg::Publish);
        }
    }
}

/// Why the object is missing; none if it is there, or if the server answers that it does not exist.
fn refusal(wanted: &ObjectRequest, entry: &ObjectEntry) -> Option<String> {
    if !entry.objects.is_empty() || entry.token.is_some() || entry.course.is_held() {
        return None;
    }
    if entry.trouble.is_some() || entry.course.is_telling() {
        return entry.trouble.clone();
    }
    // As upstream words it.
    let unanswered = match wanted {
        ObjectRequest::ConfigMap(_) => {
            "failed to sync configmap cache: timed out waiting for the condition"
        }
        ObjectRequest::Secret(_) => {
            "failed to sync secret cache: timed out waiting for the condition"
        }
        ObjectRequest::Claim(_)
        | ObjectRequest::PersistentVolume(_)
        | ObjectRequest::VolumeAttachment(_)
        | ObjectRequest::RuntimeClass(_)
        | ObjectRequest::Service(_)
        | ObjectRequest::Services(_)
        | ObjectRequest::CsiDrivers
        | ObjectRequest::TrustBundles
        | ObjectRequest::Token(_)
        | ObjectRequest::Certificate(_) => "the API server has not answered yet",
    };
    (entry.answer == ResponseState::Never).then(|| unanswered.to_owned())
}
