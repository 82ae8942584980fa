//! A container's environment, and `$(NAME)` in commands and values.
//!
//! Mirrors upstream's `makeEnvironmentVariables` and third_party/forked/golang/expansion at v1.36.
//! ConfigMaps and Secrets are not at hand yet: a reference to one is an error unless it is optional.

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};
use thiserror::Error;

use crate::pod::PodView;
use crate::resources::{self, ResourceFieldError};
use crate::sandbox::NodePolicy;

/// Name and value, in the order of the definition.
pub type Variables = Vec<(String, String)>;

/// Why a variable has no value.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EnvironmentError {
    #[error("unsupported fieldPath: {path}")]
    Field { path: String },
    #[error("unsupported apiVersion {version:?} in fieldRef of {variable}: expected v1")]
    FieldVersion { variable: String, version: String },
    #[error("configmap {name:?} not found")]
    ConfigMap { name: String },
    #[error("secret {name:?} not found")]
    Secret { name: String },
    #[error("variable {variable}: values from a file are not supported yet")]
    FileKey { variable: String },
    #[error(transparent)]
    Resource(#[from] ResourceFieldError),
}

/// Makes the list that the container gets.
pub fn variables(
    pod: &Pod,
    container: &Container,
    pod_ips: &[String],
    node: &NodePolicy,
) -> Result<Variables, EnvironmentError> {
    let facts = Facts {
        pod,
        container,
        pod_ips,
        node,
    };
    let mut variables = Variables::new();
    for source in container.env_from.iter().flatten() {
        if let Some(map) = source
            .config_map_ref
            .as_ref()
            .filter(|r| r.optional != Some(true))
        {
            return Err(EnvironmentError::ConfigMap {
                name: map.name.clone(),
            });
        }
        if let Some(secret) = source
            .secret_ref
            .as_ref()
            .filter(|r| r.optional != Some(true))
        {
            return Err(EnvironmentError::Secret {
                name: secret.name.clone(),
            });
        }
    }
    for variable in container.env.iter().flatten() {
        let literal = variable.value.as_ref().filter(|value| !value.is_empty());
        let value = match (literal, &variable.value_from) {
            (Some(text), _) => Some(expand(text, &variables)),
            (None, Some(source)) => facts.value(&variable.name, source)?,
            (None, None) => Some(String::new()),
        };
        variables.extend(value.map(|value| (variable.name.clone(), value)));
    }
    Ok(variables)
}

struct Facts<'a> {
    pod: &'a Pod,
    container: &'a Container,
    pod_ips: &'a [String],
    node: &'a NodePolicy,
}

impl Facts<'_> {
    /// None for an optional reference to what is not there.
    fn value(
        &self,
        variable: &str,
        source: &EnvVarSource,
    ) -> Result<Option<String>, EnvironmentError> {
        if let Some(field) = &source.field_ref {
            let version = field.api_version.as_deref().unwrap_or("v1");
            if version != "v1" && !version.is_empty() {
                let (variable, version) = (variable.to_owned(), version.to_owned());
                return Err(EnvironmentError::FieldVersion { variable, version });
            }
            return self.field(&field.field_path).map(Some);
        }
        if let Some(field) = &source.resource_field_ref {
            let value = resources::field(self.pod, self.container, field, self.node)?;
            return Ok(Some(value.to_string()));
        }
        if let Some(key) = &source.config_map_key_ref {
            let name = key.name.clone();
            return optional(key.optional, EnvironmentError::ConfigMap { name });
        }
        if let Some(key) = &source.secret_key_ref {
            let name = key.name.clone();
            return optional(key.optional, EnvironmentError::Secret { name });
        }
        if let Some(key) = &source.file_key_ref {
            let variable = variable.to_owned();
            return optional(key.optional, EnvironmentError::FileKey { variable });
        }
        Ok(Some(String::new()))
    }

    fn field(&self, path: &str) -> Result<String, EnvironmentError> {
        let (pod, spec) = (self.pod, self.pod.spec());
        if let Some((field, key)) = subscript(path) {
            let words = match field {
                "metadata.labels" => pod.labels(),
                "metadata.annotations" => pod.annotations(),
                _ => {
                    return Err(EnvironmentError::Field {
                        path: path.to_owned(),
                    });
                }
            };
            return Ok(words.get(key).cloned().unwrap_or_default());
        }
        let host_ips = &self.node.host_ips;
        let pod_ips = if pod.host_network() {
            host_ips
        } else {
            self.pod_ips
        };
        let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
        let value = match path {
            "metadata.name" => pod.name().to_owned(),
            "metadata.namespace" => pod.namespace().to_owned(),
            "metadata.uid" => pod.uid().to_string(),
            "spec.nodeName" => spec
                .and_then(|s| s.node_name.clone())
                .unwrap_or_else(|| self.node.node_name.clone()),
            "spec.serviceAccountName" => spec
                .and_then(|s| s.service_account_name.clone())
                .unwrap_or_default(),
            "status.hostIP" => first(host_ips),
            "status.hostIPs" => host_ips.join(","),
            "status.podIP" => first(pod_ips),
            "status.podIPs" => pod_ips.join(","),
            _ => {
                return Err(EnvironmentError::Field {
                    path: path.to_owned(),
                });
            }
        };
        Ok(value)
    }
}

fn optional(
    is_optional: Option<bool>,
    error: EnvironmentError,
) -> Result<Option<String>, EnvironmentError> {
    if is_optional == Some(true) {
        Ok(None)
    } else {
        Err(error)
    }
}

/// Splits `metadata.labels['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (field, rest) = path.split_once("['")?;
    Some((field, rest.strip_suffix("']")?))
}

/// Replaces `$(NAME)` by its value; `$$` is a dollar, and an unknown name stays as it is written.
///
/// Where a name is listed twice, the later value counts.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match variables.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ConfigMapKeySelector, EnvVar, ObjectFieldSelector, ResourceFieldSelector,
        ResourceRequirements, SecretKeySelector,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::testing::*;

    /// Upstream's expansion TestMapping and TestMappingDual.
    #[test]
    fn references_expand_as_upstream() {
        let known = [
            ("VAR_A", "A"),
            ("VAR_B", "B"),
            ("VAR_C", "C"),
            ("VAR_REF", "$(VAR_A)"),
            ("VAR_EMPTY", ""),
        ];
        let variables: Variables = known.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        let cases = [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("$(VAR_A)$(VAR_B)", "AB"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("$$(VAR_A)", "$(VAR_A)"),
            ("$$$(VAR_A)", "$A"),
            ("$$$$(VAR_A)", "$$(VAR_A)"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("\n", "\n"),
            ("$", "$"),
            ("a$", "a$"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_A", "$(VAR_A"),
            ("$((VAR_A)", "$((VAR_A)"),
            ("$()", "$()"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            ("foo\\$(VAR_C)bar", "foo\\Cbar"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$(VAR_A),$(VAR_B),é", "A,B,é"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    fn literal(name: &str, value: &str) -> EnvVar {
        EnvVar {
            name: name.into(),
            value: Some(value.into()),
            value_from: None,
        }
    }

    fn from(name: &str, source: EnvVarSource) -> EnvVar {
        EnvVar {
            name: name.into(),
            value: None,
            value_from: Some(source),
        }
    }

    fn field(name: &str, path: &str) -> EnvVar {
        let field_ref = Some(ObjectFieldSelector {
            api_version: None,
            field_path: path.into(),
        });
        from(
            name,
            EnvVarSource {
                field_ref,
                ..EnvVarSource::default()
            },
        )
    }

    fn made(pod: Pod, env: Vec<EnvVar>) -> Result<Variables, EnvironmentError> {
        let pod = pod.app_with("c", |c| {
            c.env = Some(env);
            let limits = quantities(&[("cpu", "1500m"), ("memory", "64Mi")]);
            c.resources = Some(ResourceRequirements {
                limits: Some(limits),
                ..ResourceRequirements::default()
            });
        });
        let node = NodePolicy {
            node_name: "edge-1".into(),
            host_ips: vec!["192.168.0.1".into(), "fd00::1".into()],
            memory_capacity: 1 << 30,
            ..NodePolicy::default()
        };
        let ips = ["10.0.0.1".to_owned(), "fd00::2".to_owned()];
        variables(&pod, &pod.app_containers()[0], &ips, &node)
    }

    #[test]
    fn literals_see_the_variables_before_them() {
        let env = vec![
            literal("A", "1"),
            literal("B", "$(A)$(C)"),
            literal("C", "3"),
            literal("A", "$(A)1"),
        ];
        let pairs = [("A", "1"), ("B", "1$(C)"), ("C", "3"), ("A", "11")];
        let expected: Variables = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        assert_eq!(made(pod("p"), env), Ok(expected));
    }

    #[test]
    fn fields_of_the_pod_are_its_values() {
        let mut pod = pod("web");
        pod.metadata.labels = Some(words(&[("app/tier", "front")]));
        pod.metadata.annotations = Some(words(&[("note", "x")]));
        pod.spec.as_mut().unwrap().service_account_name = Some("robot".into());
        let cases = [
            ("metadata.name", "web"),
            ("metadata.namespace", "default"),
            ("metadata.uid", "web-uid"),
            ("metadata.labels['app/tier']", "front"),
            ("metadata.annotations['note']", "x"),
            ("metadata.annotations['none']", ""),
            ("spec.nodeName", "edge-1"),
            ("spec.serviceAccountName", "robot"),
            ("status.hostIP", "192.168.0.1"),
            ("status.hostIPs", "192.168.0.1,fd00::1"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1,fd00::2"),
        ];
        for (path, value) in cases {
            let made = made(pod.clone(), vec![field("X", path)]);
            assert_eq!(made, Ok(vec![("X".to_owned(), value.to_owned())]), "{path}");
        }
        for path in ["metadata.nothing", "metadata.labels['x", "spec['a']", ""] {
            let error = EnvironmentError::Field {
                path: path.to_owned(),
            };
            assert_eq!(made(pod.clone(), vec![field("X", path)]), Err(error));
        }
        let on_host = pod.spec_with(|spec| spec.host_network = Some(true));
        assert_eq!(
            made(on_host, vec![field("X", "status.podIP")]).unwrap()[0].1,
            "192.168.0.1"
        );
    }

    /// Upstream's TestExtractContainerResourceValue, as variables.
    #[test]
    fn resource_fields_are_divided_and_rounded_up() {
        let cases = [
            ("limits.cpu", "", None, Ok("2")),
            ("limits.cpu", "1m", None, Ok("1500")),
            ("limits.memory", "1Mi", None, Ok("64")),
            ("limits.memory", "100M", None, Ok("1")),
            ("requests.memory", "", None, Ok("0")),
            ("requests.cpu", "1", None, Ok("0")),
            (
                "limits.cpu",
                "1",
                Some("nobody"),
                Err("container nobody not found"),
            ),
            (
                "limits.gpu",
                "",
                None,
                Err("unsupported container resource : limits.gpu"),
            ),
            (
                "limits.cpu",
                "-1",
                None,
                Err("divisor of limits.cpu is not a positive quantity"),
            ),
        ];
        for (resource, divisor, container, expected) in cases {
            let selector = ResourceFieldSelector {
                container_name: container.map(str::to_owned),
                divisor: (!divisor.is_empty()).then(|| {
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity(divisor.into())
                }),
                resource: resource.into(),
            };
            let source = EnvVarSource {
                resource_field_ref: Some(selector),
                ..EnvVarSource::default()
            };
            let made = made(pod("p"), vec![from("X", source)]);
            let made = made
                .map(|list| list[0].1.clone())
                .map_err(|error| error.to_string());
            assert_eq!(
                made.as_deref().map_err(String::as_str),
                expected,
                "{resource} / {divisor}"
            );
        }
    }

    #[test]
    fn what_is_not_at_hand_is_an_error_unless_it_is_optional() {
        let map = |optional| EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                key: "k".into(),
                name: "m".into(),
                optional,
            }),
            ..EnvVarSource::default()
        };
        let secret = EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                key: "k".into(),
                name: "s".into(),
                optional: None,
            }),
            ..EnvVarSource::default()
        };
        assert_eq!(made(pod("p"), vec![from("X", map(Some(true)))]), Ok(vec![]));
        let error = made(pod("p"), vec![from("X", map(None))]).unwrap_err();
        assert_eq!(error.to_string(), "configmap \"m\" not found");
        let error = made(pod("p"), vec![from("X", secret)]).unwrap_err();
        assert_eq!(error.to_string(), "secret \"s\" not found");
    }

    proptest! {
        #[test]
        fn text_without_dollars_stays_and_none_panics(text in any::<String>()) {
            let expanded = expand(&text, &[("A".to_owned(), "1".to_owned())]);
            prop_assert!(text.contains('$') || expanded == text);
        }
    }
}
