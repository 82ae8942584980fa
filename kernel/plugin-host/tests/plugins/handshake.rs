//! Who is let in, and what is said to those who are not.

use std::time::Duration;

use plugin_host::{CallError, LaunchMethod, PluginState, ServiceKind};
use serde_json::json;

use crate::process::{Manner, plugin};
use crate::rig::{Rig, run};

#[test]
fn plugin_that_keeps_the_contract_is_ready_and_shown() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        let answer = rig.version().await.unwrap();
        assert_eq!(
            (answer.version.as_str(), answer.runtime_api_version.as_str()),
            ("a", "1")
        );
        let shown = rig.snapshot().await;
        assert_eq!(
            (shown.state, shown.generation, shown.restarts),
            (PluginState::Ready, 1, 0)
        );
        assert_eq!(
            (shown.program.as_str(), shown.attributes["label"].as_str()),
            ("test-plugin 0.1.0", "a")
        );
        assert_eq!(
            shown.pid.map(|pid| pid.to_string()),
            Some(answer.runtime_version)
        );
        assert_eq!(shown.socket, rig.folder.path().join("test.sock"));
        rig.end().await;
    });
}

#[test]
fn environment_of_a_plugin_is_what_the_contract_says() {
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        // LISTEN_FDS is taken out of it by the plugin itself.
        let expected = "OXLET_AGENT_PID OXLET_LOG OXLET_PLUGIN_DIR OXLET_PLUGIN_GENERATION OXLET_PLUGIN_NAME PATH";
        let given = rig.version().await.unwrap().runtime_name;
        // The machine that tests run on may have proxies; all plugins of this file are runtimes.
        let others: Vec<_> = given
            .split(' ')
            .filter(|name| !name.to_lowercase().ends_with("_proxy"))
            .collect();
        assert_eq!(others.join(" "), expected);
        rig.end().await;
    });
}

#[test]
fn folders_of_plugins_are_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    run(async {
        let rig = Rig::ready(&plugin("a", Manner::Well)).await;
        for folder in [rig.folder.path(), &rig.dir()] {
            assert_eq!(
                folder.metadata().unwrap().permissions().mode() & 0o777,
                0o700,
                "{}",
                folder.display()
            );
        }
        rig.end().await;
    });
}

#[test]
fn degraded_plugin_is_shown_with_its_reason_and_still_serves() {
    run(async {
        let mut declaration = plugin("a", Manner::Well);
        declaration.configuration = json!({ "label": "a", "degraded": "backend gone" });
        let rig = Rig::start(&declaration);
        assert_eq!(
            rig.reach(PluginState::Degraded).await.reason,
            "backend gone"
        );
        assert_eq!(rig.version().await.unwrap().version, "a");
        rig.end().await;
    });
}

/// Starts a plugin that is of no use, and returns what is said of it.
async fn refusal(mut declaration: plugin_host::Declaration) -> String {
    declaration.start_within = Duration::from_secs(2);
    declaration.intensity.restarts = 1;
    let rig = Rig::start(&declaration);
    let failed = rig.reach(PluginState::Failed).await.reason;
    let refused = rig.version().await.unwrap_err();
    let CallError::Unavailable { why, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(why, format!("failed: {failed}"));
    assert_eq!(rig.snapshot().await.restarts, 2);
    rig.end().await;
    failed
}

#[test]
fn plugin_of_another_contract_is_refused_with_both_numbers() {
    run(async {
        let reason = refusal(plugin("a", Manner::Contract)).await;
        assert_eq!(
            reason,
            "plugin rude-plugin speaks contract 2, this agent speaks 1"
        );
    });
}

#[test]
fn plugin_of_another_kind_is_refused_with_both_kinds() {
    run(async {
        let mut declaration = plugin("a", Manner::Well);
        declaration.kind = ServiceKind::Network;
        let reason = refusal(declaration).await;
        assert_eq!(
            reason,
            "plugin test-plugin is for runtime, but test is declared for network"
        );
    });
}

#[test]
fn plugin_that_refuses_its_configuration_is_shown_with_its_sentence() {
    run(async {
        let mut declaration = plugin("a", Manner::Well);
        declaration.configuration = json!({ "refuse": "field speed is 99, expected at most 10" });
        let reason = refusal(declaration).await;
        assert_eq!(
            reason,
            "plugin test does not accept its configuration: field speed is 99, expected at most 10"
        );
    });
}

#[test]
fn peer_that_talks_garbage_is_refused() {
    run(async {
        let mut declaration = plugin("a", Manner::Garbage);
        declaration.intensity.restarts = 0;
        let reason = refusal_once(declaration).await;
        assert!(
            reason.starts_with("plugin test did not get ready within 1.5s: "),
            "{reason}"
        );
    });
}

#[test]
fn plugin_that_never_reports_its_health_is_refused() {
    run(async {
        let reason = refusal_once(plugin("a", Manner::Mute)).await;
        assert_eq!(
            reason,
            "plugin test did not get ready within 1.5s: it reports no health"
        );
    });
}

async fn refusal_once(mut declaration: plugin_host::Declaration) -> String {
    declaration.start_within = Duration::from_millis(1_500);
    declaration.intensity.restarts = 0;
    let rig = Rig::start(&declaration);
    let reason = rig.reach(PluginState::Failed).await.reason;
    rig.end().await;
    reason
}

#[test]
fn program_that_does_not_exist_is_named() {
    run(async {
        let mut declaration = plugin("a", Manner::Well);
        declaration.start = LaunchMethod::Managed {
            command: "/nowhere/plugin".into(),
            args: vec![],
        };
        let reason = refusal_once(declaration).await;
        assert_eq!(
            reason,
            "cannot start plugin test: /nowhere/plugin: No such file or directory (os error 2)"
        );
    });
}

#[test]
fn declaration_that_is_of_no_use_starts_nothing() {
    run(async {
        let mut declaration = plugin("a", Manner::Well);
        declaration.name = "../test".to_owned();
        let reason = refusal_once(declaration).await;
        assert_eq!(
            reason,
            "plugin name \"../test\": expected 1 to 63 lower-case letters, digits or dashes"
        );
    });
}
