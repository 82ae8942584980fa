//! The manifest of a platform in an index, which may have indexes in it.
//!
//! As containerd's `images.Manifest`: what an index says of a platform counts; where it says nothing, the config does.

use std::collections::BTreeSet;

use super::{
    DESCRIPTORS_MAX, Descriptor, Document, DocumentError, ImageConfig, Manifest, Platform,
};
use crate::digest::Digest;

/// Indexes above a manifest.
const MAX_DEPTH: usize = 8;
/// Documents that are fetched for one image.
const MAX_DOCUMENTS: usize = 32;

const WHAT: &str = "the index";

/// A search that asks for one document after the other.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    platform: &'a Platform,
    /// What is still to be looked at, the best last.
    stack: Vec<Candidate>,
    seen: BTreeSet<Digest>,
    documents: usize,
    /// Why something that was found is not the image.
    refused: Option<DocumentError>,
    /// Manifests that were named.
    named: usize,
}

/// A document that may be the image, or lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) descriptor: Descriptor,
    depth: usize,
    /// An index says that it is for the platform.
    is_chosen: bool,
}

impl<'a> Search<'a> {
    /// Begins with what the index `top` lists.
    pub(crate) fn new(platform: &'a Platform, top: Digest, list: Vec<Descriptor>) -> Self {
        let mut search = Self {
            platform,
            stack: Vec::new(),
            seen: BTreeSet::from([top]),
            documents: 0,
            refused: None,
            named: 0,
        };
        search.push(list, 1, false);
        search
    }

    /// Returns the next document to fetch.
    pub(crate) fn next(&mut self) -> Result<Candidate, DocumentError> {
        while let Some(candidate) = self.stack.pop() {
            // Nothing is looked at twice, so an index that leads to itself ends.
            if !self.seen.insert(candidate.descriptor.digest.clone()) {
                let digest = &candidate.descriptor.digest;
                self.refuse(format!(
                    "{digest} is in it more than once, or leads to itself"
                ));
                continue;
            }
            self.documents += 1;
            if self.documents > MAX_DOCUMENTS {
                self.refuse(format!(
                    "more than {MAX_DOCUMENTS} documents lead to its image"
                ));
                break;
            }
            return Ok(candidate);
        }
        Err(self.refused.take().unwrap_or_else(|| {
            let (named, platform) = (self.named, self.platform);
            refusal(format!("none of its {named} manifests is for {platform}"))
        }))
    }

    /// Takes the document of a candidate; returns the manifest, if it is one.
    pub(crate) fn open(&mut self, candidate: &Candidate, document: Document) -> Option<Manifest> {
        match document {
            Document::Manifest(manifest) => Some(manifest),
            Document::Index(_) if candidate.depth >= MAX_DEPTH => {
                self.refuse(format!(
                    "more than {MAX_DEPTH} indexes lie within each other"
                ));
                None
            }
            Document::Index(list) => {
                self.push(list, candidate.depth + 1, candidate.is_chosen);
                None
            }
        }
    }

    /// Tells whether the image of a manifest is the one: what an index said of it counts, even where its config says
    /// something else, which builders get wrong. `name` is for the warning.
    pub(crate) fn accepts(
        &mut self,
        candidate: &Candidate,
        config: &ImageConfig,
        name: &str,
    ) -> bool {
        match config.suits(self.platform) {
            Ok(()) => true,
            Err(error) if candidate.is_chosen => {
                tracing::warn!(image = name, reason = %error, "its index says otherwise, and is believed");
                true
            }
            Err(error) => {
                self.refused.get_or_insert(error);
                false
            }
        }
    }

    fn push(&mut self, list: Vec<Descriptor>, depth: usize, is_chosen: bool) {
        self.named += list.len();
        let ranked = list.into_iter().filter_map(|descriptor| {
            let (rank, is_chosen) = match &descriptor.platform {
                Some(offered) if offered.is_named() => (self.platform.rank(offered)?, true),
                // What it holds tells the platform.
                Some(_) | None if may_be_image(&descriptor.media_type) => (u32::MAX, is_chosen),
                Some(_) | None => return None,
            };
            let candidate = Candidate {
                descriptor,
                depth,
                is_chosen,
            };
            Some((rank, candidate))
        });
        let mut ranked: Vec<_> = ranked.collect();
        if self.stack.len() + ranked.len() > DESCRIPTORS_MAX {
            self.refuse(format!(
                "its indexes name more than {DESCRIPTORS_MAX} manifests"
            ));
            return;
        }
        // The first of equals, as in the index; the best one is taken from the end.
        ranked.sort_by_key(|(rank, _)| *rank);
        self.stack
            .extend(ranked.into_iter().rev().map(|(_, candidate)| candidate));
    }

    fn refuse(&mut self, reason: String) {
        self.refused.get_or_insert_with(|| refusal(reason));
    }
}

fn refusal(reason: String) -> DocumentError {
    DocumentError::Refused { what: WHAT, reason }
}

/// Tells whether something of this media type is a manifest or an index; indexes list other things too.
fn may_be_image(media_type: &str) -> bool {
    let known = ["image.manifest", "image.index", "distribution.manifest"];
    media_type.is_empty() || known.iter().any(|known| media_type.contains(known))
}
