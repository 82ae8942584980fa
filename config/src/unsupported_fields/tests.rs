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
fn only_what_was_changed_and_is_not_honoured_is_named() {
    let default = KubeletConfiguration::default();
    let flags = KubeletFlags::default();
    let names = |set: &KubeletConfiguration, typed: &KubeletFlags| {
        not_honoured(
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
    assert!(names(&default, &flags).is_empty());

    let mut set = default.clone();
    set.hairpin_mode = "none".to_owned();
    set.tracing = Some(crate::kubelet_configuration::Tracing::default());
    set.static_pod_path = "/etc/pods".to_owned();
    set.logging.verbosity = 3;
    set.logging.options.text.split_stream = true;
    set.max_open_files = 5;
    set.image_service_endpoint = "unix:///other.sock".to_owned();
    let typed = KubeletFlags {
        experimental_mounter_path: "/k".to_owned(),
        lock_file: "/k".to_owned(),
        root_dir: "/r".to_owned(),
        ..KubeletFlags::default()
    };
    assert_eq!(names(&set, &typed), ["imageServiceEndpoint"]);
}

#[test]
fn what_has_no_effect_has_a_reason() {
    let rows = FIELDS.iter().chain(&FLAGS);
    let reasons = rows.filter_map(|(name, honour)| match honour {
        Honour::NoEffect(reason) => Some((name, reason)),
        Honour::Honoured | Honour::NotYet | Honour::Refused => None,
    });
    for (name, reason) in reasons {
        let words = reason.split(' ').count();
        assert!(words > 3 && !reason.ends_with('.'), "{name}: {reason}");
    }
}
