//! CRI's ImageService on the image store.

use std::collections::HashMap;
use std::sync::Arc;

use cri_server::list::{ResponseStream, pages};
use proto::cri::image_service_server::ImageService;
use proto::cri::*;
use serde_json::json;
use tonic::{Request, Response, Status};

use crate::clock;
use crate::error::CallError;
use crate::node::Node;
use crate::record::convert;

/// Serves CRI's ImageService.
#[derive(Clone, Debug)]
pub struct ImageCalls {
    node: Arc<Node>,
}

impl ImageCalls {
    pub(crate) fn new(node: Arc<Node>) -> ImageCalls {
        ImageCalls { node }
    }

    fn list(&self, filter: Option<ImageFilter>) -> Vec<Image> {
        let store = &self.node.parts.images;
        let wanted = filter
            .and_then(|filter| filter.image)
            .map(|image| image.image)
            .unwrap_or_default();
        let all = match wanted.as_str() {
            "" => store.list(),
            name => store.image(name).into_iter().collect(),
        };
        all.iter().map(convert::image).collect()
    }
}

type RpcResult<T> = Result<Response<T>, Status>;

fn named(image: Option<ImageSpec>) -> Result<String, CallError> {
    let name = image.map(|image| image.image).unwrap_or_default();
    match name.as_str() {
        "" => Err(CallError::Missing("the image's name")),
        _ => Ok(name),
    }
}

#[tonic::async_trait]
impl ImageService for ImageCalls {
    type StreamImagesStream = ResponseStream<StreamImagesResponse>;

    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> RpcResult<ListImagesResponse> {
        let images = self.list(request.into_inner().filter);
        Ok(Response::new(ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> RpcResult<Self::StreamImagesStream> {
        let images = self.list(request.into_inner().filter);
        let pages = pages(images, |images| StreamImagesResponse { images });
        Ok(Response::new(pages))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> RpcResult<ImageStatusResponse> {
        let request = request.into_inner();
        let name = named(request.image)?;
        let found = self.node.find_image(&name)?;
        let info = match &found {
            Some(image) if request.verbose => convert::info(&json!({
                "id": image.id.to_string(),
                "manifest": image.manifest.to_string(),
                "user": image.user,
            })),
            Some(_) | None => HashMap::new(),
        };
        Ok(Response::new(ImageStatusResponse {
            image: found.as_ref().map(convert::image),
            info,
        }))
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> RpcResult<PullImageResponse> {
        let request = request.into_inner();
        let name = named(request.image)?;
        let image_ref = self.node.pull_image(&name, request.auth).await?;
        Ok(Response::new(PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> RpcResult<RemoveImageResponse> {
        let name = named(request.into_inner().image)?;
        self.node.remove_image(&name).await?;
        Ok(Response::new(RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<ImageFsInfoRequest>,
    ) -> RpcResult<ImageFsInfoResponse> {
        let usage = self.node.parts.images.usage();
        let images = FilesystemUsage {
            timestamp: clock::now(),
            fs_id: Some(FilesystemIdentifier {
                mountpoint: self.node.parts.layout.images().display().to_string(),
            }),
            used_bytes: Some(UInt64Value { value: usage.bytes }),
            inodes_used: Some(UInt64Value {
                value: usage.inodes,
            }),
        };
        Ok(Response::new(ImageFsInfoResponse {
            image_filesystems: vec![images],
            // One file system holds both: without a word of containers, the images' counts for them too.
            container_filesystems: Vec::new(),
        }))
    }
}
