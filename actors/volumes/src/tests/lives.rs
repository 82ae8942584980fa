//! From a request to its release, through failures and restarts.

use super::*;

/// Upstream's TestGetMountedVolumesForPodAndGetVolumesInUse.
#[test]
fn a_wish_is_answered_the_moment_its_last_volume_is_there() {
    run_paused(|| async {
        let mut rig = Rig::start(&config_map("cfg", "one")).await;
        rig.plugins
            .fault("mount", "kubernetes.io/configmap/a-c", StorageFault::Held);
        let answer = rig.want(&pod_with("a", &[EMPTY_DIR, CONFIG_MAP]));
        pass(30 * SECOND).await;
        assert!(!answer.is_finished());
        rig.plugins.release();
        let before = kernel::now();
        let mounted = answer.await.unwrap().unwrap().unwrap();
        assert!(kernel::now() - before < MOMENT);
        let target = rig
            .folder
            .path()
            .join("root/pods/a/volumes/kubernetes.io~empty-dir/e");
        assert_eq!(mounted.volumes["e"].path, target);
        assert_eq!(mounted.volumes.len(), 2);
        assert_eq!(rig.texts(), NONE);
        rig.assert_serial();
    });
}

#[test]
fn what_is_missing_is_told_at_once_and_mounted_when_it_comes() {
    run_paused(|| async {
        let mut rig = Rig::start("").await;
        let web = pod_with("a", &[CONFIG_MAP]);
        let answer = rig.want(&web);
        pass(MOMENT).await;
        assert_eq!(
            rig.texts(),
            [
                "a FailedMount: MountVolume.SetUp failed for volume \"c\" : configmap \"cfg\" not found"
            ]
        );
        let late = answer.await.unwrap().unwrap().unwrap_err();
        assert_eq!(
            late.to_string(),
            "Unable to attach or mount volumes: unmounted volumes=[c], unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
        );
        let answer = rig.want(&web);
        pass(SECOND).await;
        rig.set_objects(&config_map("cfg", "one"));
        pass(MOMENT).await;
        assert!(answer.is_finished());
        assert_eq!(answer.await.unwrap().unwrap().unwrap().volumes.len(), 1);
    });
}

/// Upstream's TestWaitForAttachAndMountError: the cause is told as well.
#[test]
fn a_claim_that_is_not_there_is_the_cause_at_the_end_of_the_time() {
    run_paused(|| async {
        let mut rig = Rig::start("").await;
        let web = pod_with(
            "a",
            &[
                EMPTY_DIR,
                ("data", "persistentVolumeClaim: {claimName: data}"),
            ],
        );
        let late = rig
            .want(&web)
            .await
            .unwrap()
            .unwrap()
            .unwrap_err()
            .to_string();
        let told = rig.texts();
        assert!(told[0].starts_with("a FailedMount: Unable to attach or mount volumes: unmounted volumes=[data e], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: "), "{told:?}");
        assert!(late.starts_with("Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: "), "{late}");
    });
}

#[test]
fn a_changed_object_is_mounted_at_once_and_nobody_else_is_touched() {
    run_paused(|| async {
        let both = |value: &str| config_map("cfg", value) + &config_map("other", "same");
        let rig = Rig::start(&both("one")).await;
        rig.mounted(&pod_with("a", &[CONFIG_MAP])).await;
        rig.mounted(&pod_with("b", &[("o", "configMap: {name: other}")]))
            .await;
        let before = rig.calls().len();
        rig.set_objects(&both("two"));
        pass(MOMENT).await;
        assert_eq!(rig.calls()[before..], ["mount kubernetes.io/configmap/a-c"]);
        rig.set_objects(&config_map("other", "same"));
        pass(100 * SECOND).await;
        assert_eq!(rig.calls().len(), before + 1, "what is mounted stays");
        assert_eq!(
            rig.rows().await,
            ["default/a c Mounted", "default/b o Mounted"]
        );
    });
}

#[test]
fn a_failure_is_told_and_tried_again_without_anybody_asking() {
    run_paused(|| async {
        let mut rig = Rig::start("").await;
        let id = "kubernetes.io/host-path/a-h";
        for _ in 0..3 {
            let wrong =
                Status::failed_precondition("hostPath type check failed: /x is not a directory");
            rig.plugins.fault("mount", id, StorageFault::Refused(wrong));
        }
        let begun = kernel::now();
        rig.mounted(&pod_with(
            "a",
            &[("h", "hostPath: {path: /x, type: Directory}")],
        ))
        .await;
        let took = (kernel::now() - begun).as_millis();
        assert!((3500..3600).contains(&took), "{took}");
        let told = rig.texts();
        assert_eq!(told.len(), 3);
        assert_eq!(
            told[0],
            "a FailedMount: MountVolume.SetUp failed for volume \"h\" : hostPath type check failed: /x is not a directory"
        );
    });
}

/// Upstream's TestWaitForAllPodsUnmount.
#[test]
fn a_released_pod_has_its_volumes_taken_away_and_then_its_folder() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        rig.pods(&["a"]);
        let before = rig.plugins.calls().len();
        rig.release("a").await.unwrap().unwrap().unwrap();
        let id = "kubernetes.io/empty-dir/a-e";
        let calls = &rig.plugins.calls()[before..];
        assert_eq!(
            calls,
            ["release-subpaths a".to_owned(), format!("unmount {id}")]
        );
        pass(SECOND).await;
        assert_eq!(
            rig.plugins.calls().len(),
            before + 2,
            "its folder is the worker's while it is known"
        );
        rig.pods(&[]);
        pass(MOMENT).await;
        let folder = rig.folder.path().join("root/pods/a");
        assert_eq!(
            rig.calls().last().unwrap(),
            &format!("remove-pod {}", folder.display())
        );
    });
}

#[test]
fn a_release_that_takes_too_long_says_what_is_left_and_goes_on() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        rig.plugins
            .fault("unmount", "kubernetes.io/empty-dir/a-e", StorageFault::Held);
        let late = rig.release("a").await.unwrap().unwrap().unwrap_err();
        assert_eq!(
            late.to_string(),
            "mounted volumes=[e]: context deadline exceeded"
        );
        let again = rig.release("a");
        pass(SECOND).await;
        rig.plugins.release();
        again.await.unwrap().unwrap().unwrap();
        rig.assert_serial();
    });
}

#[test]
fn a_later_wish_and_a_release_answer_who_waited() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        let web = pod_with("a", &[CONFIG_MAP]);
        let first = rig.want(&web);
        pass(MOMENT).await;
        let second = rig.want(&web);
        pass(MOMENT).await;
        assert_eq!(first.await.unwrap().unwrap(), Err(NotMounted::Superseded));
        rig.release("a").await.unwrap().unwrap().unwrap();
        assert_eq!(second.await.unwrap().unwrap(), Err(NotMounted::Released));
    });
}

#[test]
fn a_stuck_volume_has_its_plugin_replaced_and_others_go_on() {
    run_paused(|| async {
        let mut rig = Rig::start("").await;
        let id = "kubernetes.io/host-path/a-h";
        rig.plugins.fault("mount", id, StorageFault::Stuck);
        let hung = rig.want(&pod_with("a", &[("h", "hostPath: {path: /x}")]));
        rig.mounted(&pod_with("b", &[EMPTY_DIR])).await;
        let told = rig.texts();
        assert!(told.contains(&format!("edge VolumeStuck: mount of {id} did not end within 1s; plugin storage-local is replaced")), "{told:?}");
        let plugin_host::Msg::Replace { generation } = rig.host.next(SECOND).await.unwrap() else {
            panic!("the plugin is to be replaced");
        };
        assert_eq!(generation, 0);
        // The process that had the stuck thread has ended: the operation is retried.
        assert_eq!(hung.await.unwrap().unwrap().unwrap().volumes.len(), 1);
        rig.assert_serial();
    });
}

/// Upstream's TestReconstructVolumesMount: volumes mounted before a restart are found, kept for pods that desire them,
/// and unmounted for pods that are gone.
#[test]
fn a_new_agent_keeps_what_is_wanted_and_takes_away_what_nobody_wants() {
    run_paused(|| async {
        let plant = |plugins: &FakeStorage| {
            plugins.plant(
                ("kubernetes.io/empty-dir/a-e", "empty-dir"),
                "a",
                "/there/a/e",
            );
            plugins.plant(
                ("kubernetes.io/empty-dir/old-e", "empty-dir"),
                "old",
                "/there/old/e",
            );
        };
        let rig = Rig::with("", None, plant).await;
        pass(SECOND).await;
        assert_eq!(rig.calls(), NONE, "nobody has said which pods there are");
        rig.pods(&["a"]);
        pass(SECOND).await;
        let folder = rig.folder.path().join("root/pods/old");
        let gone = [
            "unmount kubernetes.io/empty-dir/old-e".to_owned(),
            format!("remove-pod {}", folder.display()),
        ];
        assert_eq!(rig.calls(), gone, "a has not spoken yet");
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        assert_eq!(rig.calls()[2..], ["mount kubernetes.io/empty-dir/a-e"]);
    });
}

#[test]
fn folders_that_only_lie_about_are_removed_when_it_is_known_who_is_there() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        let pods = rig.folder.path().join("root/pods");
        for uid in ["a", "old"] {
            std::fs::create_dir_all(pods.join(uid)).unwrap();
        }
        rig.root.inject("test/volumes", ActorFault::Panic).unwrap();
        rig.pods(&["a"]);
        pass(10 * SECOND).await;
        rig.pods(&["a"]);
        pass(SECOND).await;
        assert_eq!(
            rig.calls(),
            [format!("remove-pod {}", pods.join("old").display())]
        );
    });
}

#[test]
fn a_successor_has_the_workers_say_it_again_and_unmounts_nothing() {
    run_paused(|| async {
        let mut rig = Rig::start("").await;
        let web = pod_with("a", &[EMPTY_DIR]);
        rig.mounted(&web).await;
        assert!(matches!(rig.resyncs.drain()[..], [ResyncRequest::Resync]));
        let waited = rig.want(&pod_with("b", &[CONFIG_MAP]));
        pass(MOMENT).await;
        rig.root.inject("test/volumes", ActorFault::Panic).unwrap();
        rig.pods(&["a", "b"]);
        pass(10 * SECOND).await;
        assert_eq!(waited.await.unwrap().unwrap_err(), AskError::Gone);
        assert!(matches!(rig.resyncs.drain()[..], [ResyncRequest::Resync]));
        let before = rig.calls().len();
        rig.pods(&["a", "b"]);
        pass(SECOND).await;
        assert_eq!(rig.calls().len(), before);
        assert_eq!(rig.mounted(&web).await.volumes.len(), 1);
        assert_eq!(rig.calls()[before..], ["mount kubernetes.io/empty-dir/a-e"]);
    });
}

#[test]
fn a_pod_that_the_directory_forgot_wants_nothing_any_more() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        rig.pods(&[]);
        pass(300 * SECOND).await;
        assert_eq!(
            rig.calls()
                .iter()
                .filter(|call| call.starts_with("mount"))
                .count(),
            1
        );
        assert!(rig.rows().await.is_empty());
    });
}

#[test]
fn a_plugin_that_cannot_list_is_asked_again() {
    run_paused(|| async {
        let broken = |plugins: &FakeStorage| {
            for _ in 0..6 {
                plugins.fault("list", "", StorageFault::Refused(Status::internal("no")));
            }
        };
        let rig = Rig::with("", None, broken).await;
        let answer = rig.release("a");
        pass(SECOND).await;
        assert!(!answer.is_finished(), "who knows what it had");
        answer.await.unwrap().unwrap().unwrap();
        assert!(
            rig.plugins
                .calls()
                .iter()
                .filter(|call| *call == "list ")
                .count()
                >= 8
        );
    });
}

#[test]
fn a_hundred_pods_get_their_volumes_and_a_change_reaches_all_of_them() {
    run_paused(|| async {
        let rig = Rig::start(&config_map("cfg", "one")).await;
        let pods: Vec<Arc<Pod>> = (0..110)
            .map(|n| {
                pod_with(
                    &format!("p{n}"),
                    &[EMPTY_DIR, CONFIG_MAP, ("f", "configMap: {name: cfg}")],
                )
            })
            .collect();
        let answers: Vec<_> = pods.iter().map(|pod| rig.want(pod)).collect();
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap().unwrap().volumes.len(), 3);
        }
        let before = rig.calls().len();
        rig.set_objects(&config_map("cfg", "two"));
        pass(SECOND).await;
        assert_eq!(rig.calls().len(), before + 220);
        rig.assert_serial();
    });
}

/// Its objects may be gone before it: `kubectl delete -f` deletes one after the other.
#[test]
fn a_pod_that_ends_keeps_what_it_has_without_a_word() {
    run_paused(|| async {
        let mut rig = Rig::start(&config_map("cfg", "one")).await;
        rig.mounted(&pod_with("a", &[CONFIG_MAP])).await;
        rig.mounted(&pod_with("b", &[CONFIG_MAP])).await;
        let before = rig.rows().await;
        rig.manager.tell(Msg::Ending { uid: "a".into() }).unwrap();
        rig.set_objects("");
        pass(300 * SECOND).await;
        let missing = "MountVolume.SetUp failed for volume \"c\" : configmap \"cfg\" not found";
        assert_eq!(rig.texts(), [format!("b FailedMount: {missing}")]);
        assert_eq!(rig.rows().await, before);
    });
}
