//! Laws of static manifests.
use super::parse::ParsedPod;
use super::*;
use k8s_openapi::api::core::v1::Pod;

#[test]
fn tmp_golden() {
    use std::io::Write;
    let mut out = std::fs::File::create("/tmp/oxm/golden.jsonl").unwrap();
    for (name, text) in [
        ("least", include_str!("testdata/least.yaml")),
        ("control-plane", include_str!("testdata/control-plane.yaml")),
        ("rich", include_str!("testdata/rich.yaml")),
        ("pod-level", include_str!("testdata/pod-level.json")),
    ] {
        let parsed = parse(text.as_bytes(), UnknownFields::Refuse);
        let ParsedPod { pod, .. } = match parsed {
            Ok(p) => match p.pods.into_iter().next().unwrap() {
                Ok(p) => p,
                Err(e) => {
                    println!("{name}: {e}");
                    continue;
                }
            },
            Err(e) => {
                println!("{name}: {e}");
                continue;
            }
        };
        let mut d: Pod = pod.clone();
        defaults::apply(&mut d);
        for (i, src) in [
            Source::File(format!("/etc/kubernetes/manifests/{name}.yaml")),
            Source::Url("http://127.0.0.1:8080/m".into()),
        ]
        .into_iter()
        .enumerate()
        {
            let r = static_pod(pod.clone(), &src, "node-1", jiff::Timestamp::UNIX_EPOCH);
            match r {
                Ok(p) => println!("{name} {i} {}", p.metadata.uid.unwrap()),
                Err(e) => println!("{name} {i} {e}"),
            }
        }
        std::fs::write(format!("/tmp/oxm/{name}.dump"), dump::pod(&d)).unwrap();
        writeln!(out, "{}", serde_json::json!({"pod": d, "node": "node-1", "file": format!("/etc/kubernetes/manifests/{name}.yaml"), "show": true})).unwrap();
        writeln!(
            out,
            "{}",
            serde_json::json!({"pod": d, "node": "node-1", "url": "http://127.0.0.1:8080/m"})
        )
        .unwrap();
    }
}
