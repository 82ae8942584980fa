//! The attributes of a request that an authorizer decides on.

use serde_json::Value;

use crate::endpoints::request_info::RequestInfo;

/// The attributes of a request: a user, a verb, and a resource or a non-resource path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessAttributes {
    /// The name of the user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The verb, as `get`.
    pub verb: String,
    /// The group of the resource; empty for the core.
    pub group: String,
    /// The resource, as `pods`.
    pub resource: String,
    /// The part of it, as `log`.
    pub subresource: String,
    /// The namespace; empty for all, and for what is in none.
    pub namespace: String,
    /// The name of the object; empty for all.
    pub name: String,
    /// The path, where no resource is meant.
    pub path: String,
}

/// A test's decision on a request: allowed or not; none leaves it to the usual rights.
pub(crate) type AuthorizationHook = Box<dyn Fn(&AccessAttributes) -> Option<bool> + Send>;

impl AccessAttributes {
    pub(super) fn of_call(call: &RequestInfo) -> AccessAttributes {
        AccessAttributes {
            user: call.user.name.clone(),
            groups: call.user.groups.clone(),
            verb: call.verb.word().to_string(),
            group: call.resource.group.to_string(),
            resource: call.resource.plural.to_string(),
            subresource: call.subresource().unwrap_or_default().to_string(),
            namespace: call.namespace().to_string(),
            name: call.name().to_string(),
            path: String::new(),
        }
    }

    /// Reads the spec of an access review.
    pub(crate) fn of_review(spec: &Value) -> AccessAttributes {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let attributes = &spec["resourceAttributes"];
        let paths = &spec["nonResourceAttributes"];
        let from = if attributes.is_object() {
            attributes
        } else {
            paths
        };
        AccessAttributes {
            user: text(&spec["user"]),
            groups: words(&spec["groups"]),
            verb: text(&from["verb"]),
            group: text(&attributes["group"]),
            resource: text(&attributes["resource"]),
            subresource: text(&attributes["subresource"]),
            namespace: text(&attributes["namespace"]),
            name: text(&attributes["name"]),
            path: text(&paths["path"]),
        }
    }

    pub(super) fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// Returns the sentence that says no.
    pub(super) fn refusal(&self) -> String {
        let resource = if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        };
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_string()
        } else {
            format!("in the namespace \"{}\"", self.namespace)
        };
        format!(
            "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
            self.user, self.verb, self.group
        )
    }
}

pub(crate) fn words(value: &Value) -> Vec<String> {
    let words = value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    words.map(str::to_string).collect()
}
