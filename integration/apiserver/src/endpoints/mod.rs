//! What a request says and what is answered: its parts and selectors, objects and `Status`, discovery and OpenAPI.

pub(crate) mod answer;
pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod request_info;
pub(crate) mod selectors;
