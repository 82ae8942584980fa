//! Readers of a kubelet's log in klog's text form and in component-base's JSON form, for what the agent writes.
//!
//! What they know is held against a kubelet 1.36.2: `tests/data/kubelet-1.36.2.txt` and `.jsonl` have the same twenty
//! records, which it wrote with `--v=4`, without an API server. Paths are neutral ones, the rest is as it was written.

use serde_json::{Deserializer, Value};

/// What one record says; the order of its keys is left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogRecord {
    /// The file and the line, `server.go:545`.
    pub(super) caller: String,
    pub(super) message: String,
    pub(super) keys: Vec<String>,
    pub(super) form: MessageForm,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// In quotes, and keys with values after it.
    Structured,
    /// Words to the line's end.
    Plain,
}

/// Reads a log in klog's text form.
///
/// # Errors
/// The rest of the log from the record on that is none.
pub(super) fn read_text(log: &str) -> Result<Vec<LogRecord>, &str> {
    let mut records = Vec::new();
    let mut rest = log;
    while !rest.is_empty() {
        let (record, after) = text_record(rest).ok_or(rest)?;
        records.push(record);
        rest = after;
    }
    Ok(records)
}

/// `I1126 22:25:35.012345    4711 pleg.rs:120] "message" key="value"`, and what follows it.
fn text_record(log: &str) -> Option<(LogRecord, &str)> {
    const STAMP: &str = "L#### ##:##:##.###### ";
    const PID_WIDTH: usize = 7;
    let (header, rest) = log.split_once("] ")?;
    let (stamp, header) = header.split_at_checked(STAMP.len())?;
    let fits = |(c, shape): (char, char)| match shape {
        'L' => "IWEF".contains(c),
        '#' => c.is_ascii_digit(),
        other => c == other,
    };
    let (pid, caller) = header.trim_start().split_once(' ')?;
    let is_aligned = header.len() == caller.len() + 1 + pid.len().max(PID_WIDTH);
    if !stamp.chars().zip(STAMP.chars()).all(fits) || !is_number(pid) || !is_aligned {
        return None;
    }
    is_caller(caller).then_some(())?;
    let mut record = LogRecord {
        caller: caller.to_owned(),
        message: String::new(),
        keys: Vec::new(),
        form: MessageForm::Plain,
    };
    if !rest.starts_with('"') {
        let (message, rest) = rest.split_once('\n')?;
        record.message = message.to_owned();
        return Some((record, rest));
    }
    record.form = MessageForm::Structured;
    let (message, mut rest) = rest.split_at(quoted(rest)?);
    // Go's quotes have escapes that JSON has not; the messages that are compared have none of them.
    record.message = serde_json::from_str(message).unwrap_or_else(|_| message.to_owned());
    while let Some(pair) = rest.strip_prefix(' ') {
        let (key, value) = pair.split_once('=')?;
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || c == '"') {
            return None;
        }
        record.keys.push(key.to_owned());
        rest = value.get(value_length(value)?..)?;
    }
    record.keys.sort();
    Some((record, rest.strip_prefix('\n')?))
}

/// The length of the value that a text begins with: in quotes, lines between `<` and `>`, JSON, or a word.
fn value_length(text: &str) -> Option<usize> {
    if text.starts_with('"') {
        return quoted(text);
    }
    if let Some(lines) = text.strip_prefix("<\n") {
        let is_inner = |line: &&str| line.starts_with('\t');
        let inner: usize = lines
            .split_inclusive('\n')
            .take_while(is_inner)
            .map(str::len)
            .sum();
        return lines[inner..]
            .starts_with(" >")
            .then_some("<\n".len() + inner + " >".len());
    }
    if text.starts_with(['{', '[']) {
        let mut values = Deserializer::from_str(text).into_iter::<Value>();
        values.next()?.ok()?;
        return Some(values.byte_offset());
    }
    let end = text.find([' ', '\n'])?;
    let is_word = end > 0 && !text[..end].contains('"');
    is_word.then_some(end)
}

/// The length of what stands in quotes at a text's beginning, with both quotes.
fn quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return None,
            '"' if !is_escaped => return Some(at + 1),
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    None
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `server.go:545`; of ours, which has many files of one name, `events/mod.rs:370` as well.
fn is_caller(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    let is_file = |file: &str| {
        let mut names = file.split('/');
        !file.contains(' ')
            && names.by_ref().take(2).all(|name| !name.is_empty())
            && names.next().is_none()
    };
    parts.is_some_and(|(file, line)| is_file(file) && is_number(line))
}

/// `{"ts":1795864256677.8,"caller":"app/server.go:545","msg":"message","v":0,"key":"value"}`; errors have no `v`.
pub(super) fn json_record(line: &str) -> Option<LogRecord> {
    let Value::Object(mut fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
    // Milliseconds since 1970.
    let is_stamped = fields.remove("ts")?.as_f64().is_some_and(|ts| ts > 1e12);
    let caller = fields.remove("caller")?;
    let caller = caller.as_str()?;
    let (_, file) = caller.split_once('/')?;
    let message = fields.remove("msg")?.as_str()?.to_owned();
    let has_level = match fields.remove("v") {
        Some(level) => level.is_u64(),
        None => fields.contains_key("err"),
    };
    // What an error that has several causes has besides.
    fields.remove("errCauses");
    let is_whole = is_stamped && is_caller(caller) && has_level;
    let mut keys: Vec<String> = fields.into_iter().map(|(key, _)| key).collect();
    keys.sort();
    is_whole.then(|| LogRecord {
        caller: file.to_owned(),
        message,
        keys,
        form: MessageForm::Structured,
    })
}

const TEXT: &str = include_str!("../../data/kubelet-1.36.2.txt");
const JSON: &str = include_str!("../../data/kubelet-1.36.2.jsonl");

#[test]
fn a_kubelets_records_are_read_alike_in_either_form() {
    let text = read_text(TEXT).unwrap_or_else(|rest| panic!("no record: {rest}"));
    let is_plain = |record: &&LogRecord| record.form == MessageForm::Plain;
    assert_eq!(text.iter().filter(is_plain).count(), 5);
    let json: Vec<LogRecord> = JSON
        .lines()
        .map(|line| json_record(line).expect(line))
        .collect();
    assert_eq!(text.len(), 20);
    // JSON has no quotes by which both kinds of messages could be told apart.
    let said = |records: Vec<LogRecord>| -> Vec<(String, String, Vec<String>)> {
        let records = records.into_iter();
        records
            .map(|record| (record.caller, record.message, record.keys))
            .collect()
    };
    assert_eq!(said(text), said(json));
}

#[test]
fn values_of_several_lines_belong_to_their_record() {
    let line = |rest: &str| format!("E0122 10:30:02.123456 1234567 server.go:415] {rest}\n");
    let log = line("\"x\" err=<\n\tone\n\ttwo ] \"\n > pod=\"a\"") + &line("\"y\\\"\\\\\" n=-1.5");
    let read = read_text(&log).unwrap();
    assert_eq!(read[0].keys, ["err", "pod"]);
    assert_eq!((read[1].message.as_str(), read.len()), ("y\"\\", 2));
    let unended = line("\"x\" err=<\n\tone\ntwo\n >");
    assert_eq!(read_text(&unended), Err(unended.as_str()));
}

/// What it is called, and what becomes of a line by it.
type Damage = (&'static str, fn(&str) -> String);

#[test]
fn a_damaged_line_of_text_is_no_record() {
    let damages: [Damage; 9] = [
        ("no severity", |line| line[1..].to_owned()),
        ("a severity that is none", |line| format!("D{}", &line[1..])),
        ("milliseconds", |line| {
            format!("{}{}", &line[..18], &line[21..])
        }),
        ("a short process id", |line| {
            line.replacen("       1 ", "1 ", 1)
        }),
        ("a process id that is none", |line| {
            line.replacen(" 1 ", " x ", 1)
        }),
        ("no line of the caller", |line| {
            let (header, rest) = line.split_once("] ").unwrap();
            format!("{}] {rest}", header.rsplit_once(':').unwrap().0)
        }),
        ("no end of the header", |line| line.replacen("] ", " ", 1)),
        ("cut in the header", |line| format!("{}\n", &line[..40])),
        ("no end of the line", |line| line.trim_end().to_owned()),
    ];
    let of_structured: [Damage; 3] = [
        ("an open quote", |line| line.replacen("] \"", "] \"\"", 1)),
        ("a key without a value", |line| line.replace('\n', " key\n")),
        ("another line within", |line| {
            format!("{}{line}", &line[..line.rfind('"').unwrap()])
        }),
    ];
    for line in TEXT.split_inclusive('\n') {
        let record = &read_text(line).unwrap()[0];
        let of_structured = of_structured
            .iter()
            .filter(|_| record.form == MessageForm::Structured);
        for (what, damage) in damages.iter().chain(of_structured) {
            let damaged = damage(line);
            assert_ne!(damaged, line, "{what}");
            assert_eq!(read_text(&damaged), Err(damaged.as_str()), "{what}");
        }
    }
}

#[test]
fn a_damaged_line_of_json_is_no_record() {
    let damages: [Damage; 6] = [
        ("a time in words", |line| {
            line.replacen("\"ts\":", "\"ts\":\"now\",\"x\":", 1)
        }),
        ("seconds", |line| {
            line.replacen("{\"ts\":1795", "{\"ts\":1", 1)
        }),
        ("no caller", |line| {
            line.replacen("\"caller\"", "\"where\"", 1)
        }),
        ("a caller without its folder", |line| {
            let at = line.find("\"caller\":\"").unwrap() + 10;
            format!(
                "{}{}",
                &line[..at],
                &line[at + line[at..].find('/').unwrap() + 1..]
            )
        }),
        ("no message", |line| {
            line.replacen("\"msg\"", "\"message\"", 1)
        }),
        ("two on one line", |line| line.repeat(2)),
    ];
    for line in JSON.lines() {
        for end in 0..line.len() {
            assert_eq!(json_record(&line[..end]), None, "{line} to {end}");
        }
        for (what, damage) in &damages {
            let damaged = damage(line);
            assert_ne!(damaged, line, "{what}");
            assert_eq!(json_record(&damaged), None, "{what}: {damaged}");
        }
    }
    let no_level = JSON.lines().next().unwrap().replace(",\"v\":1", "");
    assert_eq!(json_record(&no_level), None);
}
