//! Queries, and what is made of them.

use proptest::prelude::*;

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Option<LogQuery>, String> {
    LogQuery::read(pairs.iter().copied()).map_err(|wrongs| wrongs.to_string())
}

fn judged(pairs: &[(&str, &str)]) -> String {
    let query = read(pairs).unwrap().unwrap();
    query
        .validate()
        .err()
        .map_or_else(String::new, |wrongs| wrongs.to_string())
}

/// Upstream's Test_newNodeLogQuery.
#[test]
fn query_is_read_or_said_to_be_wrong() {
    let none: [&[(&str, &str)]; 5] = [
        &[],
        &[("unknown", "true")],
        &[("sinceTime", "")],
        &[("untilTime", "")],
        &[("boot", "")],
    ];
    for pairs in none {
        assert_eq!(read(pairs), Ok(None), "{pairs:?}");
    }
    let wrong: [(&[(&str, &str)], &str); 10] = [
        (
            &[("sinceTime", "2019-12-04 02:00:00")],
            "sinceTime: Invalid value: \"2019-12-04 02:00:00\": invalid time format",
        ),
        (
            &[("sinceTime", "2019-12-04 02:00:00.000")],
            "sinceTime: Invalid value: \"2019-12-04 02:00:00.000\": invalid time format",
        ),
        (
            &[("untilTime", "2019-12-04T02")],
            "untilTime: Invalid value: \"2019-12-04T02\": invalid time format",
        ),
        (
            &[("untilTime", "2019-12-04T02:00")],
            "untilTime: Invalid value: \"2019-12-04T02:00\": invalid time format",
        ),
        (
            &[("untilTime", "2019-12-04T02:00:00")],
            "untilTime: Invalid value: \"2019-12-04T02:00:00\": invalid time format",
        ),
        (
            &[("tailLines", "foo")],
            "tailLines: Invalid value: \"foo\": strconv.Atoi: parsing \"foo\": invalid syntax",
        ),
        (
            &[("boot", " ")],
            "boot: Invalid value: \" \": strconv.Atoi: parsing \" \": invalid syntax",
        ),
        (
            &[("boot", "99999999999999999999")],
            "boot: Invalid value: \"99999999999999999999\": strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        (
            &[("query", "")],
            "query: Invalid value: []string{\"\"}: query cannot be empty",
        ),
        (
            &[("query", "  "), ("query", "\t"), ("boot", "x")],
            "[query: Invalid value: []string{\"  \", \"\\t\"}: query cannot be empty, boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax]",
        ),
    ];
    for (pairs, why) in wrong {
        assert_eq!(read(pairs), Err(why.to_owned()), "{pairs:?}");
    }
    let query = read(&[
        ("query", "foo"),
        ("query", "/bar"),
        ("query", "\\baz"),
        ("boot", "-23"),
        ("tailLines", "100"),
        ("pattern", "p"),
    ]);
    let query = query.unwrap().unwrap();
    assert_eq!(query.services, ["foo"]);
    assert_eq!(query.files, ["/bar", "\\baz"]);
    assert_eq!(query.options.boot, Some(-23));
    assert_eq!(query.options.tail, Some(100));
    assert_eq!(query.options.pattern, "p");
}

/// Upstream's Test_validateServices.
#[test]
fn names_of_services_inject_nothing() {
    for name in [
        "svc1", "svc.foo", "svc_foo", "svc@foo", "svc:foo", "..", "-x",
    ] {
        assert_eq!(judged(&[("query", name)]), "", "{name}");
    }
    for name in [
        "svc\n",
        "svc.foo\n",
        "a b",
        "a;b",
        "$(id)",
        "`id`",
        "a=b",
        "a\0",
        "é",
        "a'",
        "*",
        "a%",
    ] {
        let why = format!(
            "query: Invalid value: {}: input contains unsupported characters",
            quoted(name)
        );
        assert_eq!(judged(&[("query", name)]), why);
    }
    let long = "s".repeat(257);
    let why = format!("query: Invalid value: \"{long}\": length must be less than 100");
    assert_eq!(judged(&[("query", &long)]), why);
    assert_eq!(judged(&[("query", &long[1..])]), "");
    let five = ["a", "b", "c", "d", "e"].map(|name| ("query", name));
    assert_eq!(
        judged(&five),
        "query: Too many: 5: must have at most 4 items"
    );
    assert_eq!(judged(&five[1..]), "");
}

/// Upstream's Test_nodeLogQuery_validate.
#[test]
fn options_go_with_services_and_within_their_bounds() {
    let service = ("query", "svc1");
    let cases: [(&[(&str, &str)], &str); 13] = [
        (
            &[("sinceTime", "2023-01-04T02:00:00Z")],
            "query: Required value: cannot be empty with options",
        ),
        (
            &[service, ("query", "/test1.log")],
            "query: Invalid value: \"[/test1.log], [svc1]\": cannot specify a file and service",
        ),
        (
            &[("query", "/test1.log"), ("query", "/test2.log")],
            "query: Invalid value: []string{\"/test1.log\", \"/test2.log\"}: cannot specify more than one file",
        ),
        (
            &[("query", "/test1.log"), ("pattern", "foo")],
            "query: Invalid value: []string{\"/test1.log\"}: cannot specify file with options",
        ),
        (&[("query", "/test1.log")], ""),
        (
            &[service, ("pattern", "foo\\")],
            "pattern: Invalid value: \"foo\\\\\": error parsing regexp: trailing backslash at end of expression: ``",
        ),
        (&[service, ("sinceTime", "2023-01-04T02:00:00Z")], ""),
        (
            &[
                service,
                ("sinceTime", "2023-02-04T02:00:00Z"),
                ("untilTime", "2023-01-04T02:00:00Z"),
            ],
            "untilTime: Invalid value: 2023-01-04 02:00:00 +0000 UTC: must be after `sinceTime`",
        ),
        (&[service, ("boot", "-1")], ""),
        (
            &[service, ("boot", "1")],
            "boot: Invalid value: 1: must be less than 1",
        ),
        (&[service, ("tailLines", "100000")], ""),
        (
            &[service, ("tailLines", "100001")],
            "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
        ),
        (
            &[service, ("tailLines", "-1")],
            "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive",
        ),
    ];
    for (pairs, why) in cases {
        assert_eq!(judged(pairs), why, "{pairs:?}");
    }
}

/// Upstream's Test_getLoggingCmd.
#[test]
fn journalctl_is_told_all_that_was_asked() {
    let always = ["--utc", "--no-pager", "--output=short-precise"];
    assert_eq!(LogQuery::default().arguments(&[]), always);
    let services = ["p1".to_owned(), String::new(), "p2".to_owned()];
    let told = LogQuery::default().arguments(&services);
    assert_eq!(told, [&always[..], &["--unit=p1", "--unit=p2"]].concat());
    let query = read(&[
        ("query", "p1"),
        ("sinceTime", "2023-01-04T02:03:04+02:00"),
        ("untilTime", "2023-11-14T12:13:14.5Z"),
        ("tailLines", "7"),
        ("pattern", "a b"),
        ("boot", "-1"),
    ]);
    let query = query.unwrap().unwrap();
    let options = [
        "--since=2023-1-4 2:3:4",
        "--until=2023-11-14 12:13:14",
        "--pager-end",
        "--lines=7",
        "--unit=p1",
        "--grep=a b",
        "--boot",
        "-1",
    ];
    let told = query.arguments(&query.services);
    assert_eq!(told, [&always[..], &options].concat());
}

#[test]
fn pattern_is_judged_before_it_is_told() {
    for good in [
        "",
        "a",
        "a|b",
        "(a)",
        "(?:a)",
        "(?i)a",
        "(?i:a)",
        "(?P<n>a)",
        "(?<n>a)",
        "a*",
        "a*?",
        "a{2}",
        "a{2,}",
        "a{2,3}?",
        "a{,2}",
        "{",
        "a{x}",
        "[a-z]",
        "[]a]",
        "[^]a]",
        "[[:alpha:]]",
        "\\d+\\.\\[",
        "\\Qa(\\E",
        "\\Q(",
        "^$",
        "é+",
        "[\\]]",
        "(|a)",
    ] {
        assert_eq!(pattern::validate_pattern(good), Ok(()), "{good}");
    }
    for (bad, why) in [
        ("(", "missing closing ): `(`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[]", "missing closing ]: `[]`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("(+)", "missing argument to repetition operator: `+`"),
        ("a|?", "missing argument to repetition operator: `?`"),
        ("{2}", "missing argument to repetition operator: `{2}`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*?+", "invalid nested repetition operator: `*?+`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("[\\", "trailing backslash at end of expression: ``"),
        ("\\1", "invalid escape sequence: `\\1`"),
        ("\\y", "invalid escape sequence: `\\y`"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a(?!b)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=b)", "invalid named capture: `(?<=b)`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(?i", "missing closing ): `(?i`"),
    ] {
        let why = format!("error parsing regexp: {why}");
        assert_eq!(pattern::validate_pattern(bad), Err(why), "{bad}");
    }
}

proptest! {
    #[test]
    fn every_text_is_judged_as_a_pattern(text in r"[a{}()\[\]\\|*+?^:,0-9<>PQEié\-]{0,24}", any in ".{0,24}") {
        for pattern in [&text, &any] {
            if let Err(why) = pattern::validate_pattern(pattern) {
                prop_assert!(why.starts_with("error parsing regexp: "), "{why}");
            }
        }
    }
}

#[test]
fn log_of_a_service_lies_in_one_of_three_places() {
    assert_eq!(places("foo"), ["foo", "foo.log", "foo/foo.log"]);
    assert_eq!(unit("foo"), "foo.service");
}
