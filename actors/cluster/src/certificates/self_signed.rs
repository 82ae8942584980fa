//! The serving certificate of a node that is given none: `FOLDER/kubelet.crt` and `kubelet.key`, made once.
//!
//! Upstream: client-go util/cert (GenerateSelfSignedCertKey), cmd/kubelet/app/server.go (1.36).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};

use super::certificate_files::CertificateFiles;
use super::store::load;

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The certificate is valid from an hour ago: clocks differ.
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// Why the certificate can be neither read nor made.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    #[error("cannot make a certificate for {host}")]
    Make { host: String, source: rcgen::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Returns the paths of certificate and key; makes them if there are none, or if the certificate has expired.
pub fn self_signed(
    folder: &Path,
    host: &str,
    now: SystemTime,
) -> Result<CertificateFiles, SelfSignedError> {
    let files = CertificateFiles {
        certificate: folder.join("kubelet.crt"),
        key: folder.join("kubelet.key"),
    };
    let at = kernel::timestamp_of(now);
    let found = load(&files.certificate, &files.key);
    if found.is_ok_and(|pair| !pair.lifetime.is_over(at)) {
        return Ok(files);
    }
    let (certificate, key) = make(host, now).map_err(|source| SelfSignedError::Make {
        host: host.to_owned(),
        source,
    })?;
    write(&files.key, key.as_bytes(), 0o600)?;
    write(&files.certificate, certificate.as_bytes(), 0o644)?;
    Ok(files)
}

/// The certificate and that of its own authority, and the key.
fn make(host: &str, now: SystemTime) -> Result<(String, String), rcgen::Error> {
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since_epoch.unwrap_or_default().as_secs();
    let named = |name: String| {
        let mut params = CertificateParams::default();
        params.not_before = (now - AN_HOUR).into();
        params.not_after = (now + A_YEAR).into();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let authority_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut authority = named(format!("{host}-ca@{seconds}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
    ];
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = named(format!("{host}@{seconds}"));
    params.subject_alt_names = vec![match host.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(host.try_into()?),
    }];
    params.key_usages = vec![
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer)?;
    let chain = certificate.pem() + &authority_certificate.pem();
    Ok((chain, key.serialize_pem()))
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), SelfSignedError> {
    let place = || {
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)?;
        }
        let new = path.with_extension("new");
        drop(fs::remove_file(&new));
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(mode)
            .open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    place().map_err(|source| SelfSignedError::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_made_once_and_again_when_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let now = kernel::wall();
        let files = self_signed(folder.path(), "node-1", now).unwrap();
        let first = fs::read(&files.certificate).unwrap();
        let pair = load(&files.certificate, &files.key).unwrap();
        assert!(pair.subject.names.contains("node-1"));
        assert_eq!(pair.certified.cert.len(), 2);
        let mode = fs::metadata(&files.key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        self_signed(folder.path(), "node-1", now).unwrap();
        assert_eq!(fs::read(&files.certificate).unwrap(), first);
        self_signed(folder.path(), "node-1", now + A_YEAR * 2).unwrap();
        assert_ne!(fs::read(&files.certificate).unwrap(), first);
    }

    #[test]
    fn a_node_named_by_its_address_is_reached_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = self_signed(folder.path(), "10.0.0.1", kernel::wall()).unwrap();
        let pair = load(&files.certificate, &files.key).unwrap();
        assert_eq!(pair.subject.addresses.len(), 1);
    }
}
