//! CRI's ImageService.

use std::collections::HashMap;
use std::sync::Arc;

use cri_server::list::{ResponseStream, pages};
use proto::cri::image_service_server::ImageService;
use proto::cri::*;
use tonic::{Request, Response, Status};

use crate::node::CriError;
use crate::node::stats;
use crate::rpc::Rpc;
use crate::service::list;
use crate::shared::{FaultSubject, SharedNode};
use crate::state::convert;

/// Serves CRI's ImageService.
#[derive(Clone, Debug)]
pub struct ImageCalls {
    shared: Arc<SharedNode>,
}

impl ImageCalls {
    pub(crate) fn new(shared: Arc<SharedNode>) -> ImageCalls {
        ImageCalls { shared }
    }
}

fn name(image: Option<ImageSpec>) -> String {
    image.unwrap_or_default().image
}

#[tonic::async_trait]
impl ImageService for ImageCalls {
    type StreamImagesStream = ResponseStream<StreamImagesResponse>;

    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        let filter = request.into_inner().filter;
        let work = async {
            Ok(ListImagesResponse {
                images: list::images(&self.shared.node(), filter),
            })
        };
        self.shared
            .call(Rpc::ListImages, FaultSubject::Nothing, work)
            .await
    }

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        let filter = request.into_inner().filter;
        let work = async {
            let images = list::images(&self.shared.node(), filter);
            Ok(pages(images, |images| StreamImagesResponse { images }))
        };
        self.shared
            .call(Rpc::StreamImages, FaultSubject::Nothing, work)
            .await
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let name = name(request.image);
        let subject = FaultSubject::Named(name.clone());
        let work = async {
            let image = self
                .shared
                .node()
                .state
                .images
                .find(&name)
                .map(convert::image);
            let info = match &image {
                Some(image) if request.verbose => HashMap::from([(
                    "info".to_owned(),
                    serde_json::json!({ "digest": image.repo_digests }).to_string(),
                )]),
                Some(_) | None => HashMap::new(),
            };
            Ok(ImageStatusResponse { image, info })
        };
        self.shared.call(Rpc::ImageStatus, subject, work).await
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<PullImageResponse>, Status> {
        let request = request.into_inner();
        let (name, auth) = (name(request.image), request.auth.unwrap_or_default());
        let subject = FaultSubject::Named(name.clone());
        let work = async {
            let (time, unpullable, open) = {
                let faults = self.shared.faults();
                let shown = format!("{}:{}", auth.username, auth.password);
                let open = faults.opens(&name, &shown);
                (faults.pull_time(), faults.unpullable(&name), open)
            };
            if !time.is_zero() {
                tokio::time::sleep(time).await;
            }
            if unpullable {
                return Err(CriError::Unpullable(name).into());
            }
            if !open {
                // As containerd words it, and with its code.
                return Err(Status::unknown(format!(
                    "pull access denied for {name} to {:?}",
                    auth.username
                )));
            }
            Ok(PullImageResponse {
                image_ref: self.shared.node().pulled(&name)?,
            })
        };
        self.shared.call(Rpc::PullImage, subject, work).await
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = name(request.into_inner().image);
        let subject = FaultSubject::Named(name.clone());
        let work = async {
            self.shared.node().remove_image(&name)?;
            Ok(RemoveImageResponse {})
        };
        self.shared.call(Rpc::RemoveImage, subject, work).await
    }

    async fn image_fs_info(
        &self,
        _: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        let work = async {
            let (images, containers) =
                stats::image_filesystem(&self.shared.node(), &self.shared.mountpoint);
            Ok(ImageFsInfoResponse {
                image_filesystems: vec![images],
                container_filesystems: vec![containers],
            })
        };
        self.shared
            .call(Rpc::ImageFsInfo, FaultSubject::Nothing, work)
            .await
    }
}
