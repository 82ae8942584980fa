//! Defaults and resets of a new object before it is stored, by kind.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use serde_json::{Value, json};

use crate::endpoints::request_info::RequestInfo;
use crate::kinds::Resource;
use crate::server::state::State;
use crate::{certificates, pods};

pub(super) fn for_create(state: &State, call: &RequestInfo, object: &mut Value) {
    reset_status(call.resource, object);
    match (call.resource.group, call.resource.plural) {
        ("", "pods") => pods::defaults::fill(object),
        ("", "namespaces") => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"] = json!({"finalizers": ["kubernetes"]});
        }
        ("", "secrets") => text_into_data(object),
        ("", "services") => service(object),
        ("", "persistentvolumeclaims") => {
            default(&mut object["spec"], "volumeMode", json!("Filesystem"))
        }
        ("", "persistentvolumes") => {
            default(&mut object["spec"], "volumeMode", json!("Filesystem"));
            default(
                &mut object["spec"],
                "persistentVolumeReclaimPolicy",
                json!("Retain"),
            );
        }
        ("storage.k8s.io", "csidrivers") => csi_driver(object),
        ("certificates.k8s.io", "podcertificaterequests") => {
            certificates::pods::fill(&mut object["spec"]);
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            object["spec"]["username"] = json!(call.user.name);
            object["spec"]["groups"] = json!(call.user.groups);
            default(
                &mut object["spec"],
                "usages",
                json!(["digital signature", "key encipherment"]),
            );
            certificates::written(state, object);
        }
        _ => {}
    }
}

/// A create may not set the status; only nodes come with theirs.
fn reset_status(resource: &Resource, object: &mut Value) {
    if !resource.has_status() || resource.storage_key == "nodes" {
        return;
    }
    let status = match resource.storage_key {
        "pods" | "persistentvolumes" | "persistentvolumeclaims" => json!({"phase": "Pending"}),
        "namespaces" => json!({"phase": "Active"}),
        "services" => json!({"loadBalancer": {}}),
        "volumeattachments" => json!({"attached": false}),
        _ => json!({}),
    };
    object["status"] = status;
}

/// Writes a field that is absent.
pub(crate) fn default(object: &mut Value, field: &str, value: Value) {
    if object.get(field).is_none_or(Value::is_null) {
        object[field] = value;
    }
}

pub(super) fn text_into_data(object: &mut Value) {
    default(object, "type", json!("Opaque"));
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let Some(Value::Object(texts)) = fields.remove("stringData") else {
        return;
    };
    for (key, text) in texts {
        object["data"][key] = json!(BASE64.encode(text.as_str().unwrap_or_default().as_bytes()));
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, "type", json!("ClusterIP"));
    default(spec, "sessionAffinity", json!("None"));
    default(spec, "internalTrafficPolicy", json!("Cluster"));
    default(spec, "ipFamilies", json!(["IPv4"]));
    default(spec, "ipFamilyPolicy", json!("SingleStack"));
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        default(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        default(port, "targetPort", number);
    }
    if spec["type"] == "ExternalName" {
        return;
    }
    // Any address of the range will do: no packet is routed to it.
    let name = object["metadata"]["uid"].as_str().unwrap_or_default();
    let sum = name.bytes().fold(7u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let address = format!("10.96.{}.{}", (sum >> 8) & 0xff, 1 + (sum & 0x7f));
    let spec = &mut object["spec"];
    default(spec, "clusterIP", json!(address));
    let address = spec["clusterIP"].clone();
    default(spec, "clusterIPs", json!([address]));
}

fn csi_driver(object: &mut Value) {
    let defaults = [
        ("attachRequired", json!(true)),
        ("podInfoOnMount", json!(false)),
        ("storageCapacity", json!(false)),
        ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ("volumeLifecycleModes", json!(["Persistent"])),
        ("requiresRepublish", json!(false)),
        ("seLinuxMount", json!(false)),
    ];
    for (field, value) in defaults {
        default(&mut object["spec"], field, value);
    }
}
