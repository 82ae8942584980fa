//! The certificate authority of the double: it signs the server's certificate, those of clients, and what is asked for
//! by certificate requests. The whole cluster has one, as small clusters do.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber, date_time_ymd,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls::pki_types::CertificateDer;

use crate::clock;
use crate::endpoints::request_info::UserInfo;

/// How far back a certificate begins, so that a clock which is a little late finds it good. One that is short begins at
/// once.
const BACKDATE: i64 = 300;
const SHORT: i64 = 3600;
const TEN_YEARS: i64 = 10 * 365 * 24 * 3600;

#[derive(Debug)]
pub(crate) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub struct CertificateWithKey {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its private key, PKCS#8 as PEM.
    pub key: String,
}

impl std::fmt::Debug for CertificateWithKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Makes an authority of this name.
    pub(crate) fn new(name: &str) -> anyhow::Result<CertificateAuthority> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = params(subject(name, &[]), TEN_YEARS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let certificate = params
            .self_signed(&key)
            .context("cannot make an authority")?;
        Ok(CertificateAuthority {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// Returns the server's own certificate, for the loopback addresses.
    pub(crate) fn serving(&self) -> anyhow::Result<(Certificate, KeyPair)> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let names = ["127.0.0.1", "::1", "localhost", "kubernetes.default.svc"].map(str::to_string);
        let names = CertificateParams::new(names)
            .context("cannot name the server")?
            .subject_alt_names;
        let mut params = params(subject("kube-apiserver", &[]), TEN_YEARS);
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("cannot sign the server's certificate")?;
        Ok((certificate, key))
    }

    /// Returns a client's certificate: its name is the user, its organizations are the user's groups. It is valid for
    /// so many seconds; a negative number makes one that has expired.
    pub(crate) fn client(
        &self,
        user: &UserInfo,
        seconds: i64,
    ) -> anyhow::Result<CertificateWithKey> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = params(subject(&user.name, &user.groups), seconds);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("cannot sign a client's certificate")?;
        Ok(CertificateWithKey {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Returns the certificate of a client with this name, in this group unless that is empty.
    pub(crate) fn client_named(
        &self,
        name: &str,
        group: &str,
        seconds: i64,
    ) -> anyhow::Result<CertificateWithKey> {
        let groups = Some(group).filter(|group| !group.is_empty());
        let user = UserInfo {
            name: name.to_string(),
            groups: groups.map(str::to_string).into_iter().collect(),
            ..UserInfo::default()
        };
        self.client(&user, seconds)
    }

    /// Signs what a certificate request asks for. What its extensions say of its use is not asked.
    pub(crate) fn sign(
        &self,
        mut request: CertificateSigningRequestParams,
        usages: &[String],
        seconds: i64,
    ) -> anyhow::Result<String> {
        let wanted = &mut request.params;
        limit(wanted, seconds);
        (wanted.is_ca, wanted.key_usages, wanted.extended_key_usages) =
            (IsCa::ExplicitNoCa, Vec::new(), Vec::new());
        wanted.use_authority_key_identifier_extension = true;
        for usage in usages {
            match usage.as_str() {
                "digital signature" => wanted.key_usages.push(KeyUsagePurpose::DigitalSignature),
                "key encipherment" => wanted.key_usages.push(KeyUsagePurpose::KeyEncipherment),
                "client auth" => wanted
                    .extended_key_usages
                    .push(ExtendedKeyUsagePurpose::ClientAuth),
                "server auth" => wanted
                    .extended_key_usages
                    .push(ExtendedKeyUsagePurpose::ServerAuth),
                other => anyhow::bail!("unsupported usage {other:?}"),
            }
        }
        Ok(request
            .signed_by(&self.issuer)
            .context("cannot sign")?
            .pem())
    }

    /// Signs bytes with the authority's key: ECDSA with P-256 and SHA-256, as the two numbers that JWTs have.
    pub(crate) fn signature(&self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        let (key, random) = (self.issuer.key().serialized_der(), SystemRandom::new());
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random)
            .map_err(|why| anyhow::anyhow!("the authority's key is not of P-256: {why}"))?;
        let signature = key.sign(&random, bytes);
        let signature = signature.map_err(|_| anyhow::anyhow!("cannot sign"))?;
        Ok(signature.as_ref().to_vec())
    }
}

fn subject(name: &str, groups: &[String]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    // One name of each kind is all that a DistinguishedName of rcgen holds: a user of a certificate is in one group.
    if let Some(group) = groups.first() {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

fn params(subject: DistinguishedName, seconds: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    limit(&mut params, seconds);
    params
}

/// Writes down from when to when a certificate is good, and a number that no other has.
fn limit(params: &mut CertificateParams, seconds: i64) {
    let (now, epoch) = (clock::now(), date_time_ymd(1970, 1, 1));
    let since =
        |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default());
    let back = if seconds < SHORT {
        (1 - seconds).max(0)
    } else {
        BACKDATE
    };
    params.not_before = epoch + since(clock::later(now, -back));
    params.not_after = epoch + since(clock::later(now, seconds));
    params.serial_number = Some(SerialNumber::from(
        RandomState::new().build_hasher().finish() >> 1,
    ));
}
