//! When each image was detected, and when it was used last.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::UnusedImage;

/// What tells one image of the runtime from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyedBy {
    #[default]
    Id,
    /// An image that was pulled for two runtime handlers counts as two.
    IdAndHandler,
}

/// An image of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageKey {
    pub id: String,
    /// Empty for the default one, and where images are not told apart by it.
    pub handler: String,
}

/// An image as the runtime lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    pub id: String,
    /// The runtime handler that it was pulled for; empty for the default one.
    pub handler: String,
    /// Its digests and tags, each with its repository.
    pub names: Vec<String>,
    /// On the disk.
    pub bytes: u64,
    /// The runtime keeps it, whoever uses it.
    pub pinned: bool,
}

/// An image that something of this node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUse {
    /// An id, a digest or a name.
    pub image: String,
    /// The user's runtime handler; empty for the default one.
    pub handler: ImageUseHandler,
}

/// The runtime handler for which an image is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageUseHandler {
    /// That of a container.
    Only(String),
    /// The user is not one handler's: a volume's content, a sandbox's image.
    #[default]
    Any,
}

/// The image of sandboxes, of the configuration that containerd shows in its verbose status; none in any other text.
pub fn sandbox_image_of(config: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CriConfig {
        sandbox_image: String,
    }
    let config: CriConfig = serde_json::from_str(config).ok()?;
    Some(config.sandbox_image).filter(|image| !image.is_empty())
}

/// What is remembered of one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The runtime handler that it is removed for; empty for the default one.
    pub handler: String,
    pub first_detected: Timestamp,
    /// None while nothing has used it.
    pub last_used: Option<Timestamp>,
    /// On the disk.
    pub bytes: u64,
    pub pinned: bool,
    /// Whether something used it when it was looked at last.
    pub in_use: bool,
}

/// The images that are there, and when each was detected and used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageRecords {
    keyed_by: KeyedBy,
    by_key: BTreeMap<ImageKey, ImageRecord>,
}

/// What outlives the agent: an image that was in use counts as used until the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedImages {
    /// Since when the use of images has been followed.
    pub tracked_since: Timestamp,
    pub images: Vec<RememberedImage>,
}

/// What outlives the agent of one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedImage {
    pub key: ImageKey,
    pub first_detected: Timestamp,
    /// None while it is in use, and where nothing has used it.
    pub last_used: Option<Timestamp>,
    pub in_use: bool,
}

impl ImageRecords {
    pub fn new(keyed_by: KeyedBy) -> Self {
        ImageRecords {
            keyed_by,
            by_key: BTreeMap::new(),
        }
    }

    /// Goes on from what an earlier life remembered, at `now`.
    pub fn restored(keyed_by: KeyedBy, remembered: Vec<RememberedImage>, now: Timestamp) -> Self {
        let record = |image: RememberedImage| {
            let last_used = match image.in_use {
                true => Some(now),
                false => image.last_used,
            };
            let record = ImageRecord {
                handler: image.key.handler.clone(),
                first_detected: image.first_detected,
                last_used,
                bytes: 0,
                pinned: false,
                in_use: image.in_use,
            };
            (image.key, record)
        };
        ImageRecords {
            keyed_by,
            by_key: remembered.into_iter().map(record).collect(),
        }
    }

    /// Takes in which images are there and which are used. New ones count as detected at `detected`, used ones as used
    /// at `now`; those that are gone are forgotten, and returned in number. A time in the future, from before a clock was
    /// set back, becomes the present.
    pub fn detect(
        &mut self,
        images: &[ImageFacts],
        uses: &[ImageUse],
        detected: Timestamp,
        now: Timestamp,
    ) -> usize {
        let in_use = self.in_use(images, uses);
        let mut current = BTreeSet::new();
        for image in images {
            let key = self.key(image);
            let record = self.by_key.entry(key.clone()).or_insert(ImageRecord {
                handler: image.handler.clone(),
                first_detected: detected,
                last_used: None,
                bytes: 0,
                pinned: false,
                in_use: false,
            });
            record.first_detected = record.first_detected.min(now.max(detected));
            record.last_used = record.last_used.map(|used| used.min(now));
            record.in_use = in_use.contains(&key);
            if record.in_use {
                record.last_used = Some(now);
            }
            (record.bytes, record.pinned) = (image.bytes, image.pinned);
            current.insert(key);
        }
        let before = self.by_key.len();
        self.by_key.retain(|key, _| current.contains(key));
        before - self.by_key.len()
    }

    /// The images that nothing uses and the runtime does not keep: first those that were used longest ago, of these
    /// first those that were detected longest ago.
    pub fn in_eviction_order(&self) -> Vec<UnusedImage> {
        let unused = self.by_key.iter().filter(|(_, record)| {
            let is_kept = record.in_use || record.pinned;
            !is_kept
        });
        let mut unused: Vec<UnusedImage> = unused
            .map(|(key, record)| UnusedImage {
                key: key.clone(),
                record: record.clone(),
            })
            .collect();
        unused.sort_by_key(|image| (image.record.last_used, image.record.first_detected));
        unused
    }

    /// Forgets an image that was removed.
    pub fn forget(&mut self, key: &ImageKey) {
        self.by_key.remove(key);
    }

    pub fn get(&self, key: &ImageKey) -> Option<&ImageRecord> {
        self.by_key.get(key)
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// What is to outlive the agent. It changes when an image comes or goes and when its use begins or ends, but not
    /// while it goes on being used.
    pub fn to_remember(&self) -> Vec<RememberedImage> {
        let remembered = self.by_key.iter().map(|(key, record)| RememberedImage {
            key: key.clone(),
            first_detected: record.first_detected,
            last_used: record.last_used.filter(|_| !record.in_use),
            in_use: record.in_use,
        });
        remembered.collect()
    }

    fn key(&self, image: &ImageFacts) -> ImageKey {
        ImageKey {
            id: image.id.clone(),
            handler: match self.keyed_by {
                KeyedBy::Id => String::new(),
                KeyedBy::IdAndHandler => image.handler.clone(),
            },
        }
    }

    /// An image is used under its id or one of its names.
    fn in_use(&self, images: &[ImageFacts], uses: &[ImageUse]) -> BTreeSet<ImageKey> {
        let mut used: BTreeMap<&str, Vec<&ImageUseHandler>> = BTreeMap::new();
        for one in uses {
            used.entry(&one.image).or_default().push(&one.handler);
        }
        let is_used = |image: &ImageFacts, name: &str| {
            let handlers = used.get(name).into_iter().flatten();
            handlers
                .into_iter()
                .any(|handler| match (self.keyed_by, handler) {
                    (KeyedBy::IdAndHandler, ImageUseHandler::Only(handler)) => {
                        *handler == image.handler
                    }
                    (KeyedBy::Id, _) | (_, ImageUseHandler::Any) => true,
                })
        };
        let used_images = images.iter().filter(|image| {
            let mut names = std::iter::once(&image.id).chain(&image.names);
            names.any(|name| is_used(image, name))
        });
        used_images.map(|image| self.key(image)).collect()
    }
}
