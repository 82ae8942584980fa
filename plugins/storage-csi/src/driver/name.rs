//! Validation of drivers' names, which become names of folders.

/// Upstream's limit.
const LONGEST: usize = 63;

/// Returns why a name is none, if it is not.
pub(crate) fn wrong(name: &str) -> Option<String> {
    let labels = || name.split('.').all(is_label);
    if !name.is_empty() && name.len() <= LONGEST && labels() {
        return None;
    }
    let shown: String = name.chars().take(2 * LONGEST).collect();
    Some(format!(
        "driver name {shown:?} is not a domain name of at most {LONGEST} characters"
    ))
}

// RFC 1123, in either case.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let bytes = label.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|&byte| inner(byte))
        }
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_folder_s_name() {
        for good in ["d", "ebs.csi.aws.com", "Csi-Driver.example", "1.2"] {
            assert_eq!(wrong(good), None);
        }
        let long = "a".repeat(64);
        let bad = [
            "", ".", "..", "../x", "a/b", "a..b", "-a", "a-", "a b", "a\0", "ä", &long,
        ];
        for bad in bad {
            assert!(wrong(bad).is_some(), "{bad:?}");
        }
    }
}
