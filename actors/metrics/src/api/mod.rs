//! The servers and clients of APIs: requests of callers, requests to the API server, certificates.

pub mod callers;
pub mod certificates;
pub mod http;
pub mod rest_client;
