//! Certificates for tests.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, KeyPair};

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A certificate and its key, PEM.
pub(super) fn signed() -> (String, String) {
    signed_as("someone")
}

pub(super) fn signed_as(name: &str) -> (String, String) {
    make(name, kernel::wall() + AN_HOUR)
}

pub(super) fn signed_until(end: SystemTime) -> (String, String) {
    make("someone", end)
}

fn make(name: &str, end: SystemTime) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.not_before = (end - AN_HOUR * 2).into();
    params.not_after = end.into();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}
