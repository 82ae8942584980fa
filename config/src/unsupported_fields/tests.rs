//! The table of what is honoured names every field and flag there is.

use std::collections::BTreeSet;

use super::*;
use crate::kubelet_configuration::specimen;

fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    let Some(fields) = value.as_object().filter(|fields| !fields.is_empty()) else {
        return found.push(path.to_owned());
    };
    for (key, inner) in fields {
        let dot = if path.is_empty() { "" } else { "." };
        leaves(inner, &format!("{path}{dot}{key}"), found);
    }
}

#[test]
fn every_field_has_exactly_one_row_and_every_row_a_field() {
    let specimen = specimen();
    let mut fields = Vec::new();
    leaves(&specimen, "", &mut fields);
    for field in &fields {
        let rows = FIELDS.iter().filter(|(row, _)| {
            field == row
                || field
                    .strip_prefix(row)
                    .is_some_and(|rest| rest.starts_with('.'))
        });
        assert_eq!(rows.count(), 1, "{field}");
    }
    for (row, _) in FIELDS {
        assert!(
            document::get(specimen.as_object().unwrap(), row).is_some(),
            "{row} is no field"
        );
    }
}

#[test]
fn every_own_flag_has_a_row_and_every_row_a_flag() {
    let flags = serde_json::to_value(KubeletFlags::default()).unwrap();
    let fields: BTreeSet<_> = flags
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        FLAGS.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(),
        fields
    );
    assert_eq!(FLAGS.len(), fields.len());
}

#[test]
fn a_setting_without_effect_is_named_with_its_reason_when_it_is_changed() {
    let default = KubeletConfiguration::default();
    let flags = KubeletFlags::default();
    let sentences = |set: &KubeletConfiguration, typed: &KubeletFlags| {
        without_effect(
            Compared {
                set,
                default: &default,
            },
            Compared {
                set: typed,
                default: &flags,
            },
        )
    };
    assert_eq!(sentences(&default, &flags), [""; 0]);

    let mut set = default.clone();
    set.hairpin_mode = "none".to_owned();
    set.enable_profiling_handler = !default.enable_profiling_handler;
    set.static_pod_path = "/etc/pods".to_owned();
    set.logging.verbosity = 3;
    set.logging.options.text.split_stream = true;
    set.image_service_endpoint = "unix:///other.sock".to_owned();
    let typed = KubeletFlags {
        experimental_mounter_path: "/k".to_owned(),
        housekeeping_interval: crate::kubelet_configuration::GoDuration::from_secs(1),
        root_dir: "/r".to_owned(),
        ..KubeletFlags::default()
    };
    assert_eq!(
        sentences(&set, &typed),
        [
            "imageServiceEndpoint has no effect: images are the runtime's, whose plugin serves both services of CRI",
            "hairpinMode has no effect: the kubelet only checks it, bridges are the runtime's and CNI's",
            "--housekeeping-interval has no effect: cgroups are read when they are asked for, not each so often",
        ]
    );
    set.container_runtime_endpoint
        .clone_from(&set.image_service_endpoint);
    assert_eq!(
        sentences(&set, &flags).len(),
        1,
        "the images of the runtime itself"
    );
}

#[test]
fn what_has_no_effect_has_a_reason() {
    let rows = FIELDS.iter().chain(&FLAGS);
    let reasons = rows.filter_map(|(name, honour)| match honour {
        Honour::NoEffect(reason) | Honour::Partly(reason) => Some((name, reason)),
        Honour::Honoured | Honour::Refused => None,
    });
    for (name, reason) in reasons {
        let words = reason.split(' ').count();
        assert!(words > 3 && !reason.ends_with('.'), "{name}: {reason}");
    }
}
