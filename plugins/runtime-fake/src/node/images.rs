//! Operations on images.

use crate::node::{CriError, SimulatedNode};
use crate::state::{ImageRecord, JournalRecord};

impl SimulatedNode {
    /// Adds an image as if it had been pulled; returns its id.
    pub(crate) fn pulled(&mut self, name: &str) -> Result<String, CriError> {
        if name.is_empty() {
            return Err(CriError::Missing {
                field: "image.image",
            });
        }
        if let Some(there) = self.state.images.find(name) {
            return Ok(there.id.clone());
        }
        let image = ImageRecord::pulled(name);
        let id = image.id.clone();
        self.commit(JournalRecord::Image(image))?;
        Ok(id)
    }

    /// Removes an image. One that is gone is no error.
    pub(crate) fn remove_image(&mut self, name: &str) -> Result<(), CriError> {
        let Some(image) = self.state.images.find(name) else {
            return Ok(());
        };
        let id = image.id.clone();
        Ok(self.commit(JournalRecord::ImageRemoved { id })?)
    }
}
