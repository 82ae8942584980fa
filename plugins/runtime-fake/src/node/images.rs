//! What may be done with images.

use crate::node::{Node, Refusal};
use crate::state::{Image, Record};

impl Node {
    /// Adds an image as if it had been pulled; returns its id.
    pub(crate) fn pulled(&mut self, name: &str) -> Result<String, Refusal> {
        if name.is_empty() {
            return Err(Refusal::Missing {
                field: "image.image",
            });
        }
        if let Some(there) = self.state.images.find(name) {
            return Ok(there.id.clone());
        }
        let image = Image::pulled(name);
        let id = image.id.clone();
        self.commit(Record::Image(image))?;
        Ok(id)
    }

    /// Removes an image. One that is gone is no error.
    pub(crate) fn remove_image(&mut self, name: &str) -> Result<(), Refusal> {
        let Some(image) = self.state.images.find(name) else {
            return Ok(());
        };
        let id = image.id.clone();
        Ok(self.commit(Record::ImageRemoved { id })?)
    }
}
