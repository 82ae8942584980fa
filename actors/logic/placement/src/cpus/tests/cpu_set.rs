//! Sets of CPUs and their text.

use proptest::prelude::*;

use super::*;

/// Upstream's k8s.io/utils/cpuset (Parse and String).
#[test]
fn a_list_of_cpus_is_read_and_written_as_the_kernel_has_it() {
    for (text, cpus, written) in [
        ("", &[][..], ""),
        ("5", &[5], "5"),
        ("1,2,3,4,5", &[1, 2, 3, 4, 5], "1-5"),
        ("1-5", &[1, 2, 3, 4, 5], "1-5"),
        ("1-2,3-5", &[1, 2, 3, 4, 5], "1-5"),
        ("5,4,3,2,1", &[1, 2, 3, 4, 5], "1-5"),
        ("3-6,1-5", &[1, 2, 3, 4, 5, 6], "1-6"),
        ("3-3,5-5", &[3, 5], "3,5"),
        (
            "63-64,127,+128,8191",
            &[63, 64, 127, 128, 8191],
            "63-64,127-128,8191",
        ),
    ] {
        let read = set(text);
        assert_eq!(read.iter().collect::<Vec<_>>(), cpus, "{text}");
        assert_eq!(read.to_string(), written);
        assert_eq!(read, CpuSet::from_numbers(cpus.iter().copied()));
    }
}

#[test]
fn what_lists_no_cpus_is_refused_with_its_words() {
    let syntax = |text: &str| format!("strconv.Atoi: parsing {text:?}: invalid syntax");
    for (text, refusal) in [
        ("asd", syntax("asd")),
        ("1.3", syntax("1.3")),
        (",", syntax("")),
        ("1,", syntax("")),
        ("-1", syntax("")),
        ("1-", syntax("")),
        ("1--3", syntax("-3")),
        ("1-2-3", syntax("2-3")),
        (" 1", syntax(" 1")),
        ("+-1", syntax("+")),
        ("5-3", "invalid range \"5-3\" (5 > 3)".to_owned()),
        ("8192", "CPU 8192 is not in the range 0-8191".to_owned()),
        (
            "0-99999999999999999999",
            "CPU 99999999999999999999 is not in the range 0-8191".to_owned(),
        ),
    ] {
        assert_eq!(
            text.parse::<CpuSet>().unwrap_err().to_string(),
            refusal,
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn a_set_is_what_a_set_of_numbers_is(
        left in prop::collection::btree_set(0_u32..300, 0..40),
        right in prop::collection::btree_set(0_u32..300, 0..40),
    ) {
        let of = |cpus: &std::collections::BTreeSet<u32>| CpuSet::from_numbers(cpus.iter().copied());
        let (one, other) = (of(&left), of(&right));
        prop_assert_eq!(one.union(&other), of(&(&left | &right)));
        prop_assert_eq!(one.intersection(&other), of(&(&left & &right)));
        prop_assert_eq!(one.difference(&other), of(&(&left - &right)));
        prop_assert_eq!(one.is_subset(&other), left.is_subset(&right));
        prop_assert_eq!(one.numbers(), left.clone());
        prop_assert_eq!(set(&one.to_string()), one);
    }
}
