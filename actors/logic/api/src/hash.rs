//! The container hash: upstream's number, so that a node can be taken over from a kubelet without a restart.
//!
//! Upstream hashes its debug dump of the JSON of the fields that may not change under a running container: name
//! and image. Mirrors `pkg/kubelet/container/helpers.go`, `HashContainer` (v1.36).

use k8s_openapi::api::core::v1::Container;

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
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if text.len() % 64 >= 56 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    let bits = (text.len() as u64).wrapping_mul(8);
    padded[end..].copy_from_slice(&bits.to_le_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        md5_block(&mut state, block);
    }
    let bytes = state.iter().flat_map(|word: &u32| word.to_le_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

fn md5_block(state: &mut [u32; 4], block: &[u8]) {
    const TURNS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    let word = |at: usize| {
        let bytes = block[at * 4..at * 4 + 4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes are four bytes"))
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, sine) in SINES.into_iter().enumerate() {
        let (mixed, at) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), (7 * step) % 16),
        };
        let sum = a
            .wrapping_add(mixed)
            .wrapping_add(sine)
            .wrapping_add(word(at));
        let turned = sum.rotate_left(TURNS[step / 16][step % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    for (held, new) in state.iter_mut().zip([a, b, c, d]) {
        *held = held.wrapping_add(new);
    }
}

/// MD5's table: the fractions of the sines of 1 to 64.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

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
