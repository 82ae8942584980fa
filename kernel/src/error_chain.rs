//! What an error says together with its causes, in one line: for logs, events and answers.

use std::error::Error;

/// Joins the error and its causes by colons, the outermost first.
///
/// A cause with which the text before it ends already is left out: some libraries print their cause themselves.
pub fn error_chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error.source())
}

/// Appends a chain of causes to a text that stands for their effect.
pub fn with_causes(mut text: String, cause: Option<&(dyn Error + 'static)>) -> String {
    for cause in std::iter::successors(cause, |&cause| cause.source()) {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn link(text: &'static str, cause: Option<Link>) -> Link {
        Link(text, cause.map(Box::new))
    }

    #[test]
    fn causes_follow_in_order_and_none_is_said_twice() {
        let rows = [
            (link("alone", None), "alone"),
            (
                link("outer", Some(link("middle", Some(link("root", None))))),
                "outer: middle: root",
            ),
            (link("outer: root", Some(link("root", None))), "outer: root"),
            (
                link("root at the start", Some(link("root", None))),
                "root at the start: root",
            ),
        ];
        for (error, expected) in rows {
            assert_eq!(error_chain(&error), expected);
        }
    }
}
