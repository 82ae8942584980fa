//! What a crash leaves between two steps, and the same call made again.

use std::fs;
use std::path::Path;

use proto::storage::State;
use tonic::Code;

use crate::double::Fault;
use crate::rig::{ID, Rig, is_mounted, rig, said};

/// Every state that a crash can leave on the way to a volume that is staged, brought about.
async fn half_staged(rig: &mut Rig, step: usize) {
    rig.stage().await.unwrap();
    let staging = rig.staging();
    let folder = staging.parent().unwrap().to_owned();
    if step < 3 {
        rig.unstage().await.unwrap();
        fs::create_dir_all(&folder).unwrap();
    }
    if (1..3).contains(&step) {
        fs::create_dir_all(&staging).unwrap();
        fs::write(folder.join(".vol_data.json.new"), "{\"dri").unwrap();
    }
    if step == 2 {
        let data = r#"{"driverName":"d.example.com","volumeHandle":"vol-1"}"#;
        fs::write(folder.join("vol_data.json"), data).unwrap();
    }
    rig.restart().await;
}

#[tokio::test]
async fn staging_goes_on_from_wherever_it_was_interrupted() {
    for step in 0..4 {
        let mut rig = rig().await;
        half_staged(&mut rig, step).await;
        rig.stage().await.unwrap();
        assert_eq!(rig.home.mounts().len(), 1, "{step}");
        rig.unstage().await.unwrap();
        rig.assert_clean();
    }
}

#[tokio::test]
async fn unstaging_ends_wherever_staging_was_interrupted() {
    for step in 0..4 {
        let mut rig = rig().await;
        half_staged(&mut rig, step).await;
        rig.unstage().await.unwrap();
        rig.assert_clean();
    }
}

/// The driver has published the volume, and the caller is gone.
#[tokio::test]
async fn publishing_goes_on_after_a_crash() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    rig.double
        .fail("publish", Fault::DoesAndSays(Code::Unavailable));
    assert_eq!(said(rig.mount("u1").await).0, Code::Unavailable);
    rig.restart().await;
    assert_eq!(
        rig.list().await[0],
        (State::Mounted, ID.to_owned(), "u1".to_owned())
    );
    rig.mount("u1").await.unwrap();
    assert_eq!(rig.home.mounts().len(), 2);
}

/// Unpublished, and then: nothing removed, the driver's folder removed, and what was written down too.
#[tokio::test]
async fn unpublishing_goes_on_after_a_crash() {
    for step in 0..3 {
        let mut rig = rig().await;
        rig.stage().await.unwrap();
        let target = rig.mount("u1").await.unwrap();
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
        if step >= 1 {
            fs::remove_dir(&target).unwrap();
        }
        if step >= 2 {
            fs::remove_file(target.with_file_name("vol_data.json")).unwrap();
        }
        rig.restart().await;
        rig.unmount("u1").await.unwrap();
        rig.unstage().await.unwrap();
        rig.assert_clean();
    }
}

/// Upstream's TestUnmounterTeardown with volume data that is missing.
#[tokio::test]
async fn a_mount_of_which_nothing_is_known_is_not_touched() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    let target = rig.mount("u1").await.unwrap();
    let data = target.with_file_name("vol_data.json");
    for text in [None, Some("{")] {
        match text {
            None => fs::remove_file(&data).unwrap(),
            Some(text) => fs::write(&data, text).unwrap(),
        }
        let (code, message) = said(rig.unmount("u1").await);
        assert_eq!(code, Code::FailedPrecondition);
        assert!(
            message.starts_with("kubernetes.io/csi: unmounter failed to load volume data file ["),
            "{message}"
        );
        assert!(is_mounted(&target));
        assert_eq!(
            rig.list().await[0],
            (State::Mounted, String::new(), "u1".to_owned())
        );
    }
    // Mounting it again writes it down again.
    rig.mount("u1").await.unwrap();
    rig.unmount("u1").await.unwrap();
}

/// Upstream's TestRemoveMountDir: what holds data is not removed.
#[tokio::test]
async fn a_folder_that_holds_data_is_not_removed() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    let target = rig.mount("u1").await.unwrap();
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    fs::write(target.join("written while nothing was mounted"), "data").unwrap();
    let (code, message) = said(rig.unmount("u1").await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(
        message.contains("failed to remove dir") && message.contains("not empty"),
        "{message}"
    );
    assert!(target.with_file_name("vol_data.json").exists());
    assert!(
        Path::new(&target)
            .join("written while nothing was mounted")
            .exists()
    );
}
