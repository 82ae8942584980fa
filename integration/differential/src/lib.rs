//! The differential campaign: a seed makes an image and a pod, three runtimes run it, and what the probe sees inside is compared.
//!
//! The measure is a private containerd with runc. Next to it runs one native runtime, once with its own OCI runtime and
//! once with runc as the handler, so that a difference of one of the two is the OCI runtime's and a difference of both is
//! the native runtime's. All are driven by CRI alone.
//!
//! A difference that is known has an entry with its reason in `explained.json`; any other fails the campaign, with the
//! seed that reproduces it.
//!
//! Reading order: `case` and `generate` (what is run), `image` and `requests` (the same as an archive and as CRI's
//! messages), `native` and `lane` (where and how), `observed` and `explained` (what is compared), `campaign`.

pub mod campaign;
pub mod case;
pub mod explained;
pub mod generate;
mod image;
mod lane;
mod native;
mod observed;
pub mod probe;
mod requests;
