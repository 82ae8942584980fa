//! A token on the wire: a JWT, signed with ES256.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine as _};
use serde_json::{Value, json};

use crate::auth::CertificateAuthority;

pub(super) fn token(authority: &CertificateAuthority, payload: &Value) -> anyhow::Result<String> {
    let header = json!({"alg": "ES256", "kid": "double"});
    let signed = format!(
        "{}.{}",
        BASE64.encode(header.to_string()),
        BASE64.encode(payload.to_string())
    );
    let signature = authority.signature(signed.as_bytes())?;
    Ok(format!("{signed}.{}", BASE64.encode(signature)))
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::*;

    #[test]
    fn a_signature_is_two_numbers_of_32_bytes_that_the_authoritys_key_confirms() {
        let authority = CertificateAuthority::new("ca").unwrap();
        let token = token(&authority, &json!({"sub": "me"})).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = BASE64.decode(signature).unwrap();
        assert_eq!(signature.len(), 64);
        let der = authority.der();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let key = &certificate.public_key().subject_public_key.data;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key)
            .verify(signed.as_bytes(), &signature)
            .unwrap();
    }
}
