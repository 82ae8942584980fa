//! `-o`: the form of an answer; for `oxctl diagnose`, its file.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};

/// Whom an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Table,
    Json,
}

/// The value of `-o`, of one type for all commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    Format(OutputFormat),
    File(PathBuf),
}

impl Output {
    pub(crate) fn format(&self) -> OutputFormat {
        match self {
            Output::Format(format) => *format,
            Output::File(_) => OutputFormat::Table,
        }
    }

    pub(crate) fn file(&self) -> Option<PathBuf> {
        match self {
            Output::Format(_) => None,
            Output::File(file) => Some(file.clone()),
        }
    }
}

/// Parses a form alone.
pub(crate) fn format_parser() -> ValueParser {
    PossibleValuesParser::new(["table", "json"])
        .map(|word| Output::Format(format_of(&word).unwrap_or(OutputFormat::Table)))
        .into()
}

/// Parses a form, or else a file.
pub(crate) fn file_parser() -> ValueParser {
    let parse = |word: &str| -> Result<Output, std::convert::Infallible> {
        let format = format_of(word).map(Output::Format);
        Ok(format.unwrap_or_else(|| Output::File(word.into())))
    };
    ValueParser::new(parse)
}

fn format_of(word: &str) -> Option<OutputFormat> {
    match word {
        "table" => Some(OutputFormat::Table),
        "json" => Some(OutputFormat::Json),
        _ => None,
    }
}
