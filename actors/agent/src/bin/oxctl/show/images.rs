//! Pulls of images, and the images that are there, as tables.

use agent::endpoints::admin::{RuntimeImageRow, RuntimeImages};
use jiff::Timestamp;
use pods::images::{PullState, Snapshot};

use super::{age, volumes};
use crate::agent::AgentError;
use crate::table::TextTable;

pub(crate) fn table(answer: &[u8], now: Timestamp) -> Result<String, AgentError> {
    let images: Snapshot = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&[
        "IMAGE",
        "STATE",
        "POD",
        "FOR",
        "SINCE",
        "ATTEMPT",
        "AGAIN IN",
        "LAST ERROR",
    ]);
    for row in images.rows {
        let state = match (row.state, row.position) {
            (PullState::Waiting, Some(position)) => format!("waiting, number {position}"),
            (PullState::Waiting, None) => "waiting".to_owned(),
            (PullState::Pulling, _) => "pulling".to_owned(),
            (PullState::BackingOff, _) => "backing off".to_owned(),
        };
        table.row([
            row.image,
            state,
            row.pod,
            row.purpose,
            age(row.since, now),
            row.attempt.to_string(),
            row.until.map(|until| age(now, until)).unwrap_or_default(),
            row.last_error.unwrap_or_default(),
        ]);
    }
    Ok(table.take())
}

/// The images that the runtime has.
pub(crate) fn present(answer: &[u8]) -> Result<String, AgentError> {
    let images: RuntimeImages = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&["IMAGE", "SIZE", "ID"]);
    for RuntimeImageRow { names, id, bytes } in images.rows {
        table.row([names.join(", "), volumes::bytes(bytes), id]);
    }
    let mut text = table.take();
    if images.left_out > 0 {
        text.push_str(&format!("and {} more\n", images.left_out));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_show_where_they_stand() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let row = |image: &str, state: &str| {
            json!({
                "image": image, "state": state, "pod": "default/web", "purpose": "c", "since": at(0), "attempt": 2,
                "position": null, "until": null, "last_error": null,
            })
        };
        let mut waiting = row("b:1", "Waiting");
        waiting["position"] = 3.into();
        let mut backing_off = row("c:1", "BackingOff");
        backing_off["until"] = json!(at(130));
        backing_off["last_error"] = "no route".into();
        let answer = json!({ "limit": 1, "rows": [row("a:1", "Pulling"), waiting, backing_off] });
        let text = table(&serde_json::to_vec(&answer).unwrap(), at(100)).unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("   ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(
            rows[1],
            ["a:1", "pulling", "default/web", "c", "100s", "2", "-", "-"]
        );
        assert_eq!(rows[2][1], "waiting, number 3");
        assert_eq!(rows[3][6..], ["30s", "no route"]);
    }
}
