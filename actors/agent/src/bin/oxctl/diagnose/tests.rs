//! An archive of a node whose agent is down, and what is not in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;

use clap::Parser;
use flate2::read::GzDecoder;

use super::*;
use crate::{OxctlArguments, OxctlCommand};

/// The files of an archive by their names.
pub(super) fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (entry.path().unwrap().display().to_string(), text)
    });
    entries.collect()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The arguments as the command line makes them.
fn parsed(line: &[String]) -> OxctlArguments {
    let words = ["oxctl".to_owned(), "diagnose".to_owned()];
    OxctlArguments::try_parse_from(words.iter().chain(line)).unwrap()
}

#[test]
fn the_output_is_a_form_for_all_commands_and_a_file_for_this_one() {
    let output = |line: &[&str]| {
        let words = ["oxctl"].iter().chain(line);
        let arguments = OxctlArguments::try_parse_from(words).ok()?;
        Some(arguments.output)
    };
    let file = |name: &str| Some(Output::File(name.into()));
    let json = Some(Output::Format(OutputFormat::Json));
    assert_eq!(output(&["diagnose", "-o", "a.tar.gz"]), file("a.tar.gz"));
    assert_eq!(output(&["diagnose", "--output=b"]), file("b"));
    assert_eq!(output(&["diagnose", "-o", "json"]), json);
    assert_eq!(output(&["-o", "json", "diagnose"]), json);
    let table = Some(Output::Format(OutputFormat::Table));
    assert_eq!(output(&["diagnose"]), table);
    assert_eq!(output(&["pods"]), table);
    assert_eq!(output(&["pods", "-o", "json"]), json);
    assert_eq!(output(&["pods", "-o", "a.tar.gz"]), None);
}

#[tokio::test]
async fn an_archive_without_an_agent_says_so_and_has_the_rest_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "podLogsDir": at("logs"), "staticPodURL": "https://me:planted-1@h.example/?token=planted-2",
        "staticPodURLHeader": { "X-Key": ["planted-3"] },
    });
    write(&at("config.yaml"), &config.to_string());
    let volume = at("root/pods/u1/volumes/kubernetes.io~secret/s");
    write(&volume.join("..2026/word"), "planted-4\n");
    write(
        &at("root/pods/u1/volumes/kubernetes.io~projected/t/..1/token"),
        "planted-5",
    );
    write(
        &at("root/pods/u1/volumes/kubernetes.io~projected/t/..1/namespace"),
        "namespace-of-it",
    );
    let log = "2026-01-01T00:00:00Z stdout F namespace-of-it planted-4 password=planted-6 Bearer planted-7\n";
    write(
        &at("logs/ns_web_u1/app/3.log"),
        &format!("{log}{}planted-5\n", "x".repeat(10)),
    );
    let socket = at("admin.sock");
    let path = at("out.tar.gz");
    let line = [
        format!("--output={}", path.display()),
        format!("--config={}", at("config.yaml").display()),
        format!("--root-dir={}", at("root").display()),
        "--unit=no-such-unit-of-a-test.service".to_owned(),
    ];
    let arguments = parsed(&line);
    let OxctlCommand::Diagnose(wanted) = &arguments.command else {
        panic!("{arguments:?}");
    };
    let agent = AgentClient::at(&socket);
    run(&agent, wanted, &arguments.output).await.unwrap();
    let files = unpacked(&path);
    let ending = |end: &str| {
        let found = files.iter().find(|(name, _)| name.ends_with(end));
        found
            .unwrap_or_else(|| panic!("no {end} in {:?}", files.keys()))
            .1
    };
    let errors = ending("errors.txt");
    assert!(errors.contains("agent: no agent answers at"), "{errors}");
    assert!(errors.contains("the agent's log: "), "{errors}");
    assert!(ending("about.json").contains("\"agent_answers\": false"));
    assert!(ending("mounts.txt").contains(" / "));
    assert!(ending("machine/kernel.txt").contains("Linux"));
    assert!(ending("config.json").contains("<masked>"));
    let log = ending("logs/pods/ns_web_u1/app/3.log");
    assert!(log.contains("stdout F namespace-of-it <removed>"), "{log}");
    for (name, text) in &files {
        assert!(!text.contains("planted-"), "{name}: {text}");
    }
    let again = run(&agent, wanted, &arguments.output).await.unwrap_err();
    assert!(again.to_string().contains("--force"), "{again}");
}
