//! A plugin's standard error, carried line by line into the agent's log under the plugin's name.

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// Longer lines are cut: a plugin cannot make the agent grow.
const LONGEST_LINE: u64 = 8 << 10;

/// A line as the SDK writes it. What else it holds is shown as it is.
#[derive(Deserialize)]
struct LogRecord<'a> {
    #[serde(borrow)]
    level: Option<&'a str>,
    message: Option<String>,
    #[serde(flatten)]
    fields: serde_json::Map<String, serde_json::Value>,
}

/// Carries lines until every process that could write them has ended.
pub(super) async fn carry(plugin: String, stderr: impl AsyncRead + Unpin) {
    let mut stderr = BufReader::with_capacity(4 << 10, stderr);
    let mut line = Vec::new();
    while let Ok(cut) = read_line(&mut stderr, &mut line).await {
        let Some(cut) = cut else { return };
        show(&plugin, &String::from_utf8_lossy(&line), cut);
    }
}

/// Reads a line without its end; `None` at the end of the file, else whether it was cut.
async fn read_line<R: AsyncRead + Unpin>(
    from: &mut BufReader<R>,
    line: &mut Vec<u8>,
) -> std::io::Result<Option<bool>> {
    line.clear();
    if (&mut *from)
        .take(LONGEST_LINE)
        .read_until(b'\n', line)
        .await?
        == 0
    {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(false));
    }
    skip_line(from).await?;
    Ok(Some(true))
}

async fn skip_line<R: AsyncRead + Unpin>(from: &mut BufReader<R>) -> std::io::Result<()> {
    loop {
        let buffer = from.fill_buf().await?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        let done = end.is_some() || buffer.is_empty();
        from.consume(used);
        if done {
            return Ok(());
        }
    }
}

fn show(plugin: &str, line: &str, cut: bool) {
    let more = if cut { " (cut)" } else { "" };
    let record = if line.starts_with('{') {
        serde_json::from_str::<LogRecord<'_>>(line).ok()
    } else {
        None
    };
    // A record may be nothing but fields.
    let Some(LogRecord {
        level: Some(level),
        message,
        mut fields,
    }) = record
    else {
        tracing::info!(target: "plugin", plugin, "{line}{more}");
        return;
    };
    fields.remove("target");
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!(" {}", serde_json::Value::Object(fields))
    };
    let message = message.unwrap_or_default();
    match level.to_ascii_uppercase().as_str() {
        "ERROR" => tracing::error!(target: "plugin", plugin, "{message}{fields}"),
        "WARN" => tracing::warn!(target: "plugin", plugin, "{message}{fields}"),
        "DEBUG" => tracing::debug!(target: "plugin", plugin, "{message}{fields}"),
        "TRACE" => tracing::trace!(target: "plugin", plugin, "{message}{fields}"),
        _ => tracing::info!(target: "plugin", plugin, "{message}{fields}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8]) -> Vec<(String, bool)> {
        let mut from = BufReader::with_capacity(16, text);
        let (mut line, mut lines) = (Vec::new(), Vec::new());
        while let Some(cut) = read_line(&mut from, &mut line).await.unwrap() {
            lines.push((String::from_utf8_lossy(&line).into_owned(), cut));
        }
        lines
    }

    #[tokio::test]
    async fn line_that_is_too_long_is_cut_and_the_next_one_is_whole() {
        let long = "x".repeat(3 * 8192);
        let text = format!("short\n{long}\nafter");
        let lines = lines(text.as_bytes()).await;
        let shapes: Vec<_> = lines.iter().map(|(line, cut)| (line.len(), *cut)).collect();
        // The last line has no end: that it is whole cannot be known.
        assert_eq!(shapes, [(5, false), (8192, true), (5, true)]);
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_shown_as_such() {
        assert_eq!(
            lines(b"\xff\xfe\n").await,
            [("\u{fffd}\u{fffd}".to_owned(), false)]
        );
    }
}
