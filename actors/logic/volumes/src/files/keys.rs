//! Entries of a ConfigMap or Secret as files: all, or those that are named.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, ConfigMapVolumeSource, KeyToPath, Secret, SecretProjection,
    SecretVolumeSource,
};
use logic_api::objects::MAX_OBJECT_BYTES;
use logic_api::pod::PodView;

use super::super::FileProjection;
use super::problem::FilesProblem;
use super::{FilesBuilder, bits};

/// Which keys of an object are projected.
#[derive(Clone, Copy)]
pub(super) struct KeySelection<'a> {
    pub(super) name: &'a str,
    /// None or empty is all.
    items: Option<&'a [KeyToPath]>,
    mode: u32,
    /// Neither the object nor any key need be there.
    optional: bool,
}

impl<'a> From<&'a ConfigMapVolumeSource> for KeySelection<'a> {
    fn from(source: &'a ConfigMapVolumeSource) -> Self {
        Self {
            name: &source.name,
            items: source.items.as_deref(),
            mode: bits(source.default_mode),
            optional: source.optional == Some(true),
        }
    }
}

impl<'a> From<&'a SecretVolumeSource> for KeySelection<'a> {
    fn from(source: &'a SecretVolumeSource) -> Self {
        Self {
            name: source.secret_name.as_deref().unwrap_or_default(),
            items: source.items.as_deref(),
            mode: bits(source.default_mode),
            optional: source.optional == Some(true),
        }
    }
}

impl<'a> KeySelection<'a> {
    pub(super) fn of_map(source: &'a ConfigMapProjection, mode: u32) -> Self {
        Self {
            name: &source.name,
            items: source.items.as_deref(),
            mode,
            optional: source.optional == Some(true),
        }
    }

    pub(super) fn of_secret(source: &'a SecretProjection, mode: u32) -> Self {
        Self {
            name: &source.name,
            items: source.items.as_deref(),
            mode,
            optional: source.optional == Some(true),
        }
    }
}

/// Name and content; of two with one name the later stands.
type KeyEntries<'a> = Vec<(&'a str, &'a [u8])>;

pub(super) fn config_map(builder: &mut FilesBuilder<'_>, wanted: &KeySelection<'_>) {
    let namespace = builder.pod.namespace();
    builder.uses("ConfigMap", namespace, wanted.name);
    match builder.context.objects.config_map(namespace, wanted.name) {
        Some(map) => {
            builder.take("configmap", &of_map(&map), wanted, FilesProblem::ConfigKey);
        }
        None => builder.miss("ConfigMap", "configmap", wanted),
    }
}

pub(super) fn secret(builder: &mut FilesBuilder<'_>, wanted: &KeySelection<'_>) {
    let namespace = builder.pod.namespace();
    builder.uses("Secret", namespace, wanted.name);
    match builder.context.objects.secret(namespace, wanted.name) {
        Some(secret) => {
            let entries = of_secret(&secret);
            builder.take("secret", &entries, wanted, FilesProblem::SecretKey);
        }
        None => builder.miss("Secret", "secret", wanted),
    }
}

/// The binary entries last: as files they overwrite those of text, by name the text is found first.
fn of_map(map: &ConfigMap) -> KeyEntries<'_> {
    let text = map.data.iter().flatten();
    let text = text.map(|(key, value)| (key.as_str(), value.as_bytes()));
    let binary = map.binary_data.iter().flatten();
    text.chain(binary.map(|(key, value)| (key.as_str(), value.0.as_slice())))
        .collect()
}

fn of_secret(secret: &Secret) -> KeyEntries<'_> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.as_str(), value.0.as_slice()))
        .collect()
}

/// A file's path, mode and content.
type SelectedKey<'a> = (&'a str, u32, &'a [u8]);

fn selected<'a>(
    kind: &'static str,
    entries: &KeyEntries<'a>,
    wanted: &KeySelection<'a>,
    no_key: fn(String) -> FilesProblem,
) -> Result<Vec<SelectedKey<'a>>, FilesProblem> {
    let bytes = entries.iter().map(|(_, data)| data.len()).sum();
    if bytes > MAX_OBJECT_BYTES {
        return Err(FilesProblem::ObjectSize {
            kind,
            name: wanted.name.to_owned(),
            bytes,
        });
    }
    let Some(items) = wanted.items.filter(|items| !items.is_empty()) else {
        let all = entries.iter();
        return Ok(all.map(|(key, data)| (*key, wanted.mode, *data)).collect());
    };
    let mut by_key: BTreeMap<&str, &[u8]> = BTreeMap::new();
    for (key, data) in entries {
        by_key.entry(key).or_insert(data);
    }
    let mut files = Vec::new();
    for item in items {
        match by_key.get(item.key.as_str()) {
            Some(data) => {
                let mode = item.mode.map_or(wanted.mode, |mode| bits(Some(mode)));
                files.push((item.path.as_str(), mode, *data));
            }
            None if wanted.optional => {}
            None => return Err(no_key(item.key.clone())),
        }
    }
    Ok(files)
}

impl FilesBuilder<'_> {
    fn take(
        &mut self,
        kind: &'static str,
        entries: &KeyEntries<'_>,
        wanted: &KeySelection<'_>,
        no_key: fn(String) -> FilesProblem,
    ) {
        let files = match selected(kind, entries, wanted, no_key) {
            Ok(files) => files,
            Err(problem) => return self.problems.push(problem),
        };
        for (path, mode, data) in files {
            if self.is_full() {
                return;
            }
            let file = FileProjection {
                data: data.to_vec(),
                mode,
                owner: None,
            };
            self.put(path, file);
        }
    }

    fn miss(&mut self, kind: &str, resource: &'static str, wanted: &KeySelection<'_>) {
        let objects = self.context.objects;
        let refused = objects.refused(kind, self.pod.namespace(), wanted.name);
        // An object that could not be looked up may exist.
        if wanted.optional && refused.is_none() {
            return;
        }
        self.problems.push(FilesProblem::Missing {
            kind: resource,
            name: wanted.name.to_owned(),
            refused,
        });
    }
}
