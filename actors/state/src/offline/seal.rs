//! Encryption of the checkpoint with a key of this node: other machines can neither read nor replace it.
//!
//! The key is made of a random file beside the checkpoint and of the machine's id, so that neither a copied checkpoint
//! nor a copied folder opens on another machine.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};

const KEY_FILE: &str = "alone.key";
const KEY_BYTES: usize = 32;
/// The extension of a key that is none any more.
const DAMAGED: &str = "key.damaged";
/// What the key is derived for: another version of the content gets another key.
const SALT: &[u8] = b"oxlet alone 1";

/// The machine's id (machine-id(5)).
pub(super) const MACHINE_ID: &str = "/etc/machine-id";

/// Why the checkpoint can be neither sealed nor opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealError {
    #[error("cannot {action} {}", path.display())]
    Key {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the system has no random bytes")]
    Random,
    #[error("it was sealed with another key or on another machine, or it was changed")]
    Opening,
}

impl SealError {
    /// Whether the same may work later.
    pub(super) fn transient(&self) -> bool {
        match self {
            SealError::Key { .. } | SealError::Random => true,
            SealError::Opening => false,
        }
    }
}

/// The machine's id; without one the checkpoint would be sealed with a key that the machine has no more when its id is back.
fn machine(path: &Path) -> Result<String, SealError> {
    let failed = |source| SealError::Key {
        action: "read the machine's id in",
        path: path.to_owned(),
        source,
    };
    let id = fs::read_to_string(path).map_err(failed)?;
    match id.trim().is_empty() {
        true => Err(failed(io::Error::other("it is empty"))),
        false => Ok(id),
    }
}

/// The key of the checkpoint.
pub(super) struct Seal {
    key: LessSafeKey,
    mark: hmac::Key,
}

// The key is secret.
impl std::fmt::Debug for Seal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Seal")
    }
}

impl Seal {
    /// Takes the folder's key, and makes one where there is none.
    pub(super) fn of(folder: &Path, machine_id: &Path) -> Result<Seal, SealError> {
        let path = folder.join(KEY_FILE);
        let secret = match read(&path)? {
            Some(secret) => secret,
            None => made(folder, &path)?,
        };
        let machine = machine(machine_id)?;
        let machine = machine.trim().as_bytes();
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(&secret);
        let never = "the derived length is the algorithm's own";
        let sealing = [b"seal".as_slice(), machine];
        let sealing = derived.expand(&sealing, &CHACHA20_POLY1305).expect(never);
        let marking = [b"mark".as_slice(), machine];
        let marking = derived.expand(&marking, hmac::HMAC_SHA256).expect(never);
        Ok(Seal {
            key: LessSafeKey::new(UnboundKey::from(sealing)),
            mark: hmac::Key::from(marking),
        })
    }

    /// A keyed digest that tells whether two contents are the same, and nothing more.
    pub(super) fn mark(&self, content: &[u8]) -> Vec<u8> {
        hmac::sign(&self.mark, content).as_ref().to_vec()
    }

    /// Returns the nonce, then the ciphertext.
    pub(super) fn close(&self, mut content: Vec<u8>) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        let random = SystemRandom::new().fill(&mut nonce);
        random.map_err(|_| SealError::Random)?;
        let bound = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .key
            .seal_in_place_append_tag(bound, Aad::from(SALT), &mut content);
        sealed.expect("a checkpoint is far below the cipher's limit");
        content.splice(0..0, nonce);
        Ok(content)
    }

    pub(super) fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, rest) = sealed
            .split_at_checked(NONCE_LEN)
            .ok_or(SealError::Opening)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Opening)?;
        let mut content = rest.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(SALT), &mut content);
        let length = opened.map_err(|_| SealError::Opening)?.len();
        content.truncate(length);
        Ok(content)
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, SealError> {
    let failed = |source| SealError::Key {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    // A copied folder may have left it open to others.
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .map_err(failed)?;
    let mut secret = Vec::new();
    file.take(KEY_BYTES as u64 + 1)
        .read_to_end(&mut secret)
        .map_err(failed)?;
    if secret.len() == KEY_BYTES {
        return Ok(Some(secret));
    }
    // What it sealed is lost, and the next checkpoint needs a key that is one.
    let aside = path.with_extension(DAMAGED);
    fs::rename(path, &aside).map_err(|source| SealError::Key {
        action: "set aside",
        path: path.to_owned(),
        source,
    })?;
    tracing::error!(
        "{} is not a key of {KEY_BYTES} bytes; it is kept as {}",
        path.display(),
        aside.display()
    );
    Ok(None)
}

/// Written beside and linked into place, so that a power cut leaves no half of it.
fn made(folder: &Path, path: &Path) -> Result<Vec<u8>, SealError> {
    let mut secret = vec![0; KEY_BYTES];
    let random = SystemRandom::new().fill(&mut secret);
    random.map_err(|_| SealError::Random)?;
    let write = || {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let temporary = folder.join(format!("{KEY_FILE}.new"));
        drop(fs::remove_file(&temporary));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&secret)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|source| SealError::Key {
        action: "make",
        path: path.to_owned(),
        source,
    })?;
    Ok(secret)
}
