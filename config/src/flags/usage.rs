//! The text of `--help`.

use std::fmt::Write;

use super::table::{self, Flag, Status};
use super::value::Kind;

/// Returns what `--help` prints: upstream's flags first, then ours.
pub(crate) fn usage() -> String {
    let mut flags: Vec<&Flag> = table::all()
        .filter(|flag| !matches!(flag.status, Status::Removed(_)))
        .collect();
    flags.sort_by_key(|flag| (flag.status == Status::Ours, flag.name));
    let mut text = String::from(
        "Oxlet is a Kubernetes node agent: it takes the kubelet's flags and configuration and does\n\
         the kubelet's work. A flag beats a drop-in, a drop-in beats the file, the file beats defaults.\n\n\
         Usage:\n  oxlet [flags]\n\nFlags:\n",
    );
    for flag in flags {
        line(&mut text, flag);
    }
    text
}

fn line(text: &mut String, flag: &Flag) {
    let short = flag
        .short
        .map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
    let note = match flag.status {
        Status::Deprecated => " (deprecated)",
        Status::Ours => " (oxlet's own)",
        Status::Stable | Status::Removed(_) => "",
    };
    let head = format!("--{} {}", flag.name, placeholder(flag.kind));
    writeln!(text, "  {short}{head:<52} {}{note}", flag.help)
        .expect("writing to a String cannot fail");
}

fn placeholder(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool | Kind::Version => "",
        Kind::Int32 | Kind::Int64 | Kind::Uint32 => "number",
        Kind::Duration => "duration",
        Kind::Text => "text",
        Kind::Ip => "ip",
        Kind::Amount => "quantity",
        Kind::Texts => "list",
        Kind::Ints => "numbers",
        Kind::Pairs | Kind::Pair | Kind::Labels => "key=value",
        Kind::Thresholds => "signal<amount",
        Kind::Gates => "gate=bool",
        Kind::Headers => "name:value",
        Kind::VModule => "pattern=level",
        Kind::Taints => "key=value:effect",
        Kind::ReservedMemory => "node:type=quantity",
    }
}
