//! Laws of this source.
