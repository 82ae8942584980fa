//! A key for a pod, and the request for its certificate.
//!
//! Upstream: `generateKeyAndProof` of pkg/kubelet/podcertificate (1.36), where a stub of a PKCS#10 request took the place
//! of public key and proof of possession.

use logic_api::objects::PendingCertificateRequest;
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519,
};
use ring::digest::{SHA256, digest};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// How PKCS#8 of the first version begins for an Ed25519 key; the seed is the rest.
const ED25519_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const ED25519_SEED: usize = 32;

/// Why no key could be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyGenerationError {
    #[error("unknown key type {0:?}")]
    Unknown(String),
    #[error("this node makes no keys of type {0:?}, but ECDSAP256, ECDSAP384 and ED25519")]
    NotMade(String),
    #[error("cannot make a key and its certificate request")]
    Make(#[from] rcgen::Error),
}

impl KeyGenerationError {
    pub(super) fn transient(&self) -> bool {
        match self {
            KeyGenerationError::Unknown(_) | KeyGenerationError::NotMade(_) => false,
            KeyGenerationError::Make(_) => true,
        }
    }
}

/// Makes a key of this type, and an empty request for it. The request's name follows from its content, so that the same
/// one is never made twice.
pub(super) fn draw(key_type: &str) -> Result<PendingCertificateRequest, KeyGenerationError> {
    let algorithm = match key_type {
        "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
        "ED25519" => &PKCS_ED25519,
        // The library makes no RSA keys, and does not know the curve.
        "RSA3072" | "RSA4096" | "ECDSAP521" => {
            return Err(KeyGenerationError::NotMade(key_type.to_owned()));
        }
        _ => return Err(KeyGenerationError::Unknown(key_type.to_owned())),
    };
    let mut key = KeyPair::generate_for(algorithm)?;
    if key_type == "ED25519" {
        key = first_version(&key)?;
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?.der().to_vec();
    Ok(PendingCertificateRequest {
        name: name(&request),
        key_pem: key.serialize_pem().into_bytes(),
        request,
    })
}

/// The library writes the second version of PKCS#8, which many do not read.
fn first_version(key: &KeyPair) -> Result<KeyPair, rcgen::Error> {
    let whole = key.serialize_der();
    let seed = whole
        .get(ED25519_PREFIX.len()..ED25519_PREFIX.len() + ED25519_SEED)
        .ok_or(rcgen::Error::CouldNotParseKeyPair)?;
    let der = PrivatePkcs8KeyDer::from([&ED25519_PREFIX[..], seed].concat());
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)
}

fn name(request: &[u8]) -> String {
    let digest = digest(&SHA256, request);
    let start = digest.as_ref().iter().take(8);
    let hex: String = start.map(|byte| format!("{byte:02x}")).collect();
    format!("req-{hex}")
}

#[cfg(test)]
mod tests {
    use rcgen::PublicKeyData;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use x509_parser::prelude::{FromDer, X509CertificationRequest};

    use super::*;

    #[test]
    fn a_request_says_nothing_but_the_key_and_is_signed_with_it() {
        for kind in ["ECDSAP256", "ECDSAP384", "ED25519"] {
            let asked = draw(kind).unwrap();
            let (rest, request) = X509CertificationRequest::from_der(&asked.request).unwrap();
            assert_eq!(rest, b"", "{kind}");
            let info = &request.certification_request_info;
            assert_eq!(info.subject.iter().count(), 0, "{kind}");
            assert_eq!(request.requested_extensions().map(Iterator::count), None);
            let key = std::str::from_utf8(&asked.key_pem).unwrap();
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
            let key = KeyPair::from_pem(key).unwrap();
            assert_eq!(
                key.der_bytes(),
                &*info.subject_pki.subject_public_key.data,
                "{kind}"
            );
            // What it verifies the signature with is the library that parses it.
            let der = rcgen::CertificateSigningRequestParams::from_der(&asked.request.into());
            assert!(der.is_ok(), "{kind}");
        }
    }

    #[test]
    fn an_ed25519_key_is_written_as_everybody_reads_it() {
        let asked = draw("ED25519").unwrap();
        let PrivateKeyDer::Pkcs8(der) = PrivateKeyDer::from_pem_slice(&asked.key_pem).unwrap()
        else {
            panic!("it is no PKCS#8");
        };
        let der = der.secret_pkcs8_der();
        assert_eq!(der.len(), ED25519_PREFIX.len() + ED25519_SEED);
        assert!(der.starts_with(&ED25519_PREFIX));
    }

    #[test]
    fn every_key_is_another_and_so_is_its_name() {
        let (one, other) = (draw("ED25519").unwrap(), draw("ED25519").unwrap());
        assert_ne!(one.key_pem, other.key_pem);
        assert_ne!(one.name, other.name);
        assert_eq!((one.name.len(), &one.name[..4]), (20, "req-"));
    }

    #[test]
    fn a_key_that_cannot_be_made_is_named() {
        for kind in ["RSA3072", "RSA4096", "ECDSAP521"] {
            let error = draw(kind).unwrap_err();
            let told = format!(
                "this node makes no keys of type {kind:?}, but ECDSAP256, ECDSAP384 and ED25519"
            );
            assert_eq!(error.to_string(), told);
            assert!(!error.transient());
        }
        assert_eq!(
            draw("DSA").unwrap_err().to_string(),
            "unknown key type \"DSA\""
        );
    }
}
