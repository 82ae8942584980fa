//! For any input: no panic, and defaulting is idempotent.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

/// The manifests as values, to be broken at random.
static SAMPLES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [LEAST, CONTROL_PLANE, RICH, POD_LEVEL].into_iter();
    let value = |text| serde_json::to_value(only(text).unwrap()).unwrap();
    texts.map(value).collect()
});

/// Replaces or removes the value that the steps lead to.
fn damage(value: &mut Value, steps: &[usize], with: &Option<Value>) {
    let Some((step, rest)) = steps.split_first() else {
        return value.clone_from(with.as_ref().unwrap_or(&Value::Null));
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(step % fields.len()).cloned().unwrap();
            if rest.is_empty() && with.is_none() {
                fields.remove(&key);
            } else {
                damage(&mut fields[&key], rest, with);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let index = step % items.len();
            damage(&mut items[index], rest, with);
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value.clone_from(with.as_ref().unwrap_or(&Value::Null)),
    }
}

fn junk() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        any::<i64>().prop_map(|number| Some(json!(number))),
        any::<bool>().prop_map(|truth| Some(json!(truth))),
        "\\PC{0,12}".prop_map(|text| Some(json!(text))),
        "[0-9]{0,30}([.][0-9]{0,30})?([eE]-?[0-9]{1,3}|[numkMGTPE]i?)?"
            .prop_map(|text| Some(json!(text))),
        Just(Some(json!([]))),
        Just(Some(json!({}))),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in "\\PC{0,200}") {
        for data in [bytes, text.into_bytes()] {
            drop(parse(&data, UnknownFields::Refuse));
        }
    }

    #[test]
    fn a_manifest_cut_and_spliced_anywhere_is_read_or_refused_without_panic(
        sample in 0_usize..4, at in 0_usize..4000, length in 0_usize..40, splice in "[-:{}\\[\\]&*!|>'\"#%@`,? \n\ta-z0-9]{0,8}",
    ) {
        let mut text = [LEAST, CONTROL_PLANE, RICH, POD_LEVEL][sample].as_bytes().to_vec();
        let start = at % text.len();
        let end = (start + length).min(text.len());
        text.splice(start..end, splice.into_bytes()).for_each(drop);
        for pod in parse(&text, UnknownFields::Warn).into_iter().flat_map(|parsed| parsed.pods).flatten() {
            drop(run(pod.pod));
        }
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(sample in 0_usize..4, steps in proptest::collection::vec(0_usize..40, 1..8), with in junk()) {
        let mut value = SAMPLES[sample].clone();
        damage(&mut value, &steps, &with);
        if let Ok(mut pod) = serde_json::from_value::<Pod>(value) {
            defaults::apply(&mut pod);
            let once = pod.clone();
            defaults::apply(&mut pod);
            prop_assert_eq!(&once, &pod);
            let start = "(*core.Pod){TypeMeta:(v1.TypeMeta){";
            prop_assert!(dump::pod(&pod, KubeletRelease::V1_36).starts_with(start));
            drop(run(pod));
        }
    }

    #[test]
    fn an_accepted_pod_is_accepted_again_as_yaml_and_as_json(sample in 0_usize..4, steps in proptest::collection::vec(0_usize..40, 1..8), with in junk()) {
        let mut value = SAMPLES[sample].clone();
        damage(&mut value, &steps, &with);
        let json = only(&value.to_string());
        let yaml = only(&format!("# yaml\n{value}"));
        if let Ok(json) = json {
            prop_assert_eq!(json, yaml.unwrap());
        }
    }
}
