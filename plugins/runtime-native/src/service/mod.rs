//! CRI's services. One short method a call.

mod image;
mod list;
mod runtime;
mod status;
mod streams;

pub use image::ImageCalls;
pub use runtime::RuntimeCalls;
