//! TLS of the server: its own certificate may change at any time, and any client certificate is accepted.
//!
//! Whether a client's certificate is valid is decided at each request, by the authorities of that moment: a
//! caller with a stale one may still have a token. The handshake only proves that the key is the client's.

use std::collections::BTreeSet;
use std::sync::Arc;

use kernel::watch;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, NamedGroup, ServerConfig,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};

use super::PolicyError;
use crate::policy::TlsPolicy;

/// The server's current certificate; none while there is no valid one.
pub type CertificateReceiver = watch::Receiver<Option<Arc<CertifiedKey>>>;

/// Go's names of cipher suites, and those supported here. TLS 1.3 has suites of its own, which cannot be chosen.
const SUITES: [(&str, CipherSuite); 8] = [
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];
const SUITES_OF_13: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];
/// Go's numbers of key exchanges, and those supported here; the order is the library's, as Go's is its own.
const CURVES: [(u16, Option<NamedGroup>); 7] = [
    (23, Some(NamedGroup::secp256r1)),
    (24, Some(NamedGroup::secp384r1)),
    (25, None),
    (29, Some(NamedGroup::X25519)),
    (4587, None),
    (4588, None),
    (4589, None),
];
/// Client sessions that can be resumed; each takes some kilobytes.
const SESSIONS: usize = 32;
const BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
const NEWEST: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

/// Returns the settings of every connection.
pub(super) fn config(
    policy: &TlsPolicy,
    certificate: CertificateReceiver,
    asks_clients: bool,
) -> Result<ServerConfig, PolicyError> {
    let (suites, versions) = (suites(policy)?, versions(policy)?);
    let provider = CryptoProvider {
        cipher_suites: suites,
        kx_groups: curves(policy)?,
        ..ring::default_provider()
    };
    let algorithms = provider.signature_verification_algorithms;
    let has_12 = provider.cipher_suites.iter().any(|suite| !is_13(*suite));
    let versions = if has_12 { versions } else { &NEWEST };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(PolicyError::Tls)?;
    let builder = match asks_clients {
        true => builder.with_client_cert_verifier(Arc::new(AnyClient { algorithms })),
        false => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(CurrentCertificate(certificate)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    config.send_tls13_tickets = 1;
    Ok(config)
}

fn versions(
    policy: &TlsPolicy,
) -> Result<&'static [&'static SupportedProtocolVersion], PolicyError> {
    match policy.min_version.as_str() {
        "" | "VersionTLS12" => Ok(&BOTH),
        "VersionTLS13" => Ok(&NEWEST),
        old @ ("VersionTLS10" | "VersionTLS11") => {
            tracing::warn!("tlsMinVersion is {old}; the oldest that is spoken is VersionTLS12");
            Ok(&BOTH)
        }
        other => Err(PolicyError::Version(other.to_owned())),
    }
}

fn suites(policy: &TlsPolicy) -> Result<Vec<SupportedCipherSuite>, PolicyError> {
    let all = ring::ALL_CIPHER_SUITES.iter().copied();
    if policy.cipher_suites.is_empty() {
        return Ok(all.collect());
    }
    let mut wanted = Vec::new();
    for name in &policy.cipher_suites {
        if SUITES_OF_13.contains(&name.as_str()) {
            continue;
        }
        match SUITES.iter().find(|(known, _)| known == name) {
            Some((_, suite)) => wanted.push(*suite),
            None if name.starts_with("TLS_") => {
                tracing::warn!("tlsCipherSuites names {name}, which is too weak to be spoken");
            }
            None => return Err(PolicyError::Suite(name.clone())),
        }
    }
    Ok(all
        .filter(|suite| is_13(*suite) || wanted.contains(&suite.suite()))
        .collect())
}

/// Upstream: component-base/cli/flag/curves_flag.go (1.36).
fn curves(policy: &TlsPolicy) -> Result<Vec<&'static dyn SupportedKxGroup>, PolicyError> {
    let all = ring::ALL_KX_GROUPS.iter().copied();
    if policy.curves.is_empty() {
        return Ok(all.collect());
    }
    let (mut seen, mut wanted) = (BTreeSet::new(), Vec::new());
    for &id in &policy.curves {
        let refused = |why: &str| PolicyError::Curve(format!("curve preference {id} {why}"));
        let code = u16::try_from(id).ok().filter(|code| *code > 0);
        let code = code.ok_or_else(|| refused("is out of range (must be 1-65535)"))?;
        if !seen.insert(code) {
            return Err(PolicyError::Curve(format!(
                "duplicate curve preference {id}"
            )));
        }
        match CURVES.iter().find(|(known, _)| *known == code) {
            Some((_, Some(curve))) => wanted.push(*curve),
            Some((_, None)) => {
                tracing::warn!("tlsCurvePreferences names {id}, which is not spoken here");
            }
            None => return Err(refused("is not supported")),
        }
    }
    let chosen: Vec<_> = all.filter(|curve| wanted.contains(&curve.name())).collect();
    match chosen.is_empty() {
        true => Err(PolicyError::Curve(
            "none of the curve preferences is supported".to_owned(),
        )),
        false => Ok(chosen),
    }
}

fn is_13(suite: SupportedCipherSuite) -> bool {
    suite.tls13().is_some()
}

/// Returns the certificate of this moment: an open connection keeps its own.
#[derive(Debug)]
struct CurrentCertificate(CertificateReceiver);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }
}

/// Requests a client certificate, and verifies only that its key is the client's.
#[derive(Debug)]
struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(min_version: &str, suites: &[&str]) -> Result<ServerConfig, PolicyError> {
        let policy = TlsPolicy {
            min_version: min_version.to_owned(),
            cipher_suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
            curves: Vec::new(),
        };
        config(&policy, watch::channel(None).1, true)
    }

    #[test]
    fn versions_and_suites_are_gos_as_far_as_they_are_safe() {
        let good = [
            ("", &[][..]),
            ("VersionTLS12", &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]),
            ("VersionTLS13", &["TLS_AES_128_GCM_SHA256"]),
            ("VersionTLS10", &[]),
            ("", &["TLS_RSA_WITH_RC4_128_SHA"]),
        ];
        for (version, suites) in good {
            let made = with(version, suites);
            assert!(made.is_ok(), "{version} {suites:?}: {:?}", made.err());
        }
        let strange = with("TLS1.3", &[]).unwrap_err();
        assert!(matches!(&strange, PolicyError::Version(_)), "{strange}");
        assert!(!strange.transient());
        let strange = with("", &["RC4"]).unwrap_err();
        assert_eq!(
            strange.to_string(),
            "tlsCipherSuites has \"RC4\", which does not exist"
        );
        let one = TlsPolicy {
            min_version: String::new(),
            cipher_suites: vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()],
            curves: Vec::new(),
        };
        let chosen: Vec<_> = suites(&one)
            .unwrap()
            .iter()
            .filter(|one| !is_13(**one))
            .map(SupportedCipherSuite::suite)
            .collect();
        assert_eq!(chosen, [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]);
    }

    /// Upstream's TestTLSCurvePreferences; those of Go's curves that are not here are passed over.
    #[test]
    fn curves_are_those_of_the_configuration_that_are_supported() {
        use NamedGroup::{X25519, secp256r1, secp384r1};
        let chosen = |ids: &[i32]| {
            let policy = TlsPolicy {
                curves: ids.to_vec(),
                ..TlsPolicy::default()
            };
            let groups = curves(&policy).map_err(|error| {
                assert!(!error.transient());
                error.to_string()
            })?;
            Ok::<_, String>(groups.iter().map(|group| group.name()).collect::<Vec<_>>())
        };
        let all = [X25519, secp256r1, secp384r1];
        for ids in [&[23, 24, 29][..], &[], &[23, 24, 25, 29, 4588]] {
            assert_eq!(chosen(ids).unwrap(), all, "{ids:?}");
        }
        assert_eq!(chosen(&[29]).unwrap(), [X25519]);
        assert_eq!(chosen(&[24, 4587]).unwrap(), [secp384r1]);
        let refused = [
            (&[23, 29, 23][..], "duplicate curve preference 23"),
            (&[0], "curve preference 0 is out of range (must be 1-65535)"),
            (
                &[-1],
                "curve preference -1 is out of range (must be 1-65535)",
            ),
            (
                &[70_000],
                "curve preference 70000 is out of range (must be 1-65535)",
            ),
            (&[9999], "curve preference 9999 is not supported"),
            (&[25, 4588], "none of the curve preferences is supported"),
        ];
        for (ids, expected) in refused {
            let expected = format!("tlsCurvePreferences: {expected}");
            assert_eq!(chosen(ids).unwrap_err(), expected);
        }
    }
}
