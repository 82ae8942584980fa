//! The text of `--help`.

use std::fmt::Write;

use super::table::{self, Flag, FlagStatus};
use super::value::FlagType;
use crate::unsupported_fields::effect_note;

/// Returns what `--help` prints: upstream's flags first, then ours.
pub(crate) fn usage() -> String {
    let mut flags: Vec<&Flag> = table::all()
        .filter(|flag| !matches!(flag.status, FlagStatus::Removed(_)))
        .collect();
    flags.sort_by_key(|flag| (flag.status == FlagStatus::Ours, flag.name));
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
    let head = format!("--{} {}", flag.name, placeholder(flag.kind));
    writeln!(text, "  {short}{head:<52} {}", help(flag)).expect("writing to a String cannot fail");
}

/// What the flag is for, and what should be known before it is used.
pub(super) fn help(flag: &Flag) -> String {
    let status = match flag.status {
        FlagStatus::Deprecated => Some("deprecated".to_owned()),
        FlagStatus::Ours => Some("Oxlet's own".to_owned()),
        FlagStatus::Stable | FlagStatus::Removed(_) => None,
    };
    let notes: Vec<String> = status.into_iter().chain(effect_note(flag)).collect();
    match notes.is_empty() {
        true => flag.help.to_owned(),
        false => format!("{} ({})", flag.help, notes.join("; ")),
    }
}

/// The word that stands for a flag's value; empty where it needs none.
pub(super) fn placeholder(kind: FlagType) -> &'static str {
    match kind {
        FlagType::Bool | FlagType::Version => "",
        FlagType::Int32 | FlagType::Int64 | FlagType::Uint32 => "number",
        FlagType::Duration => "duration",
        FlagType::Text => "text",
        FlagType::Ip => "ip",
        FlagType::Amount => "quantity",
        FlagType::Texts => "list",
        FlagType::Ints => "numbers",
        FlagType::Pairs | FlagType::Pair | FlagType::Labels => "key=value",
        FlagType::Thresholds => "signal<amount",
        FlagType::Gates => "gate=bool",
        FlagType::Headers => "name:value",
        FlagType::VModule => "pattern=level",
        FlagType::Taints => "key=value:effect",
        FlagType::ReservedMemory => "node:type=quantity",
    }
}
