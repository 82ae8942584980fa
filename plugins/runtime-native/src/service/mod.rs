//! CRI's services, and archives of images. One short method a call.

mod archives;
mod image;
mod list;
mod runtime;
mod status;
mod streams;

pub(crate) use archives::ArchiveCalls;
pub use image::ImageCalls;
pub use runtime::RuntimeCalls;
