//! How an object is requested, and what an answer may hold.

use std::time::Duration;

use api_client::{ApiError, ObjectEvent};
use futures_util::Future;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::BoxStream;
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use logic_api::objects::{ApiObject, StaticToken};

/// What the API server answered about one object.
pub(super) enum ResponseContent {
    Objects(ObjectEvent<ApiObject>),
    Token(StaticToken),
    /// As the API server has it; none if it does not exist.
    Request(Option<Box<PodCertificateRequest>>),
}

pub(super) type FetchStream = BoxStream<'static, Result<ResponseContent, ApiError>>;

/// How an object is requested.
pub(super) enum FetchRequest {
    Follow(FetchStream),
    Fetch(LocalBoxFuture<'static, Result<ResponseContent, ApiError>>),
}

pub(super) fn fetched(
    request: impl Future<Output = Result<ResponseContent, ApiError>> + 'static,
) -> FetchRequest {
    FetchRequest::Fetch(Box::pin(request))
}

/// A random part of the wait, from nought to a fifth: requests do not come all at once.
pub(super) fn spread(wait: Duration) -> Duration {
    wait.mul_f64(kernel::chance() / 5.0)
}
