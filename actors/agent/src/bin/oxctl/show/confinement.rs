//! What plugins are confined to: a table below that of the plugins.

use plugin_host::{Confined, Snapshot};

use crate::table::TextTable;

const HEAD: [&str; 9] = [
    "NAME",
    "MEMORY",
    "PIDS",
    "NEW PRIVILEGES",
    "SYSTEM CALLS",
    "TMP",
    "CAPABILITIES",
    "LAST EXIT",
    "NOT ENFORCED",
];

/// A row of a plugin whose process is confined.
pub(super) fn row(plugin: &Snapshot) -> Option<[String; 9]> {
    let confined = plugin.confined.as_ref()?;
    let usage = confined.usage.unwrap_or_default();
    let words = |holds: bool, yes: &str, no: &str| if holds { yes } else { no }.to_owned();
    let capabilities = match confined.capabilities.as_slice() {
        [] => "none".to_owned(),
        names => names.join(" ").to_lowercase(),
    };
    Some([
        plugin.name.clone(),
        amount(
            usage.memory.map(mebibytes),
            confined.memory_limit.map(mebibytes),
        ),
        amount(
            usage.pids.map(|pids| pids.to_string()),
            confined.pids_limit.map(|pids| pids.to_string()),
        ),
        words(confined.no_new_privileges, "refused", "allowed"),
        words(confined.seccomp, "filtered", "all"),
        tmp(confined),
        capabilities,
        plugin.last_exit.clone().unwrap_or_default(),
        confined.not_enforced.join("; "),
    ])
}

/// The table; empty where no plugin is confined.
pub(super) fn table(rows: &[[String; 9]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&HEAD);
    for row in rows {
        table.row(row.clone());
    }
    format!("\n{}", table.take())
}

fn amount(used: Option<String>, limit: Option<String>) -> String {
    let limit = limit.map_or("no limit".to_owned(), |limit| format!("of {limit}"));
    format!("{} {limit}", used.unwrap_or("?".to_owned()))
}

/// Rounded up: what is used is never shown as nothing.
fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

fn tmp(confined: &Confined) -> String {
    match confined.tmp.to_str() {
        Some("/tmp") => "private /tmp".to_owned(),
        _ => confined.tmp.display().to_string(),
    }
}
