//! A container that writes as fast as it can does not fill the node's disk.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::*;

on_real_runtimes! {
    a_flood_of_lines_stays_within_a_few_files,
}

const MOST_FILES: usize = 3;
const MOST_BYTES: u64 = 1 << 20;

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

async fn a_flood_of_lines_stays_within_a_few_files(on: TestRuntime) {
    let config = json!({
        "containerLogMaxSize": "1Mi", "containerLogMaxFiles": MOST_FILES, "containerLogMonitorInterval": "3s",
    });
    let Some(node_rig) = on.start_with(|builder| builder.config(&config)).await else {
        return;
    };
    let flood =
        format!("while ! test -f /tmp/enough; do seq 100000 101000; sleep 0.01; done; {SERVE_ON}");
    node_rig.drop_pod(&pod(
        "flood",
        json!({ "containers": [container_of("app", &flood)] }),
    ));
    let pod = node_rig.until_running("flood").await;
    let folder = node_rig.logs_of(&pod).join("app");
    let mut rotations = BTreeSet::new();
    wait_until(
        CONVERGENCE_TIMEOUT,
        "the log was rotated often",
        async || {
            let names = names(&folder);
            // One more for the moment before the oldest goes, and one for a compression under way.
            assert!(names.len() <= MOST_FILES + 2, "{names:?}");
            for name in names {
                let size = fs::metadata(folder.join(&name)).map_or(0, |file| file.len());
                assert!(size <= 2 * MOST_BYTES, "{name} has {size} bytes");
                let rotated = name
                    .strip_prefix("0.log.")
                    .map(|rest| rest.trim_end_matches(".tmp"));
                rotations.extend(rotated.map(|rest| rest.trim_end_matches(".gz").to_owned()));
            }
            rotations.len() > MOST_FILES + 1
        },
    )
    .await
    .unwrap();
    for time in &rotations {
        let time = time.split('_').next().unwrap();
        let digits = time.split('-').map(str::len).collect::<Vec<_>>();
        assert_eq!(digits, [8, 6], "{time} is no time as upstream names it");
    }
    // What is about to be removed is not worth compressing; what stays is.
    node_rig.exec(&pod, "app", &["touch", "/tmp/enough"]).await;
    wait_until(
        CONVERGENCE_TIMEOUT,
        "an old log is compressed",
        async || {
            names(&folder).iter().any(|name| {
                let begins = fs::read(folder.join(name)).unwrap_or_default();
                name.ends_with(".gz") && begins.starts_with(&[0x1f, 0x8b])
            })
        },
    )
    .await
    .unwrap();
    let id = id_of(container(&pod, "app").unwrap());
    let link = format!("/var/log/containers/flood-node_default_app-{id}.log");
    assert_eq!(fs::read_link(&link).unwrap(), folder.join("0.log"));
    assert!(fs::read(link).is_ok());
    assert_eq!(
        restarts(&node_rig.node.pod("flood").await.unwrap().unwrap(), "app"),
        0
    );
}
