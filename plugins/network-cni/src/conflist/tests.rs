//! Network configurations, good and bad.

use serde_json::json;

use super::*;

fn list(fields: &Value) -> Result<Network, ConfError> {
    parse(fields.to_string().as_bytes(), Form::List)
}

#[test]
fn the_newest_version_that_is_spoken_counts() {
    for (version, versions, expected) in [
        (json!("0.4.0"), json!([]), Version::V040),
        (json!("0.3.1"), json!(["1.0.0", "9.0.0"]), Version::V100),
        (json!("1.1.0"), json!(["0.4.0"]), Version::V110),
    ] {
        let fields = json!({
            "cniVersion": version, "cniVersions": versions, "name": "net", "plugins": [{ "type": "a" }],
        });
        assert_eq!(list(&fields).unwrap().version, expected);
    }
}

#[test]
fn a_network_is_the_same_after_it_was_written_down() {
    let text = json!({
        "cniVersion": "1.0.0", "name": "net.0", "disableCheck": true, "disableGC": "TRUE",
        "loadOnlyInlinedPlugins": true,
        "plugins": [{ "type": "a", "capabilities": { "mac": true, "ips": false }, "n": 18_446_744_073_709_551_615_u64 }],
    });
    let network = list(&text).unwrap();
    assert!(network.disable_check && network.disable_gc);
    assert_eq!(network.plugins[0].capabilities, ["mac".to_owned()].into());
    assert_eq!(parse(&network.to_json(), Form::List).unwrap(), network);
}

#[test]
fn each_mistake_is_named_with_its_field() {
    let good = json!({ "cniVersion": "1.0.0", "name": "net", "plugins": [{ "type": "a" }] });
    let with = |field: &str, value: Value| {
        let mut fields = good.clone();
        fields[field] = value;
        fields
    };
    let many: Vec<_> = (0..33).map(|_| json!({ "type": "a" })).collect();
    for (fields, words) in [
        (
            json!({ "cniVersion": "1.0.0", "plugins": [{ "type": "a" }] }),
            "field name: missing",
        ),
        (with("name", json!(1)), "field name: 1 is no string"),
        (
            with("name", json!("../net")),
            "field name: \"../net\" is no name",
        ),
        (with("name", json!("")), "field name: \"\" is no name"),
        (
            with("cniVersion", json!("0.2.0")),
            "field cniVersion: \"0.2.0\"; expected one of",
        ),
        (
            with("cniVersion", json!(1)),
            "field cniVersion: expected a string",
        ),
        (
            json!({ "name": "net", "plugins": [{ "type": "a" }] }),
            "field cniVersion: \"\"; expected one of",
        ),
        (
            with("disableGC", json!("perhaps")),
            "field disableGC: \"perhaps\"; expected true or false",
        ),
        (with("plugins", json!({})), "field plugins: expected a list"),
        (with("plugins", json!([])), "no plugins in the list"),
        (
            with("plugins", json!([1])),
            "field plugins[0]: expected an object",
        ),
        (
            with("plugins", json!([{}])),
            "field plugins[0].type: missing",
        ),
        (
            with(
                "plugins",
                json!([{ "type": "a" }, { "type": "../../bin/sh" }]),
            ),
            "field plugins[1].type: ",
        ),
        (
            with("plugins", json!([{ "type": ".." }])),
            "field plugins[0].type: ",
        ),
        (
            with("plugins", json!([{ "type": "oxlet-cni" }])),
            "field plugins[0].type: oxlet-cni calls",
        ),
        (
            with("plugins", json!(many)),
            "field plugins: 33 plugins, expected at most 32",
        ),
    ] {
        let error = list(&fields).unwrap_err().to_string();
        assert!(error.starts_with(words), "{fields}: {error}");
    }
    for text in ["", "[]", "null", "{", "{\"name\": \"a\"} x"] {
        let error = parse(text.as_bytes(), Form::Single).unwrap_err();
        assert!(matches!(error, ConfError::Json(_)), "{text}");
    }
}
