//! Objects from text: as strictly as the API reads them, patched as it patches them.

pub mod absent_fields;
pub mod strategic_patch;
pub mod strict_decode;
pub mod unsupported_fields;
pub mod yaml_numbers;
