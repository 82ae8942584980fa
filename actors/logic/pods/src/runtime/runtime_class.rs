//! Which of a runtime's handlers runs a pod, and what that handler can do (upstream's
//! pkg/kubelet/runtimeclass at v1.36).

use k8s_openapi::api::core::v1::Pod;
use logic_api::objects::Objects;
use logic_api::pod::PodView;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The features of a runtime handler, as CRI's `Status` reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerFeatures {
    /// As the runtime reports of the handler.
    pub recursive_read_only_mounts: bool,
    /// As the runtime reports of the handler.
    pub user_namespaces: bool,
}

/// The pod names a class that does not exist.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("runtimeclass.node.k8s.io {name:?} not found")]
pub struct NoRuntimeClass {
    pub name: String,
}

/// The handler for a pod; the empty name is the runtime's default.
pub fn handler(pod: &Pod, objects: &dyn Objects) -> Result<String, NoRuntimeClass> {
    let named = pod
        .spec()
        .and_then(|spec| spec.runtime_class_name.as_deref());
    let Some(name) = named.filter(|name| !name.is_empty()) else {
        return Ok(String::new());
    };
    let missing = || NoRuntimeClass {
        name: name.to_owned(),
    };
    let class = objects.runtime_class(name).ok_or_else(missing)?;
    Ok(class.handler.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::node::v1::RuntimeClass;
    use logic_api::objects::StaticObjects;
    use logic_api::testing::*;

    use super::*;

    /// Upstream's TestLookupRuntimeHandler.
    #[test]
    fn a_class_leads_to_its_handler_and_none_to_the_default() {
        let mut objects = StaticObjects::default();
        let class = RuntimeClass {
            handler: "my-sandbox".into(),
            ..RuntimeClass::default()
        };
        objects
            .runtime_classes
            .insert("sandbox".into(), Arc::new(class));
        let missing = NoRuntimeClass {
            name: "phantom".into(),
        };
        assert_eq!(
            missing.to_string(),
            r#"runtimeclass.node.k8s.io "phantom" not found"#
        );
        let cases = [
            (None, Ok(String::new())),
            (Some(""), Ok(String::new())),
            (Some("sandbox"), Ok("my-sandbox".to_owned())),
            (Some("phantom"), Err(missing)),
        ];
        for (name, expected) in cases {
            let pod = pod("p").spec_with(|spec| spec.runtime_class_name = name.map(str::to_owned));
            assert_eq!(handler(&pod, &objects), expected);
        }
    }
}
