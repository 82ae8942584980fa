//! AppArmor, where the node's kernel has it and its parser is installed.

use std::path::Path;

use proto::cri::security_profile::ProfileType;
use proto::cri::{Capability, SecurityProfile};
use serde_json::json;

use crate::rig::Rig;

#[tokio::test]
async fn a_container_that_names_no_apparmor_profile_has_the_runtimes() {
    let needed = [
        "/sys/kernel/security/apparmor/profiles",
        "/sbin/apparmor_parser",
    ];
    if let Some(absent) = needed.iter().find(|path| !Path::new(path).exists()) {
        eprintln!("skipped: this node has no {absent}");
        return;
    }
    let rig = Rig::start_own(json!({})).await;
    let pod = rig.pod("labelled");
    let id = rig.run_pod(&pod).await;
    for (name, asked, label, mounts) in [
        ("unsaid", None, "oxlet-default (enforce)", false),
        (
            "default",
            Some(ProfileType::RuntimeDefault),
            "oxlet-default (enforce)",
            false,
        ),
        (
            "unconfined",
            Some(ProfileType::Unconfined),
            "unconfined",
            true,
        ),
    ] {
        let mut config = rig.container(name, "exec sleep 3600");
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        context.apparmor = asked.map(|kind| SecurityProfile {
            profile_type: kind.into(),
            localhost_ref: String::new(),
        });
        context.capabilities = Some(Capability {
            add_capabilities: vec!["SYS_ADMIN".to_owned()],
            ..Capability::default()
        });
        let container = rig.run((&id, &pod), config).await;
        // The label of the first process, and of one that is run beside it.
        let (text, code) = rig
            .exec(
                &container,
                "cat /proc/1/attr/current /proc/self/attr/current",
            )
            .await;
        assert_eq!((text, code), (format!("{label}\n{label}\n"), 0), "{name}");
        let (text, code) = rig
            .exec(
                &container,
                "mount -t tmpfs t /tmp 2>&1; echo x > /etc/written",
            )
            .await;
        assert_eq!((text.is_empty(), code), (mounts, 0), "{name}: {text}");
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
