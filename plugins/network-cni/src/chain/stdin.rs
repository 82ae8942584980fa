//! The configuration that a plugin reads on its standard input.

use serde_json::{Map, Value, json};

use super::Verb;
use crate::attachments::AttachmentId;
use crate::conflist::PluginConf;
use crate::result::CniResult;

/// Returns the plugin's configuration with what the runtime puts in: the network's name and version, the result so
/// far, and those capabilities that the plugin declares.
pub(super) fn configuration(
    verb: Verb<'_>,
    plugin: &PluginConf,
    result: Option<&CniResult>,
) -> Map<String, Value> {
    let mut fields = plugin.fields.clone();
    let version = verb.network.version;
    fields.insert("name".to_owned(), verb.network.name.as_str().into());
    fields.insert("cniVersion".to_owned(), version.as_str().into());
    if let Some(result) = result {
        fields.insert("prevResult".to_owned(), result.to_value(version));
    }
    match verb.attachment {
        Some(of) => {
            let declared = of.capabilities.iter();
            let declared = declared.filter(|(name, _)| plugin.capabilities.contains(*name));
            let given: Map<_, _> = declared
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            if !given.is_empty() {
                fields.insert("runtimeConfig".to_owned(), Value::Object(given));
            }
        }
        None => fields.extend(verb.more.clone()),
    }
    fields
}

/// What GC is told, under the specification's word and under the one that it had by mistake at first.
pub(super) fn valid_attachments(valid: &[AttachmentId]) -> Map<String, Value> {
    let list = valid
        .iter()
        .map(|id| json!({ "containerID": id.sandbox, "ifname": id.interface }));
    let list = Value::Array(list.collect());
    Map::from_iter([
        ("cni.dev/valid-attachments".to_owned(), list.clone()),
        ("cni.dev/attachments".to_owned(), list),
    ])
}
