//! A container's environment.
//!
//! Mirrors upstream's `makeEnvironmentVariables` (kubelet_pods.go at v1.36). Upstream's order is that of a Go
//! map, which is none; here it is that of the definition: `envFrom`, `env`, then services. A name that comes
//! again keeps its place and takes the later value. No name is passed over: since variables' names are
//! relaxed, whatever a ConfigMap or Secret may have as a key is one.

mod expansion;
mod field;
mod program_strings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use expansion::{Expander, NotExpanded};
use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod,
    SecretKeySelector,
};
use logic_api::objects::Objects;
use logic_api::pod::PodView;
use logic_api::text::env_file::{self, EnvFiles};
use logic_resources::node::policy::NodePolicy;
use logic_resources::resources::{self, ResourceFieldError};
pub use program_strings::{MAX_ARG_BYTES, MAX_ARG_STRLEN, ProgramStrings, TooLong};
use thiserror::Error;

use crate::network::services;

/// Environment variables in their order, each as name and value.
pub type Variables = Vec<(String, String)>;

/// The input of a container's environment.
#[derive(Clone, Copy, Debug)]
pub struct EnvironmentInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub pod_ips: &'a [String],
    pub node: &'a NodePolicy,
    pub objects: &'a dyn Objects,
    /// The files that [`env_file::required_files`] names.
    pub env_files: &'a EnvFiles,
}

/// Why a variable has no value; every text but the last is upstream's.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EnvironmentError {
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    #[error("field label not supported: {0}")]
    FieldLabel(String),
    #[error("field label does not support subscript: {0}")]
    Subscript(String),
    #[error("unsupported pod version: {0}")]
    FieldVersion(String),
    #[error("configmap {0:?} not found")]
    ConfigMap(String),
    #[error("secret {0:?} not found")]
    Secret(String),
    /// Whether the object exists is not known yet, or it may not be read.
    #[error("{0}")]
    Unknown(String),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    Key {
        key: String,
        /// The object's kind: `ConfigMap` or `Secret`.
        kind: &'static str,
        namespace: String,
        name: String,
    },
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    Volume(String),
    #[error("couldn't parse env file")]
    EnvFile,
    #[error("environment variable key {key:?} not found in file {file:?}")]
    FileKey { key: String, file: PathBuf },
    #[error(transparent)]
    Resource(#[from] ResourceFieldError),
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// A runtime is given text.
    #[error("key {key} of Secret {namespace}/{name} is not UTF-8")]
    NotText {
        key: String,
        namespace: String,
        name: String,
    },
}

impl EnvironmentError {
    /// Whether what is missing may come: the definition is right, the object, key or file is not there.
    pub fn transient(&self) -> bool {
        match self {
            Self::ConfigMap(_)
            | Self::Secret(_)
            | Self::Unknown(_)
            | Self::Key { .. }
            | Self::Volume(_)
            | Self::EnvFile
            | Self::FileKey { .. }
            | Self::TooLong(_)
            | Self::NotText { .. } => true,
            Self::Field(_)
            | Self::FieldLabel(_)
            | Self::Subscript(_)
            | Self::FieldVersion(_)
            | Self::Resource(_) => false,
        }
    }
}

/// Makes the list that the container gets.
///
/// A program's bound holds for each step: no more than [`MAX_ARG_BYTES`] are ever computed.
pub fn variables(input: &EnvironmentInput<'_>) -> Result<Variables, EnvironmentError> {
    let mut made = ResolvedVariables::default();
    for source in input.container.env_from.iter().flatten() {
        for (name, value) in input.all_of(source)? {
            made.set(name, value)?;
        }
    }
    let services = services::variables(input.pod, input.objects);
    let of_services: BTreeMap<&str, &str> = services
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    for variable in input.container.env.iter().flatten() {
        let literal = variable.value.as_ref().filter(|value| !value.is_empty());
        let value = match (literal, &variable.value_from) {
            (Some(text), _) => {
                let known = |name: &str| made.get(name).or_else(|| of_services.get(name).copied());
                Some(expand_value(&variable.name, text, known)?)
            }
            (None, Some(source)) => input.value(source)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            made.set(variable.name.clone(), value)?;
        }
    }
    for (name, value) in services {
        if made.get(&name).is_none() {
            made.set(name, value)?;
        }
    }
    Ok(made.list)
}

fn expand_value<'a>(
    name: &str,
    text: &str,
    known: impl FnMut(&str) -> Option<&'a str>,
) -> Result<String, TooLong> {
    // The name, the equals sign and the NUL are of the same string.
    let around = name.len() + 2;
    let max = MAX_ARG_STRLEN.saturating_sub(around);
    expansion::expand_by(text, max, known).map_err(|reached| TooLong {
        what: format!("environment variable {name:?} is"),
        reached: reached + around,
        max: MAX_ARG_STRLEN,
    })
}

/// The list, and where each name stands in it.
#[derive(Default)]
struct ResolvedVariables {
    list: Variables,
    places: BTreeMap<String, usize>,
    bytes: ProgramStrings,
}

impl ResolvedVariables {
    fn get(&self, name: &str) -> Option<&str> {
        self.places
            .get(name)
            .map(|place| self.list[*place].1.as_str())
    }

    fn set(&mut self, name: String, value: String) -> Result<(), TooLong> {
        let place = self.places.get(&name).copied();
        if let Some(place) = place {
            self.bytes.remove_variable(&name, &self.list[place].1);
        }
        self.bytes.add_variable(&name, &value)?;
        match place {
            Some(place) => self.list[place].1 = value,
            None => {
                self.places.insert(name.clone(), self.list.len());
                self.list.push((name, value));
            }
        }
        Ok(())
    }
}

impl EnvironmentInput<'_> {
    /// All that an `envFrom` brings, in the order of the keys; nothing for an optional object that is not there.
    fn all_of(&self, source: &EnvFromSource) -> Result<Variables, EnvironmentError> {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let named = |key: &String| format!("{prefix}{key}");
        let namespace = self.pod.namespace();
        if let Some(wanted) = &source.config_map_ref {
            return match self.objects.config_map(namespace, &wanted.name) {
                Some(map) => {
                    let data = map.data.iter().flatten();
                    Ok(data
                        .map(|(key, value)| (named(key), value.clone()))
                        .collect())
                }
                None => nothing_if(wanted.optional, self.no_map(&wanted.name)),
            };
        }
        if let Some(wanted) = &source.secret_ref {
            return match self.objects.secret(namespace, &wanted.name) {
                Some(secret) => {
                    let data = secret.data.iter().flatten();
                    data.map(|(key, value)| {
                        Ok((named(key), self.text(&wanted.name, key, &value.0)?))
                    })
                    .collect()
                }
                None => nothing_if(wanted.optional, self.no_secret(&wanted.name)),
            };
        }
        Ok(Variables::new())
    }

    /// None for an optional reference to what is not there.
    fn value(&self, source: &EnvVarSource) -> Result<Option<String>, EnvironmentError> {
        if let Some(selector) = &source.field_ref {
            return field::value(self, selector).map(Some);
        }
        if let Some(selector) = &source.resource_field_ref {
            let value = resources::field(self.pod, self.container, selector, self.node)?;
            return Ok(Some(value.to_string()));
        }
        let (value, is_optional) = if let Some(key) = &source.config_map_key_ref {
            (self.config_map_key(key), key.optional)
        } else if let Some(key) = &source.secret_key_ref {
            (self.secret_key(key), key.optional)
        } else if let Some(key) = &source.file_key_ref {
            (self.file_key(key), key.optional)
        } else {
            return Ok(Some(String::new()));
        };
        match value {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_optional == Some(true) && error.is_absence() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn config_map_key(&self, wanted: &ConfigMapKeySelector) -> Result<String, EnvironmentError> {
        let map = self.objects.config_map(self.pod.namespace(), &wanted.name);
        let map = map.ok_or_else(|| self.no_map(&wanted.name))?;
        let value = map.data.as_ref().and_then(|data| data.get(&wanted.key));
        value
            .cloned()
            .ok_or_else(|| self.no_key("ConfigMap", &wanted.name, &wanted.key))
    }

    fn secret_key(&self, wanted: &SecretKeySelector) -> Result<String, EnvironmentError> {
        let secret = self.objects.secret(self.pod.namespace(), &wanted.name);
        let secret = secret.ok_or_else(|| self.no_secret(&wanted.name))?;
        let value = secret.data.as_ref().and_then(|data| data.get(&wanted.key));
        let value = value.ok_or_else(|| self.no_key("Secret", &wanted.name, &wanted.key))?;
        self.text(&wanted.name, &wanted.key, &value.0)
    }

    /// As upstream, an empty value counts as none, and a file that cannot be read is never optional.
    fn file_key(&self, wanted: &FileKeySelector) -> Result<String, EnvironmentError> {
        let place = (wanted.volume_name.clone(), wanted.path.clone());
        let file = self.env_files.files.get(&place);
        let file = file.ok_or_else(|| EnvironmentError::Volume(wanted.volume_name.clone()))?;
        let text = file.text.as_ref().ok_or(EnvironmentError::EnvFile)?;
        let value = env_file::value(text, &wanted.key).map_err(|_| EnvironmentError::EnvFile)?;
        match value.is_empty() {
            false => Ok(value),
            true => Err(EnvironmentError::FileKey {
                key: wanted.key.clone(),
                file: file.host_path.clone(),
            }),
        }
    }

    fn no_map(&self, name: &str) -> EnvironmentError {
        let why = self
            .objects
            .refused("ConfigMap", self.pod.namespace(), name);
        why.map_or_else(
            || EnvironmentError::ConfigMap(name.to_owned()),
            EnvironmentError::Unknown,
        )
    }

    fn no_secret(&self, name: &str) -> EnvironmentError {
        let why = self.objects.refused("Secret", self.pod.namespace(), name);
        why.map_or_else(
            || EnvironmentError::Secret(name.to_owned()),
            EnvironmentError::Unknown,
        )
    }

    fn no_key(&self, kind: &'static str, name: &str, key: &str) -> EnvironmentError {
        EnvironmentError::Key {
            key: key.to_owned(),
            kind,
            namespace: self.pod.namespace().to_owned(),
            name: name.to_owned(),
        }
    }

    fn text(&self, name: &str, key: &str, value: &[u8]) -> Result<String, EnvironmentError> {
        let text = std::str::from_utf8(value).map(str::to_owned);
        text.map_err(|_| EnvironmentError::NotText {
            key: key.to_owned(),
            namespace: self.pod.namespace().to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Nothing at all in the place of an optional object that is not there.
fn nothing_if(
    optional: Option<bool>,
    error: EnvironmentError,
) -> Result<Variables, EnvironmentError> {
    match optional == Some(true) && error.is_absence() {
        true => Ok(Variables::new()),
        false => Err(error),
    }
}

impl EnvironmentError {
    /// Whether it is what `optional` allows to be missing.
    fn is_absence(&self) -> bool {
        match self {
            Self::ConfigMap(_) | Self::Secret(_) | Self::Key { .. } | Self::FileKey { .. } => true,
            Self::Field(_)
            | Self::FieldLabel(_)
            | Self::Subscript(_)
            | Self::FieldVersion(_)
            | Self::Volume(_)
            | Self::EnvFile
            | Self::Unknown(_)
            | Self::Resource(_)
            | Self::TooLong(_)
            | Self::NotText { .. } => false,
        }
    }
}
