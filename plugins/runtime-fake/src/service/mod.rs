//! CRI's two services: translate, do, translate.

mod blocking;
mod image;
mod list;
mod runtime;

pub use image::ImageCalls;
pub use runtime::RuntimeCalls;
