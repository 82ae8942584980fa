//! A query of the system's logs: its services and options, why some are refused, and journalctl's arguments.
//!
//! Upstream: pkg/kubelet/kubelet_server_journal.go, kubelet_server_journal_linux.go (1.36).

mod messages;
mod pattern;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

use self::messages::{list, quoted};

/// Services of one query.
const SERVICES: usize = 4;
/// Bytes of a service's name.
const NAME: usize = 256;
/// Lines from the end of a log.
const TAIL: i64 = 100_000;

/// A query of `/logs/?query=...` (NodeLogQuery).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub services: Vec<String>,
    /// A query with a slash of either kind is a file, not a service.
    pub files: Vec<String>,
    pub options: JournalOptions,
}

/// Which of a service's lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalOptions {
    pub since: Option<JournalTime>,
    pub until: Option<JournalTime>,
    pub tail: Option<i64>,
    pub boot: Option<i64>,
    pub pattern: String,
}

/// A time as it was written: journalctl gets it in the writer's zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalTime {
    clock: DateTime,
    at: Timestamp,
}

/// Everything that is wrong with a query, in upstream's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQueryErrors(Vec<String>);

impl LogQuery {
    /// Reads the pairs of a query; none if they ask for nothing that is known here.
    pub fn read<'a>(
        pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Result<Option<LogQuery>, LogQueryErrors> {
        let mut wrongs = LogQueryErrors::default();
        let first = |key: &str| {
            let mut found = pairs.clone().filter(|(name, _)| *name == key);
            found.next().map(|(_, value)| value).unwrap_or_default()
        };
        let asked: Vec<&str> = pairs
            .clone()
            .filter(|(name, _)| *name == "query")
            .map(|(_, value)| value)
            .collect();
        let mut query = LogQuery::default();
        for one in &asked {
            match () {
                () if one.contains(['/', '\\']) => query.files.push((*one).to_owned()),
                () if !one.trim().is_empty() => query.services.push((*one).to_owned()),
                () => {}
            }
        }
        if !asked.is_empty() && query.files.is_empty() && query.services.is_empty() {
            wrongs.invalid("query", &list(&asked), "query cannot be empty");
        }
        let mut moment = |key: &str| match first(key) {
            "" => None,
            text => {
                let read = JournalTime::read(text);
                if read.is_none() {
                    wrongs.invalid(key, &quoted(text), "invalid time format");
                }
                read
            }
        };
        query.options.since = moment("sinceTime");
        query.options.until = moment("untilTime");
        query.options.boot = wrongs.number("boot", first("boot"));
        query.options.tail = wrongs.number("tailLines", first("tailLines"));
        query.options.pattern = first("pattern").to_owned();
        wrongs.or((query != LogQuery::default()).then_some(query))
    }

    /// Judges what was read; whether a file is there is judged where files are.
    pub fn validate(&self) -> Result<(), LogQueryErrors> {
        let (services, files) = (&self.services, &self.files);
        let mut wrongs = LogQueryErrors::default();
        for service in services {
            if let Some(why) = unsafe_name(service) {
                wrongs.invalid("query", &quoted(service), why);
            }
        }
        if services.len() > SERVICES {
            let found = services.len();
            wrongs.add(format!(
                "query: Too many: {found}: must have at most {SERVICES} items"
            ));
        }
        match (files.len(), services.len()) {
            (0, 0) => wrongs.add("query: Required value: cannot be empty with options".into()),
            (1.., 1..) => {
                let both = format!("[{}], [{}]", files.join(" "), services.join(" "));
                wrongs.invalid("query", &quoted(&both), "cannot specify a file and service");
            }
            (2.., 0) => wrongs.invalid("query", &list(files), "cannot specify more than one file"),
            (1, 0) if self.options != JournalOptions::default() => {
                wrongs.invalid("query", &list(files), "cannot specify file with options");
            }
            (1, 0) | (0, 1..) => {}
        }
        self.options.judge(&mut wrongs);
        wrongs.or(())
    }

    /// Why the file of a query cannot be had, in the words of the others.
    pub fn no_file(&self, why: &str) -> LogQueryErrors {
        let mut wrongs = LogQueryErrors::default();
        wrongs.invalid("query", &list(&self.files), why);
        wrongs
    }

    /// Returns journalctl's arguments that show these services.
    pub fn arguments(&self, services: &[String]) -> Vec<String> {
        let options = &self.options;
        let mut arguments: Vec<String> = ["--utc", "--no-pager", "--output=short-precise"]
            .map(str::to_owned)
            .into();
        arguments.extend(options.since.map(|since| format!("--since={since}")));
        arguments.extend(options.until.map(|until| format!("--until={until}")));
        if let Some(lines) = options.tail {
            arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
        }
        let named = services.iter().filter(|service| !service.is_empty());
        arguments.extend(named.map(|service| format!("--unit={service}")));
        if !options.pattern.is_empty() {
            arguments.push(format!("--grep={}", options.pattern));
        }
        if let Some(boot) = options.boot {
            arguments.extend(["--boot".to_owned(), boot.to_string()]);
        }
        arguments
    }
}

/// The arguments with which journalctl lists the services that it knows.
pub const KNOWN: [&str; 2] = ["--field", "_SYSTEMD_UNIT"];

/// The name of a service's unit in that list.
pub fn unit(service: &str) -> String {
    format!("{service}.service")
}

/// Where the log of a service may lie that writes its own, in the order in which they are tried.
pub fn places(service: &str) -> [String; 3] {
    [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ]
}

fn unsafe_name(name: &str) -> Option<&'static str> {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    match () {
        // The number is upstream's.
        () if name.len() > NAME => Some("length must be less than 100"),
        () if !name.chars().all(is_safe) => Some("input contains unsupported characters"),
        () => None,
    }
}

impl JournalOptions {
    fn judge(&self, wrongs: &mut LogQueryErrors) {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since.at > until.at
        {
            wrongs.invalid(
                "untilTime",
                &until.journalctl_time(),
                "must be after `sinceTime`",
            );
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            wrongs.invalid("boot", &boot.to_string(), "must be less than 1");
        }
        if let Some(tail) = self.tail.filter(|tail| !(0..=TAIL).contains(tail)) {
            let why = format!("must be between 0 and {TAIL}, inclusive");
            wrongs.invalid("tailLines", &tail.to_string(), &why);
        }
        if let Err(why) = pattern::validate_pattern(&self.pattern) {
            wrongs.invalid("pattern", &quoted(&self.pattern), &why);
        }
    }
}

impl JournalTime {
    /// Reads what RFC 3339 allows.
    fn read(text: &str) -> Option<JournalTime> {
        // What else the reader takes is no RFC 3339: other separators, no seconds, other offsets, zones by their names.
        let byte = |at: usize| text.as_bytes().get(at).copied();
        let from_end = |back: usize| text.len().checked_sub(back).and_then(byte);
        let is_offset = from_end(1) == Some(b'Z')
            || (matches!(from_end(6), Some(b'+' | b'-')) && from_end(3) == Some(b':'));
        if byte(10) != Some(b'T') || byte(16) != Some(b':') || !is_offset {
            return None;
        }
        let pieces = Pieces::parse(text).ok()?;
        let clock = pieces.date().to_datetime(pieces.time()?);
        let offset = pieces.to_numeric_offset()?;
        let at = offset.to_timestamp(clock).ok()?;
        Some(JournalTime { clock, at })
    }

    /// As upstream tells it to people.
    fn journalctl_time(self) -> String {
        self.at.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
    }
}

impl fmt::Display for JournalTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = self.clock;
        write!(
            out,
            "{}-{}-{} {}:{}:{}",
            clock.year(),
            clock.month(),
            clock.day(),
            clock.hour(),
            clock.minute(),
            clock.second()
        )
    }
}

impl LogQueryErrors {
    fn add(&mut self, wrong: String) {
        if !self.0.contains(&wrong) {
            self.0.push(wrong);
        }
    }

    fn invalid(&mut self, field: &str, value: &str, why: &str) {
        self.add(format!("{field}: Invalid value: {value}: {why}"));
    }

    fn number(&mut self, field: &str, text: &str) -> Option<i64> {
        if text.is_empty() {
            return None;
        }
        let read = text.parse::<i64>();
        let why = match &read {
            Ok(number) => return Some(*number),
            Err(error) => messages::invalid_number(error),
        };
        let text = quoted(text);
        let why = format!("strconv.Atoi: parsing {text}: {why}");
        self.invalid(field, &text, &why);
        None
    }

    fn or<T>(self, good: T) -> Result<T, LogQueryErrors> {
        match self.0.is_empty() {
            true => Ok(good),
            false => Err(self),
        }
    }
}

impl fmt::Display for LogQueryErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => out.write_str(one),
            several => write!(out, "[{}]", several.join(", ")),
        }
    }
}

impl std::error::Error for LogQueryErrors {}
