//! Containers that cannot be started: they have ended, and say why in full; by both OCI runtimes.

use proto::cri::*;
use serde_json::json;

use crate::rig::Rig;

async fn start(rig: &Rig, container: &str) -> tonic::Status {
    let request = StartContainerRequest {
        container_id: container.to_owned(),
    };
    rig.runtime().start_container(request).await.unwrap_err()
}

/// Creates a container of this command and looks at why it doesn't start.
async fn outcome(rig: &Rig, pod: (&str, &PodSandboxConfig), name: &str, command: &str) -> String {
    let mut config = rig.container(name, "");
    config.command = vec![command.to_owned()];
    let container = rig.create(pod, config).await.unwrap();
    let refusal = start(rig, &container).await;
    let status = rig.status(&container).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str(), status.state()),
        (128, "StartError", ContainerState::ContainerExited)
    );
    assert_eq!(status.message, refusal.message());
    refusal.message().to_owned()
}

#[tokio::test]
async fn a_command_that_is_not_there_is_a_start_error_that_names_it() {
    for own in [true, false] {
        let mut rig = match own {
            true => Rig::start_own(json!({})).await,
            false => Rig::start().await,
        };
        let pod = rig.pod("a");
        let id = rig.run_pod(&pod).await;
        for (name, command, why) in [
            (
                "name",
                "nonexistent",
                "exec: \"nonexistent\": executable file not found in $PATH",
            ),
            (
                "path",
                "/no/such/program",
                "exec: \"/no/such/program\": stat /no/such/program: no such file or directory",
            ),
            ("folder", "/tmp", "exec: \"/tmp\": is a directory"),
            (
                "plain",
                "/etc/hosts",
                "exec: \"/etc/hosts\": permission denied",
            ),
        ] {
            let told = outcome(&rig, (&id, &pod), name, command).await;
            // runc 1.1 is built by a Go that takes a folder for a file without permission.
            let folder = told.ends_with("exec: \"/tmp\": permission denied");
            assert!(told.ends_with(why) || (folder && !own), "{told}");
            assert!(
                told.contains("unable to start container process: "),
                "{told}"
            );
        }
        let mut config = rig.container("later", "");
        config.command = vec!["nonexistent".to_owned()];
        let created = rig.create((&id, &pod), config).await.unwrap();
        // A successor of the plugin tells the same.
        rig.kill_and_restart().await;
        assert_eq!(
            rig.status(&created).await.state(),
            ContainerState::ContainerCreated
        );
        let refusal = start(&rig, &created).await;
        assert!(refusal.message().contains("\"nonexistent\""), "{refusal:?}");
        let running = rig
            .run((&id, &pod), rig.container("main", "sleep 3600"))
            .await;
        let request = ExecSyncRequest {
            container_id: running,
            cmd: vec!["nonexistent".to_owned()],
            timeout: 20,
        };
        let refusal = rig.runtime().exec_sync(request).await.unwrap_err();
        let why = "exec: \"nonexistent\": executable file not found in $PATH";
        assert!(refusal.message().contains(why), "{refusal:?}");
        rig.remove_pod(&id).await;
        rig.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_container_that_cannot_be_made_says_the_cause_of_all_causes() {
    let rig = Rig::start_own(json!({})).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", "true");
    config.mounts.push(Mount {
        container_path: "/proc/made-up".to_owned(),
        host_path: rig.home.path().display().to_string(),
        ..Default::default()
    });
    let container = rig.create((&id, &pod), config).await.unwrap();
    let told = start(&rig, &container).await;
    for word in [
        "unable to start container process: mount ",
        "/proc/made-up",
        "No such file or directory",
    ] {
        assert!(told.message().contains(word), "{told:?}");
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_the_kernel_does_not_run_says_so_in_the_containers_log() {
    let rig = Rig::start_own(json!({})).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let folder = rig.home.path().join("volume");
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("program");
    std::fs::write(&program, "no program").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let mut config = rig.container("main", "");
    config.command = vec!["/volume/program".to_owned()];
    config.mounts.push(Mount {
        container_path: "/volume".to_owned(),
        host_path: folder.display().to_string(),
        ..Default::default()
    });
    let container = rig.run((&id, &pod), config).await;
    assert_eq!(rig.ended(&container).await.exit_code, 255);
    assert_eq!(
        rig.log("a", "main"),
        ["exec /volume/program: exec format error"]
    );
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
