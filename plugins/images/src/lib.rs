//! A content-addressed store of OCI images without a daemon: pulled from registries, unpacked, mounted, collected.
//!
//! What it answers for: nothing is used before its digest and size are right, nothing that a lease holds is removed,
//! a crash at any moment leaves whole images and leftovers that are known as such. Images, registries and archives are
//! hostile until proven otherwise; every read from them has a bound ([`Limits`]). Signatures of images are not
//! checked: there is no signature policy. The layout on disk is told in decision 26.
//!
//! Reading order: [`Reference`] and [`Digest`] (names), `documents` (what registries serve), `store` (what is kept),
//! `layer` (how a layer becomes a folder), `registry` and `pull` (how images come), `archive` (how they travel).

mod archive;
mod blocking;
mod digest;
mod disk;
mod documents;
#[doc(hidden)]
pub mod fuzzing;
mod layer;
mod limits;
mod pull;
mod reference;
mod registry;
mod rootfs;
mod store;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;

pub use archive::{ArchiveError, ExportError, Import};
pub use digest::{Digest, InvalidDigest};
pub use disk::DiskError;
pub use documents::{DocumentError, ImageConfig, InvalidPlatform, Platform, RuntimeDefaults};
pub use http_proxy::ProxyEnvironment;
pub use layer::LayerError;
pub use limits::Limits;
pub use pull::{Progress, Pull, PullError};
pub use reference::{InvalidReference, Reference};
pub use registry::{Auth, Failure, HostsError, RegistryError, Words};
pub use rootfs::{MountError, Writable};
pub use store::{Collected, Damage, Image, Lease, OpenError, Store, StoreError, Usage};
