//! Whether two statuses say the same.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use logic_api::decode::absent_fields::is_absent;
use logic_api::pod::conditions::{DISRUPTION_TARGET, is_kubelet_condition};
use logic_api::quantity::{Quantity, compare};
use serde_json::{Map, Value};

/// Where quantities are: how they are written does not matter.
const QUANTITIES: [&str; 3] = ["limits", "requests", "allocatedResources"];

/// Whether nothing of what the agent says has changed; conditions and claims of others do not count, nor does since
/// when a condition is as it is.
pub fn equal(old: &PodStatus, new: &PodStatus) -> bool {
    old == new || conditions(old) == conditions(new) && same_rest(old, new)
}

type StatusText<'a> = (&'a str, &'a str, &'a str);

fn conditions(status: &PodStatus) -> BTreeMap<&str, StatusText<'_>> {
    let all = status.conditions.iter().flatten();
    let ours = all.filter(|c| is_kubelet_condition(&c.type_) || c.type_ == DISRUPTION_TARGET);
    ours.map(|c| (c.type_.as_str(), condition_text(c)))
        .collect()
}

fn condition_text(condition: &PodCondition) -> StatusText<'_> {
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    (&condition.status, reason, message)
}

fn same_rest(old: &PodStatus, new: &PodStatus) -> bool {
    let rest = |status: &PodStatus| {
        let mut value = super::diff::json(status);
        value.retain(|field, _| !field.ends_with("ClaimStatuses") && field != "conditions");
        value.remove("extendedResourceClaimStatus");
        value
    };
    same_fields("", &rest(old), &rest(new))
}

/// Compares as the API does, in which an empty value is none.
pub(super) fn same(field: &str, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => same_fields(field, old, new),
        (Value::Array(old), Value::Array(new)) => {
            let mut pairs = old.iter().zip(new);
            old.len() == new.len() && pairs.all(|(old, new)| same(field, old, new))
        }
        _ => old == new || is_absent(field, old) && is_absent(field, new),
    }
}

fn same_fields(field: &str, old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let all = old
        .keys()
        .chain(new.keys().filter(|key| !old.contains_key(*key)));
    let amounts = QUANTITIES.contains(&field);
    let of = |map: &Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
    all.into_iter().all(|key| {
        let (old, new) = (of(old, key), of(new, key));
        amounts && same_amount(&old, &new) || same(key, &old, &new)
    })
}

fn same_amount(old: &Value, new: &Value) -> bool {
    let amount = |value: &Value| Quantity::parse(value.as_str()?).ok();
    let both = amount(old).zip(amount(new));
    both.is_some_and(|(old, new)| compare(&old, &new) == Ordering::Equal)
}
