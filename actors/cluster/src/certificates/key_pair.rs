//! A certificate with its key, its lifetime and its subject.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use logic_node::certificates::{CertificateSubject, ValidityPeriod};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a text holds no certificate with its key.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("expected PEM with certificates, the first one being the leaf")]
    Certificates(#[source] rustls::pki_types::pem::Error),
    #[error("found no certificate")]
    None,
    #[error("found no private key in PEM")]
    Key(#[source] rustls::pki_types::pem::Error),
    #[error("cannot use the private key")]
    KeyKind(#[source] rustls::Error),
    #[error("the private key does not belong to the certificate")]
    Mismatch(#[source] rustls::Error),
    #[error("cannot read the leaf certificate")]
    Leaf(#[source] x509_parser::nom::Err<x509_parser::error::X509Error>),
    #[error("the leaf certificate is good from or until a time that does not exist")]
    Time(#[source] jiff::Error),
}

/// A certificate with its key, ready for TLS.
#[derive(Clone)]
pub struct TlsKeyPair {
    /// The chain and its key, as rustls signs with them.
    pub certified: Arc<CertifiedKey>,
    pub lifetime: ValidityPeriod,
    pub subject: CertificateSubject,
}

// The key is secret.
impl fmt::Debug for TlsKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("lifetime", &self.lifetime)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

impl TlsKeyPair {
    /// Reads certificates (leaf first) from one text, and the key from another, which may be the same.
    pub fn parse(certificates: &[u8], key: &[u8]) -> Result<TlsKeyPair, PairError> {
        let chain = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(PairError::Certificates)?;
        let leaf = chain.first().ok_or(PairError::None)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(PairError::Leaf)?;
        let (lifetime, subject) = (lifetime(&parsed)?, subject(&parsed));
        let key = PrivateKeyDer::from_pem_slice(key).map_err(PairError::Key)?;
        let key =
            rustls::crypto::ring::sign::any_supported_type(&key).map_err(PairError::KeyKind)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(PairError::Mismatch)?;
        Ok(TlsKeyPair {
            certified: Arc::new(certified),
            lifetime,
            subject,
        })
    }
}

fn lifetime(leaf: &X509Certificate<'_>) -> Result<ValidityPeriod, PairError> {
    let at = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(PairError::Time)
    };
    Ok(ValidityPeriod {
        not_before: at(leaf.validity().not_before)?,
        not_after: at(leaf.validity().not_after)?,
    })
}

fn subject(leaf: &X509Certificate<'_>) -> CertificateSubject {
    let text = |found: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        found.as_str().unwrap_or_default().to_owned()
    };
    let mut subject = CertificateSubject {
        common_name: leaf
            .subject()
            .iter_common_name()
            .map(text)
            .next()
            .unwrap_or_default(),
        organizations: leaf.subject().iter_organization().map(text).collect(),
        ..CertificateSubject::default()
    };
    let alternatives = leaf.subject_alternative_name().ok().flatten();
    for name in alternatives
        .iter()
        .flat_map(|names| &names.value.general_names)
    {
        if let GeneralName::DNSName(name) = name {
            subject.names.insert((*name).to_owned());
        } else if let GeneralName::IPAddress(bytes) = name {
            subject.addresses.extend(address(bytes));
        }
    }
    subject
}

fn address(bytes: &[u8]) -> BTreeSet<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let sixteen = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    four.or(sixteen).into_iter().collect()
}
