//! Images: there, pulled, removed.

use proto::cri::*;
use tonic::Code;

use crate::rig::configured;

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec {
        image: image.into(),
        ..ImageSpec::default()
    })
}

#[tokio::test(start_paused = true)]
async fn an_image_is_there_after_a_pull_and_gone_after_a_removal() {
    let mut rig = configured(
        r#"{"pull_time": "2s", "images": [{"name": "localhost/web", "uid": 7, "size": 5}]}"#,
    )
    .await;
    let status = |image: &str| ImageStatusRequest {
        image: spec(image),
        verbose: true,
    };
    assert!(
        rig.images
            .image_status(status("localhost/new:1"))
            .await
            .unwrap()
            .into_inner()
            .image
            .is_none()
    );
    let before = tokio::time::Instant::now();
    let pull = |image: &str| PullImageRequest {
        image: spec(image),
        ..PullImageRequest::default()
    };
    let pulled = rig
        .images
        .pull_image(pull("localhost/new:1"))
        .await
        .unwrap()
        .into_inner()
        .image_ref;
    assert_eq!(before.elapsed().as_secs(), 2);
    for name in ["localhost/new:1", &pulled] {
        let image = rig
            .images
            .image_status(status(name))
            .await
            .unwrap()
            .into_inner()
            .image
            .unwrap();
        assert_eq!(
            (image.id, image.repo_tags),
            (pulled.clone(), vec!["localhost/new:1".to_owned()])
        );
    }
    let web = rig
        .images
        .image_status(status("localhost/web"))
        .await
        .unwrap()
        .into_inner()
        .image
        .unwrap();
    assert_eq!((web.size, web.uid.unwrap().value), (5, 7));

    let list = |image: &str| ListImagesRequest {
        filter: Some(ImageFilter { image: spec(image) }),
    };
    assert_eq!(
        rig.images
            .list_images(ListImagesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .images
            .len(),
        2
    );
    assert_eq!(
        rig.images
            .list_images(list("localhost/new:1"))
            .await
            .unwrap()
            .into_inner()
            .images
            .len(),
        1
    );
    let usage = rig
        .images
        .image_fs_info(ImageFsInfoRequest {})
        .await
        .unwrap()
        .into_inner()
        .image_filesystems;
    assert!(usage[0].used_bytes.unwrap().value > 5);

    for _ in 0..2 {
        for name in ["localhost/new:1", "localhost/web"] {
            rig.images
                .remove_image(RemoveImageRequest { image: spec(name) })
                .await
                .unwrap();
        }
    }
    let mut rig = rig.reopened().await;
    let left = rig
        .images
        .list_images(ListImagesRequest::default())
        .await
        .unwrap()
        .into_inner()
        .images;
    assert!(
        left.iter()
            .all(|image| !image.repo_tags.contains(&"localhost/web:latest".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn an_absent_image_cannot_be_pulled() {
    let mut rig = configured("{}").await;
    let request = PullImageRequest {
        image: spec("localhost/absent:1"),
        ..PullImageRequest::default()
    };
    let refused = rig.images.pull_image(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let nameless = rig
        .images
        .pull_image(PullImageRequest::default())
        .await
        .unwrap_err();
    assert_eq!(nameless.message(), "image.image is missing");
}
