//! Images: a name each, and an id and digest made from the name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::settings::ImageSetting;
use crate::state::id::digest;
use crate::state::record::JournalRecord;

/// An image of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    /// `sha256:` and 64 digits.
    pub(crate) id: String,
    /// With its tag; empty if it is known by its digest only.
    pub(crate) tag: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    pub(crate) uid: Option<i64>,
    pub(crate) username: String,
    pub(crate) command: Vec<String>,
    pub(crate) pinned: bool,
    /// Whether it came with the node rather than by a pull.
    pub(crate) given: bool,
    /// A given one that was removed is remembered, so that it stays so.
    pub(crate) removed: bool,
}

/// Returns a name with the tag that it means when it has none.
pub(crate) fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') || name.contains('@') {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

impl ImageRecord {
    /// Returns the image of a name, as a pull would bring it.
    pub(crate) fn pulled(name: &str) -> ImageRecord {
        ImageRecord::given(&ImageSetting::from(name), false)
    }

    pub(crate) fn given(setting: &ImageSetting, given: bool) -> ImageRecord {
        let name = with_tag(&setting.name);
        let hash = digest(&name);
        let (tag, digest) = match name.split_once('@') {
            // Known by its id only: its tag has moved on.
            None if name.starts_with("sha256:") => (String::new(), String::new()),
            Some((_, _)) => (String::new(), name.clone()),
            None => {
                let repository = name
                    .rsplit_once(':')
                    .map_or(name.as_str(), |(repository, _)| repository);
                (
                    name.clone(),
                    format!(
                        "{repository}@sha256:{}",
                        digest(&format!("{name} manifest"))
                    ),
                )
            }
        };
        let size = 1_000_000 + u64::from_str_radix(&hash[..6], 16).unwrap_or(0);
        ImageRecord {
            id: format!("sha256:{hash}"),
            tag,
            digest,
            size: setting.size.unwrap_or(size),
            uid: setting.uid,
            username: setting.username.clone(),
            command: setting.command.clone(),
            pinned: false,
            given,
            removed: false,
        }
    }
}

/// The images that are there.
#[derive(Debug, Default)]
pub(crate) struct ImageStore {
    by_id: BTreeMap<String, ImageRecord>,
    by_name: BTreeMap<String, String>,
    removed: BTreeSet<String>,
}

impl ImageStore {
    /// Finds an image by id, name or digest.
    pub(crate) fn find(&self, reference: &str) -> Option<&ImageRecord> {
        if reference.is_empty() {
            return None;
        }
        let id = self
            .by_name
            .get(reference)
            .or_else(|| self.by_name.get(&with_tag(reference)));
        let id = id.map_or(reference, String::as_str);
        self.by_id
            .get(id)
            .or_else(|| self.by_id.get(&format!("sha256:{id}")))
    }

    /// Tells whether a given image is, or once was, on this node.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.by_id.contains_key(id) || self.removed.contains(id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &ImageRecord> {
        self.by_id.values()
    }

    pub(super) fn add(&mut self, image: ImageRecord) {
        if image.removed {
            self.removed.insert(image.id);
            return;
        }
        self.removed.remove(&image.id);
        for name in [&image.tag, &image.digest] {
            if !name.is_empty() {
                self.by_name.insert(name.clone(), image.id.clone());
            }
        }
        self.by_id.insert(image.id.clone(), image);
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(image) = self.by_id.remove(id) else {
            return;
        };
        self.by_name.remove(&image.tag);
        self.by_name.remove(&image.digest);
        if image.given {
            self.removed.insert(image.id);
        }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = JournalRecord> {
        let there = self.by_id.values().cloned();
        let gone = self.removed.iter().map(|id| ImageRecord {
            id: id.clone(),
            removed: true,
            given: true,
            ..ImageRecord::pulled("")
        });
        there.chain(gone).map(JournalRecord::Image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_by_each_of_its_names() {
        let mut images = ImageStore::default();
        let image = ImageRecord::pulled("localhost:5000/a");
        images.add(image.clone());
        let bare = image.id.trim_start_matches("sha256:");
        for name in [
            "localhost:5000/a",
            "localhost:5000/a:latest",
            &image.id,
            bare,
            &image.digest,
        ] {
            assert_eq!(images.find(name), Some(&image), "{name}");
        }
        for name in ["", "localhost:5000/a:1", "a", "sha256:"] {
            assert_eq!(images.find(name), None, "{name}");
        }
        images.remove(&image.id);
        assert_eq!(images.find("localhost:5000/a"), None);
    }

    #[test]
    fn an_image_pulled_by_digest_has_no_tag() {
        let image = ImageRecord::pulled("localhost/a@sha256:0123");
        assert_eq!(
            (image.tag.as_str(), image.digest.as_str()),
            ("", "localhost/a@sha256:0123")
        );
    }
}
