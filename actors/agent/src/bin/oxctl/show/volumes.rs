//! Volumes of pods, as a table.

use volumes::VolumesView;

use crate::agent::AgentError;
use crate::table::TextTable;

pub(crate) fn table(answer: &[u8]) -> Result<String, AgentError> {
    let view: VolumesView = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&[
        "POD", "VOLUME", "KIND", "STATE", "USED", "CAPACITY", "INODES", "WHY", "PATH",
    ]);
    for row in view.volumes {
        table.row([
            row.pod,
            row.volume,
            row.kind,
            row.state,
            row.figures.used.map(bytes).unwrap_or_default(),
            row.figures.capacity.map(bytes).unwrap_or_default(),
            row.figures
                .inodes_used
                .map(|count| count.to_string())
                .unwrap_or_default(),
            row.why,
            row.path,
        ]);
    }
    let mut text = table.take();
    for socket in view.refused {
        text.push_str(&format!("refused: {socket}\n"));
    }
    for name in view.stuck {
        text.push_str(&format!("stuck: {name}\n"));
    }
    Ok(text)
}

/// A number of bytes in the greatest unit below it, with at most one decimal: `1.5Gi`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut unit = 0;
    let mut tenths = u128::from(count) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    match tenths % 10 {
        0 => format!("{}{}", tenths / 10, UNITS[unit]),
        tenth => format!("{}.{tenth}{}", tenths / 10, UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_show_where_they_stand_and_what_hangs() {
        let row = |volume: &str, state: &str, why: &str| {
            json!({
                "pod": "default/web", "volume": volume, "kind": "empty-dir", "id": "kubernetes.io/empty-dir/u-v",
                "state": state, "why": why, "path": "/p",
                "figures": { "used": 1_610_612_736_u64, "capacity": 2_048, "inodes_used": 3,
                    "available": null, "inodes": null, "inodes_free": null, "at": null, "abnormal": null },
            })
        };
        let answer = json!({
            "volumes": [row("a", "Mounted", ""), row("b", "Stuck", "hangs")], "csi_node": null, "in_use": [],
            "stuck": ["default/web: b"],
        });
        let text = table(&serde_json::to_vec(&answer).unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "default/web",
                "a",
                "empty-dir",
                "Mounted",
                "1.5Gi",
                "2Ki",
                "3",
                "-",
                "/p"
            ]
        );
        assert_eq!(lines[3], "stuck: default/web: b");
    }
}
