//! Images removed one after the other, each with the runtime's deadline.

use std::time::Duration;

use clients::runtime::RuntimeClient;
use logic_resources::image_gc::UnusedImage;
use metrics::runtime::images::GARBAGE_COLLECTED;

/// A run that takes longer leaves the rest to the next one, which looks anew at what is in use.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(240);
/// Failures that are named in full; of the others, the number.
const MAX_NAMED: usize = 10;

/// Why images are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemovalReason {
    Age,
    /// Until so many bytes are free.
    Space {
        wanted: u64,
    },
}

/// What has come of a removal.
#[derive(Debug)]
pub struct Removal {
    pub(super) reason: RemovalReason,
    pub(super) removed: Vec<UnusedImage>,
    /// The runtime's errors.
    failed: Vec<String>,
    /// Images for which there was no time left.
    untried: usize,
}

impl Removal {
    pub(super) fn nothing(reason: RemovalReason) -> Self {
        Removal {
            reason,
            removed: Vec::new(),
            failed: Vec::new(),
            untried: 0,
        }
    }

    /// Bytes.
    pub(super) fn freed(&self) -> u64 {
        let bytes = self.removed.iter().map(|image| image.record.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Which images could not be removed; none where all could.
    pub(super) fn complaint(&self) -> Option<String> {
        if self.failed.is_empty() && self.untried == 0 {
            return None;
        }
        let mut named: Vec<String> = self.failed.iter().take(MAX_NAMED).cloned().collect();
        let unnamed = self.failed.len().saturating_sub(MAX_NAMED);
        if unnamed > 0 {
            named.push(format!("{unnamed} more"));
        }
        if self.untried > 0 {
            named.push(format!("no time was left for {} images", self.untried));
        }
        let named = match named.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Some(match self.reason {
            RemovalReason::Age => format!("errors in deletion of images that are too old: {named}"),
            RemovalReason::Space { wanted } => format!(
                "wanted to free {wanted} bytes, but freed {} bytes space with errors in image deletion: {named}",
                self.freed()
            ),
        })
    }
}

/// Removes images in this order, until enough is free.
pub(super) async fn remove(
    runtime: &RuntimeClient,
    reason: RemovalReason,
    images: Vec<UnusedImage>,
) -> Removal {
    let began = kernel::now();
    let mut removal = Removal::nothing(reason);
    let mut freed: u64 = 0;
    let mut images = images.into_iter();
    for image in images.by_ref() {
        let (id, bytes) = (&image.key.id, image.record.bytes);
        tracing::info!(image = %id, bytes, "removing an unused image");
        match runtime.remove_image(id, &image.record.handler).await {
            Ok(()) => {
                let word = match reason {
                    RemovalReason::Age => "age",
                    RemovalReason::Space { .. } => "space",
                };
                GARBAGE_COLLECTED.with_label_values(&[word]).inc();
                freed = freed.saturating_add(bytes);
                removal.removed.push(image);
            }
            Err(error) => removal.failed.push(format!("{id}: {}", error.describe())),
        }
        if matches!(reason, RemovalReason::Space { wanted } if freed >= wanted) {
            return removal;
        }
        if kernel::now().saturating_duration_since(began) >= REMOVAL_TIMEOUT {
            break;
        }
    }
    removal.untried = images.len();
    removal
}
