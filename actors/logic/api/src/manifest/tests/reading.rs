//! From bytes to pods.

use super::*;

#[test]
fn decode_single_pod_reads_yaml_and_json_alike() {
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: c, image: 'localhost/i:1'}\n";
    assert_eq!(only(yaml).unwrap(), only(&base().to_string()).unwrap());
    let flow = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: 'localhost/i:1'}]}}";
    assert_eq!(only(flow).unwrap(), only(&base().to_string()).unwrap());
    assert_eq!(
        only(&format!("\u{feff}{yaml}")).unwrap(),
        only(yaml).unwrap()
    );
}

#[test]
fn a_scalar_that_is_no_text_is_refused_where_a_text_is_expected() {
    for scalar in ["8080", "0123", "yes", "1e3"] {
        let env = format!("env: [{{name: e, value: {scalar}}}]");
        let text = format!("{LEAST}    {env}\n");
        let error = only(&text).unwrap_err().to_string();
        let start = "spec.containers[0].env[0].value: invalid type: ";
        assert!(error.starts_with(start), "{error}");
        let quoted = text.replace(scalar, &format!("'{scalar}'"));
        let pod = only(&quoted).unwrap();
        let env = pod.spec.unwrap().containers.remove(0).env.unwrap();
        assert_eq!(env[0].value.as_deref(), Some(scalar));
    }
}

#[test]
fn modes_truths_and_quantities_may_stand_without_quotes() {
    let spec = only(RICH).unwrap().spec.unwrap();
    let facts = spec
        .volumes
        .as_ref()
        .unwrap()
        .iter()
        .find_map(|volume| volume.downward_api.as_ref())
        .unwrap();
    assert_eq!(facts.default_mode, Some(0o400));
    assert_eq!(spec.enable_service_links, Some(false));
    assert_eq!(spec.overhead.unwrap()["cpu"].0, "0.1");
}

#[test]
fn decode_pod_list_and_list_hold_several_pods() {
    for kind in ["PodList", "List"] {
        let list = json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": [base(), base()]});
        assert_eq!(parsed(&list.to_string()).pods.len(), 2, "{kind}");
    }
    assert!(parsed("apiVersion: v1\nkind: PodList").pods.is_empty());
    assert!(
        parsed("apiVersion: v1\nkind: PodList\nitems: []")
            .pods
            .is_empty()
    );
}

/// The text of a value as YAML, each whole number written by `write`.
fn with_numbers(value: &Value, write: fn(i64) -> String) -> String {
    fn mark(value: &mut Value, write: fn(i64) -> String) {
        match value {
            Value::Number(number) => {
                let number = number.as_i64().unwrap();
                *value = Value::String(format!("<{}>", write(number)));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| mark(item, write)),
            Value::Object(fields) => fields.values_mut().for_each(|field| mark(field, write)),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    let mut value = value.clone();
    mark(&mut value, write);
    let text = value.to_string().replace("\"<", "").replace(">\"", "");
    format!("# yaml\n{text}")
}

#[test]
fn whole_numbers_are_read_however_yaml_writes_them() {
    let writings: [fn(i64) -> String; 3] = [
        |number| format!("{number}.0"),
        |number| format!("{number}e+00"),
        |number| format!("{number}00e-2"),
    ];
    for manifest in [RICH, CONTROL_PLANE] {
        let expected = only(manifest).unwrap();
        let value = serde_json::to_value(&expected).unwrap();
        for write in writings {
            let text = with_numbers(&value, write);
            assert_eq!(only(&text).unwrap(), expected, "{}", write(7));
        }
    }
}

#[test]
fn a_fraction_is_refused_with_its_path_where_the_field_is_an_integer() {
    let cases = [
        ("/spec/securityContext", "runAsUser", "1.00064e+09", Ok(())),
        (
            "/spec/securityContext",
            "runAsUser",
            "1.5",
            Err("spec.securityContext.runAsUser: "),
        ),
        (
            "/spec",
            "activeDeadlineSeconds",
            "1e+400",
            Err("manifest: "),
        ),
        (
            "/spec",
            "activeDeadlineSeconds",
            "1e+30",
            Err("spec.activeDeadlineSeconds: "),
        ),
        ("/spec", "priority", "3e9", Err("spec.priority: ")),
        ("/spec", "overhead", "{cpu: 0.5, memory: 1.1e+02}", Ok(())),
    ];
    for (parent, field, text, expected) in cases {
        let mut pod = with("/spec/securityContext", json!({}));
        pod.pointer_mut(parent).unwrap()[field] = json!("<>");
        let read = only(&format!(
            "# yaml\n{}",
            pod.to_string().replace("\"<>\"", text)
        ));
        let refused = read.map(drop).map_err(|error| error.to_string());
        match expected {
            Ok(()) => assert_eq!(refused, Ok(()), "{text}"),
            Err(start) => assert!(
                refused.as_ref().is_err_and(|why| why.starts_with(start)),
                "{text}: {refused:?}"
            ),
        }
    }
}

#[test]
fn one_bad_pod_of_a_list_does_not_hide_the_others() {
    let bad = [
        (
            with("/spec/hostNetwork", json!("maybe")),
            "items[1].spec.hostNetwork: ",
        ),
        (
            with("/spec/containerz", json!([])),
            "items[1].spec.containerz: unknown field, expected a field of v1 PodSpec",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service"}),
            "items[1]: invalid value: string \"Service\", expected Pod",
        ),
        (json!(7), "items[1]: "),
    ];
    for (item, start) in bad {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [base(), item, base()]});
        for text in [list.to_string(), format!("# yaml\n{list}")] {
            let pods = parsed(&text).pods;
            assert_eq!(
                pods.iter().map(Result::is_ok).collect::<Vec<_>>(),
                [true, false, true],
                "{text}"
            );
            let error = pods[1].as_ref().unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}

#[test]
fn all_items_of_a_list_may_be_bad_and_a_broken_list_is_one_error() {
    let bad = with("/spec/hostNetwork", json!("maybe"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [bad, bad, bad]});
    assert!(parsed(&list.to_string()).pods.iter().all(Result::is_err));
    let text = list.to_string();
    let cut = text.trim_end_matches('}');
    assert!(parse(cut.as_bytes(), UnknownFields::Refuse).is_err());
}

#[test]
fn unknown_fields_are_refused_by_path_and_type() {
    let mut pod = base();
    pod["spec"]["containers"][0]["imagee"] = json!("x");
    pod["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": "/x", "typ": 1}}]);
    pod["metadata"]["lables"] = json!({});
    pod["sepc"] = json!(null);
    let error = parse(pod.to_string().as_bytes(), UnknownFields::Refuse)
        .unwrap()
        .pods
        .remove(0)
        .unwrap_err();
    let ManifestError::UnknownFields { mut fields } = error else {
        panic!("{error}");
    };
    fields.sort_by(|left, right| left.path.cmp(&right.path));
    let sentences: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let expected = [
        "metadata.lables: unknown field, expected a field of v1 ObjectMeta",
        "sepc: unknown field, expected a field of v1 Pod",
        "spec.containers[0].imagee: unknown field, expected a field of v1 Container",
        "spec.volumes[0].hostPath.typ: unknown field, expected a field of v1 HostPathVolumeSource",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn unknown_fields_are_warnings_where_upstreams_leniency_is_asked_for() {
    let text = with("/spec/fromTheFuture", json!({"a": [1]})).to_string();
    let pod = parse(text.as_bytes(), UnknownFields::Warn)
        .unwrap()
        .pods
        .remove(0)
        .unwrap();
    assert_eq!(
        pod.warnings,
        ["spec.fromTheFuture: unknown field, expected a field of v1 PodSpec"]
    );
    assert_eq!(pod.pod, only(&base().to_string()).unwrap());
}

#[test]
fn only_the_first_document_counts_and_the_rest_is_named() {
    let parsed = parsed(&format!("---\n{LEAST}---\nkind: Secret\n"));
    assert_eq!(parsed.pods[0].as_ref().unwrap().pod, only(LEAST).unwrap());
    assert_eq!(parsed.warnings.len(), 1);
    assert!(self::parsed(LEAST).warnings.is_empty());
}

#[test]
fn malformed_input_is_an_error_that_names_field_and_expectation() {
    let deep = format!(
        "apiVersion: v1\nkind: Pod\nspec: {}{}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let deep_json = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"x\":{}{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let laughs = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                  d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                  g: [*f,*f,*f,*f,*f,*f,*f,*f]\napiVersion: v1\nkind: Pod\n";
    let rows = [
        (
            "",
            "the manifest is empty, expected a v1 Pod, PodList or List",
        ),
        ("# nothing\n", "the manifest is empty"),
        ("~", "the manifest is empty"),
        ("just words", "manifest: "),
        ("- a\n- b\n", "manifest: "),
        ("kind: Pod\n", "apiVersion: is missing, expected v1"),
        (
            "apiVersion: v1\n",
            "kind: is missing, expected a v1 Pod, PodList or List",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "apiVersion: found \"apps/v1\", expected v1",
        ),
        (
            "apiVersion: v1\nkind: Service\n",
            "kind: found \"Service\", expected a v1 Pod, PodList or List",
        ),
        ("apiVersion: v1\nkind: [Pod]\n", "kind: "),
        ("apiVersion: v1\nkind: Pod\nspec: 7\n", "spec: "),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers: {}\n",
            "spec.containers: ",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: [a]\n",
            "spec.containers[0].name: ",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{ports: [{containerPort: x}]}]}",
            "spec.containers[0].ports[0].containerPort: ",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec: {priority: 99999999999}",
            "spec.priority: ",
        ),
        ("apiVersion: v1\nkind: Pod\nkind: Pod\n", "manifest: "),
        ("apiVersion: v1\nkind: PodList\nitems: 7\n", "items: "),
        ("apiVersion: v1\n\tkind: Pod\n", "manifest: "),
        (
            "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {\"containers\": [{\"name\": 5}]}}",
            "spec.containers[0].name: ",
        ),
        ("{\"apiVersion\": \"v1\", \"kind\": ", "manifest: "),
        (&deep, ""),
        (&deep_json, ""),
        (laughs, ""),
    ];
    for (text, start) in rows {
        let error = only(text).unwrap_err();
        assert!(
            error.to_string().starts_with(start),
            "{error} for {:.80}",
            text
        );
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(!error.transient());
    }
}

#[test]
fn what_is_no_text_or_too_long_is_refused_before_it_is_read() {
    let error = parse(b"apiVersion: v1\xff", UnknownFields::Refuse).unwrap_err();
    assert_eq!(error, ManifestError::NotText { offset: 14 });
    let error = parse(&vec![b' '; MAX_MANIFEST_BYTES + 1], UnknownFields::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the manifest has 10485761 bytes, expected at most 10485760"
    );
    assert!(parse(&[0, 1, 2, 3, 0x7f], UnknownFields::Refuse).is_err());
}
