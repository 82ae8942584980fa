//! Images: there, pulled, removed.

use proto::cri::*;
use tonic::Code;

use crate::rig::{Rig, configured};

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec {
        image: image.into(),
        ..ImageSpec::default()
    })
}

async fn pull(rig: &mut Rig, image: &str) -> Result<String, tonic::Status> {
    let request = PullImageRequest {
        image: spec(image),
        ..PullImageRequest::default()
    };
    rig.images
        .pull_image(request)
        .await
        .map(|answer| answer.into_inner().image_ref)
}

async fn status(rig: &mut Rig, image: &str) -> Option<Image> {
    let request = ImageStatusRequest {
        image: spec(image),
        verbose: true,
    };
    rig.images
        .image_status(request)
        .await
        .unwrap()
        .into_inner()
        .image
}

async fn list(rig: &mut Rig, image: &str) -> Vec<Image> {
    let request = ListImagesRequest {
        filter: Some(ImageFilter { image: spec(image) }),
    };
    rig.images
        .list_images(request)
        .await
        .unwrap()
        .into_inner()
        .images
}

#[tokio::test(start_paused = true)]
async fn an_image_is_there_after_a_pull() {
    let web = r#"{"pull_time": "2s", "images": [{"name": "localhost/web", "uid": 7, "size": 5}]}"#;
    let mut rig = configured(web).await;
    assert!(status(&mut rig, "localhost/new:1").await.is_none());
    let before = tokio::time::Instant::now();
    let pulled = pull(&mut rig, "localhost/new:1").await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 2);
    for name in ["localhost/new:1", &pulled] {
        let image = status(&mut rig, name).await.unwrap();
        assert_eq!(
            (image.id, image.repo_tags),
            (pulled.clone(), vec!["localhost/new:1".into()])
        );
    }
    let web = status(&mut rig, "localhost/web").await.unwrap();
    assert_eq!((web.size, web.uid.unwrap().value), (5, 7));
    assert_eq!(
        (
            list(&mut rig, "").await.len(),
            list(&mut rig, &pulled).await.len()
        ),
        (2, 1)
    );
    let usage = rig
        .images
        .image_fs_info(ImageFsInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(usage.image_filesystems[0].used_bytes.unwrap().value > 5);
}

#[tokio::test(start_paused = true)]
async fn a_removed_image_stays_away_until_it_is_pulled() {
    let mut rig = configured("{}").await;
    for _ in 0..2 {
        let request = RemoveImageRequest {
            image: spec("localhost/busybox"),
        };
        rig.images.remove_image(request).await.unwrap();
    }
    let mut rig = rig.reopened().await;
    assert!(status(&mut rig, "localhost/busybox").await.is_none());
    assert!(status(&mut rig, "localhost/pause").await.is_some());
    pull(&mut rig, "localhost/busybox").await.unwrap();
    assert!(status(&mut rig, "localhost/busybox").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_absent_image_cannot_be_pulled() {
    let mut rig = configured("{}").await;
    let refused = pull(&mut rig, "localhost/absent:1").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let nameless = pull(&mut rig, "").await.unwrap_err();
    assert_eq!(nameless.message(), "image.image is missing");
}
