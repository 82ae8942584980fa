//! Laws of images.

use futures_util::FutureExt;
use proto::cri::{
    Image, ImageFilter, ImageSpec, ImageStatusRequest, ListImagesRequest, PullImageRequest,
    RemoveImageRequest,
};

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::RuntimeCheck;
use super::case::RuntimeCase;

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    (
        "image that is present is listed, and has an id and names",
        |case| present(case).boxed(),
    ),
    (
        "image that is absent is no error but an empty answer",
        |case| absent(case).boxed(),
    ),
    (
        "image that nobody has cannot be pulled, and the refusal says why",
        |case| pulled(case).boxed(),
    ),
    ("image that is absent may be removed", |case| {
        removed(case).boxed()
    }),
];

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    })
}

fn nowhere(case: &RuntimeCase) -> String {
    // Port 1 of this host: no registry listens there, and the refusal is immediate.
    format!("127.0.0.1:1/{}:absent", case.name)
}

async fn status(case: &mut RuntimeCase, image: &str) -> Result<Option<Image>, CheckStop> {
    let request = ImageStatusRequest {
        image: spec(image),
        verbose: false,
    };
    Ok(case.images.image_status(request).await?.into_inner().image)
}

async fn present(case: &mut RuntimeCase) -> CheckResult {
    let name = case.target.image.clone();
    let image = status(case, &name)
        .await?
        .ok_or_else(|| CheckStop::Broken(format!("image {name} has no status")))?;
    holds(!image.id.is_empty(), || "id is empty".to_owned())?;
    holds(
        !image.repo_tags.is_empty() || !image.repo_digests.is_empty(),
        || "it has no name at all".to_owned(),
    )?;
    let by_id = status(case, &image.id).await?.map(|found| found.id);
    same(
        "id of the image found by its id",
        by_id.as_ref(),
        Some(&image.id),
    )?;
    let all = case
        .images
        .list_images(ListImagesRequest::default())
        .await?
        .into_inner()
        .images;
    holds(all.iter().any(|listed| listed.id == image.id), || {
        format!("image {} is not listed", image.id)
    })?;
    let filter = Some(ImageFilter { image: spec(&name) });
    let listed = case
        .images
        .list_images(ListImagesRequest { filter })
        .await?
        .into_inner()
        .images;
    holds(listed.iter().any(|listed| listed.id == image.id), || {
        format!("image {name} is not listed by its name")
    })
}

async fn absent(case: &mut RuntimeCase) -> CheckResult {
    let name = nowhere(case);
    same(
        "status",
        status(case, &name).await?.map(|image| image.id),
        None,
    )
}

async fn pulled(case: &mut RuntimeCase) -> CheckResult {
    let name = nowhere(case);
    let request = PullImageRequest {
        image: spec(&name),
        ..Default::default()
    };
    refused(
        "the pull of an image that nobody has",
        case.images.pull_image(request).await,
    )?;
    same(
        "status",
        status(case, &name).await?.map(|image| image.id),
        None,
    )
}

async fn removed(case: &mut RuntimeCase) -> CheckResult {
    let image = spec(&nowhere(case));
    case.images
        .remove_image(RemoveImageRequest { image })
        .await?;
    Ok(())
}
