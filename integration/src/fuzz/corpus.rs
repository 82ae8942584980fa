//! Valid inputs to begin with, and words worth meeting.

use serde_json::Value;

pub(super) const MANIFESTS: [&str; 2] = [
    // The one by which the decisions' own tests know every field.
    include_str!("../../../actors/logic/api/src/manifest/testdata/rich.yaml"),
    include_str!("corpus/manifest-list.yaml"),
];
pub(super) const CONFIG: &str = include_str!("corpus/config.yaml");
pub(super) const DROP_IN: &str = include_str!("corpus/drop-in.conf");
pub(super) const PLUGINS: &str = include_str!("corpus/plugins.yaml");
pub(super) const FLAGS: &str = include_str!("corpus/flags.txt");
pub(super) const CONFLIST: &str = include_str!("corpus/network.conflist");
pub(super) const CNI_RESULT: &str = include_str!("corpus/cni-result.json");
pub(super) const CDI: &str = include_str!("corpus/cdi.yaml");

/// The seeds of a target's inputs.
#[derive(Clone, Debug, Default)]
pub(super) struct SeedCorpus {
    /// The seed inputs, unchanged.
    pub(super) texts: Vec<Vec<u8>>,
    /// As trees, to be broken without losing their shape.
    pub(super) trees: Vec<Value>,
}

impl SeedCorpus {
    /// Returns every input as bytes.
    pub(super) fn seeds(&self) -> impl Iterator<Item = Vec<u8>> {
        let trees = self.trees.iter().map(|tree| tree.to_string().into_bytes());
        self.texts.iter().cloned().chain(trees)
    }
}

/// Scalars and fragments that parsers, quantities, durations and names are known to stumble over.
pub(super) const WORDS: &[&str] = &[
    "null",
    "~",
    "true",
    "no",
    "yes",
    "0",
    "-1",
    "1",
    "-0",
    "0644",
    "0x7fffffffffffffff",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551616",
    "2147483648",
    "4294967296",
    "65536",
    "1e3",
    "1e309",
    "-1e309",
    ".nan",
    ".inf",
    "1.0000000000000000000001",
    "1E",
    "1Ei",
    "9999999999E",
    "0.0000000001n",
    "100m",
    "1Mi1",
    "+",
    "-",
    "1h1m1s1ms1us1ns",
    "-1h",
    "9999999h",
    "1d",
    "2562047h47m16.854775807s",
    "1.5.5s",
    "0s",
    "s",
    "2026-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "-9999-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "\"\"",
    "''",
    "\" \"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\u{feff}",
    "\u{202e}",
    "é",
    "🦀",
    "..",
    "../..",
    "/",
    "//",
    "/etc/../..",
    "a/b/c",
    "UPPER",
    "a-",
    "-a",
    "a.b.c.",
    "localhost/a:1@sha256:",
    "@sha256:",
    ":",
    "a:b:c",
    "[::1]",
    "::",
    "0.0.0.0/0",
    "10.0.0.1,10.0.0.2",
    "&a",
    "*a",
    "<<: *a",
    "!!binary AA==",
    "!!python/object",
    "? a",
    "- - - -",
    "|-",
    ">+2",
    "{}",
    "[]",
    "{a: {b: {c: {}}}}",
    "[[[[]]]]",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "# ",
    "\t",
    "\r\n",
    "\0",
    "$(A)",
    "$$(A)",
    "$(",
    "$(A",
    "$()",
    "%",
    "100%",
    "-5%",
    "5%%",
    "memory.available<",
    "Guaranteed",
    "Never",
    "OnFailure",
    "status.podIP",
    "metadata.annotations['a']",
    "metadata.labels['",
    "apiVersion: v1\n",
    "kind: List\nitems:\n",
    "\"items\":",
    "\"spec\":null",
    "metadata: {deletionTimestamp: 2026-01-01T00:00:00Z}\n",
    "unix://",
    "unix:///a",
    "--config=",
    "--v=",
    "=",
    "hugepages-2Mi",
    "ephemeral-storage",
    "Localhost",
    "RuntimeDefault",
];
