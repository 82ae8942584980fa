//! Durations as upstream's HumanDuration writes them: `90s`, `3m20s`, `5h`, `2d`.

use serde_json::Value;

use crate::clock;

/// Returns how long ago a time was.
pub(super) fn since(time: &Value, now: jiff::Timestamp) -> String {
    let Some(time) = time.as_str().and_then(clock::parse) else {
        return "<unknown>".to_string();
    };
    span(now.duration_since(time).as_secs())
}

pub(super) fn span(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let pair = |large: i64, unit: char, small: i64, smaller: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{smaller}")
        }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_string(),
        () if seconds < 0 => "0s".to_string(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => pair(days, 'd', hours % 24, 'h'),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => pair(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}
