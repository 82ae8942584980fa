//! What this runtime hasn't is refused by its name, and leaves nothing behind.

use proto::cri::*;
use tonic::Code;

use crate::rig::Rig;

async fn refused_pod(rig: &Rig, config: PodSandboxConfig, handler: &str) -> tonic::Status {
    let request = RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: handler.to_owned(),
    };
    rig.runtime().run_pod_sandbox(request).await.unwrap_err()
}

#[tokio::test]
async fn sandboxes_that_cannot_be_made_as_asked_are_refused_by_name() {
    let rig = Rig::start().await;
    let mut networked = rig.pod("a");
    let options = |config: &mut PodSandboxConfig, edit: fn(&mut NamespaceOption)| {
        let linux = config.linux.as_mut().unwrap();
        let context = linux.security_context.as_mut().unwrap();
        edit(context.namespace_options.as_mut().unwrap());
    };
    options(&mut networked, |options| {
        options.set_network(NamespaceMode::Pod);
    });
    let mut sysctl = rig.pod("a");
    let linux = sysctl.linux.as_mut().unwrap();
    linux.sysctls = [("kernel.panic".to_owned(), "1".to_owned())].into();
    let mut shared = rig.pod("a");
    shared.linux.as_mut().unwrap().sysctls =
        [("net.ipv4.ip_forward".to_owned(), "1".to_owned())].into();
    let mut userns = rig.pod("a");
    options(&mut userns, |options| {
        options.userns_options = Some(UserNamespace::default());
    });
    let panic = || std::fs::read_to_string("/proc/sys/kernel/panic").unwrap();
    let before = panic();
    for (config, handler, word) in [
        (networked, "", "NetworkPluginNotReady"),
        (sysctl, "", "kernel.panic"),
        (shared, "", "network namespace"),
        (userns, "", "userns_options.uids"),
        (rig.pod("a"), "gvisor", "\"gvisor\""),
    ] {
        let refusal = refused_pod(&rig, config, handler).await;
        assert!(refusal.message().contains(word), "{refusal:?}");
    }
    assert_eq!(panic(), before);
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_name_is_reserved_until_its_sandbox_is_removed() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let refusal = refused_pod(&rig, pod.clone(), "").await;
    assert_eq!(refusal.code(), Code::AlreadyExists);
    let expected = format!("name \"a_test_uid-a_0\" is reserved for {id:?}");
    assert_eq!(refusal.message(), expected);
    rig.remove_pod(&id).await;
    let again = rig.run_pod(&pod).await;
    rig.remove_pod(&again).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_container_that_cannot_be_made_leaves_nothing_and_its_name_is_free() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut bad = rig.container("main", "true");
    bad.working_dir = "relative".to_owned();
    let refusal = rig.create((&id, &pod), bad).await.unwrap_err();
    assert!(refusal.message().contains("working_dir"), "{refusal:?}");
    let mut absent = rig.container("main", "true");
    absent.image = Some(ImageSpec {
        image: "localhost/absent:1".to_owned(),
        ..Default::default()
    });
    let refusal = rig.create((&id, &pod), absent).await.unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
    let made = rig.run((&id, &pod), rig.container("main", "true")).await;
    assert_eq!(rig.ended(&made).await.exit_code, 0);
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn checkpoints_of_pods_say_that_there_are_none() {
    let rig = Rig::start().await;
    let request = CheckpointPodRequest::default();
    let refusal = rig.runtime().checkpoint_pod(request).await;
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.code(), Code::Unimplemented);
    assert!(refusal.message().contains("whole pods"));
}
