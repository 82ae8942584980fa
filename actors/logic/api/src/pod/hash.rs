//! The container hash: upstream's number, so that a node can be taken over from a kubelet without a restart.
//!
//! Upstream hashes its debug dump of the JSON of the fields that may not change under a running container: name
//! and image. Mirrors `pkg/kubelet/container/helpers.go`, `HashContainer` (v1.36).

use k8s_openapi::api::core::v1::Container;
use md5::{Digest, Md5};

/// Returns what the annotation `io.kubernetes.container.hash` holds (there in hexadecimal).
pub fn container_hash(container: &Container) -> u64 {
    let mut json = String::from("{\"image\":");
    go_json_string(container.image.as_deref().unwrap_or_default(), &mut json);
    json.push_str(",\"name\":");
    go_json_string(&container.name, &mut json);
    json.push('}');
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    fnv32a(format!("([]uint8)[{}]", bytes.join(" ")).as_bytes()).into()
}

/// FNV-1a in 32 bits; the `fnv` crate has the one of 64 bits only.
pub fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// FNV-1a in 128 bits, fed piece by piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fnv128a(u128);

impl Fnv128a {
    pub(crate) const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte))
                .wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    pub(crate) fn hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// MD5: what upstream named static pods by before v1.35. It protects nothing.
pub(crate) fn md5_hex(text: &[u8]) -> String {
    hex(&Md5::digest(text))
}

/// Go's JSON escapes more than JSON asks for: `<`, `>`, `&` and the two line separators.
pub fn go_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;

    use super::*;

    fn container(name: &str, image: &str) -> Container {
        Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            ..Container::default()
        }
    }

    #[test]
    fn container_hash_is_upstreams() {
        // TestConsistentHashContainer: what it is since v1.31, when the hash came to be of name and image alone.
        assert_eq!(
            container_hash(&container("test_container", "foo/image:v1")),
            0x8e45_cbd0
        );
    }

    /// Upstream's TestHashContainerWithoutResources.
    #[test]
    fn resources_and_resize_policies_do_not_count() {
        let mut sized = container("foo", "bar");
        assert_eq!(container_hash(&sized), 0x11a6_d6d6);
        sized.resources = Some(ResourceRequirements::default());
        sized.resize_policy = Some(Vec::new());
        assert_eq!(container_hash(&sized), 0x11a6_d6d6);
    }

    #[test]
    fn container_hash_is_that_of_the_go_program() {
        let rows = [
            (container("", ""), 0xedd6_7cc4),
            (
                container("c", "example.org/a@sha256:0<&>\u{2028}\"\\\n"),
                0xa60b_fc2b,
            ),
        ];
        for (container, hash) in rows {
            assert_eq!(container_hash(&container), hash, "{container:?}");
        }
    }

    #[test]
    fn only_name_and_image_count() {
        let plain = container("c", "i");
        let other = Container {
            command: Some(vec!["x".to_owned()]),
            tty: Some(true),
            ..plain.clone()
        };
        assert_eq!(container_hash(&plain), container_hash(&other));
        assert_ne!(container_hash(&plain), container_hash(&container("c", "j")));
    }

    /// The examples of RFC 1321.
    #[test]
    fn md5_is_that_of_its_rfc() {
        let rows = [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "abcdefghijklmnopqrstuvwxyz",
                "c3fcd3d76192e4007dfb496cca67e13b",
            ),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ];
        for (text, hex) in rows {
            assert_eq!(md5_hex(text.as_bytes()), hex, "{text}");
        }
    }

    #[test]
    fn fnv_of_nothing_is_its_offset() {
        assert_eq!(fnv32a(b""), 0x811c_9dc5);
        assert_eq!(Fnv128a::new().hex(), "6c62272e07bb014262b821756295c58d");
    }
}
