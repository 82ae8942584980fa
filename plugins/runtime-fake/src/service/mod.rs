//! CRI's two services: translate, do, translate.

mod image;
mod list;
mod runtime;
mod waits;

use std::pin::Pin;

use futures_util::Stream;
use tonic::Status;

pub use image::ImageCalls;
pub use runtime::RuntimeCalls;

/// A stream of answers.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// So many items are in one message of a streamed list.
const CHUNK: usize = 100;

/// Returns a list in pieces.
fn pieces<T: Send + 'static, R: Send + 'static>(
    items: Vec<T>,
    wrap: fn(Vec<T>) -> R,
) -> Answers<R> {
    let mut items = items.into_iter().peekable();
    let next = move || {
        items
            .peek()
            .is_some()
            .then(|| Ok(wrap(items.by_ref().take(CHUNK).collect())))
    };
    Box::pin(futures_util::stream::iter(std::iter::from_fn(next)))
}
