//! A token on the wire: a JWT, signed with ES256.

use serde_json::{Value, json};

use crate::{auth::Authority, base64};

pub(super) fn token(authority: &Authority, payload: &Value) -> anyhow::Result<String> {
    let header = json!({"alg": "ES256", "kid": "double"});
    let signed = format!(
        "{}.{}",
        part(header.to_string().as_bytes()),
        part(payload.to_string().as_bytes())
    );
    let signature = authority.signature(signed.as_bytes())?;
    let flat = flat(&signature).ok_or_else(|| anyhow::anyhow!("a signature is not ASN.1"))?;
    Ok(format!("{signed}.{}", part(&flat)))
}

/// Base64 as URLs have it.
fn part(bytes: &[u8]) -> String {
    base64::encode(bytes)
        .replace('+', "-")
        .replace('/', "_")
        .replace('=', "")
}

/// Returns the two numbers of an ECDSA signature one behind the other, each of 32 bytes.
fn flat(signature: &[u8]) -> Option<[u8; 64]> {
    let (number, rest) = integer(signature.get(2..)?)?;
    let (second, _) = integer(rest)?;
    let mut flat = [0; 64];
    for (number, place) in [(number, 32_usize), (second, 64)] {
        let digits = &number[number.iter().take_while(|digit| **digit == 0).count()..];
        flat.get_mut(place.checked_sub(digits.len())?..place)?
            .copy_from_slice(digits);
    }
    Some(flat)
}

fn integer(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match text {
        [2, length, rest @ ..] => rest.split_at_checked(usize::from(*length)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_signature_are_filled_up_or_cut_to_32_bytes() {
        let first = [&[2, 33, 0][..], &[0x80; 32]].concat();
        let second = [2, 1, 7];
        let signature = [&[0x30, 38][..], &first, &second].concat();
        let flat = flat(&signature).unwrap();
        assert_eq!(flat[..32], [0x80; 32]);
        assert_eq!((flat[62], flat[63]), (0, 7));
        assert!(super::flat(&[0x30, 3, 4, 1, 1]).is_none());
    }
}
