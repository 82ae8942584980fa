//! The policy's options.

use super::*;
use crate::topology::policy_options::NumaOrder;

fn read(options: &[(&str, &str)]) -> Result<PolicyOptions, String> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let options = options.iter().map(pair).collect();
    PolicyOptions::read(&options).map_err(|error| error.to_string())
}

/// Upstream's TestNewTopologyManagerOptions.
#[test]
fn the_options_say_what_is_chosen_and_on_how_large_a_machine() {
    let options = |order, max_allowable_nodes| PolicyOptions {
        order,
        max_allowable_nodes,
    };
    for (given, expected) in [
        (
            &[
                ("prefer-closest-numa-nodes", "true"),
                ("max-allowable-numa-nodes", "8"),
            ][..],
            options(NumaOrder::Closest, 8),
        ),
        (
            &[("max-allowable-numa-nodes", "12")],
            options(NumaOrder::Lowest, 12),
        ),
        (
            &[("prefer-closest-numa-nodes", "F")],
            options(NumaOrder::Lowest, 8),
        ),
        (&[], options(NumaOrder::Lowest, 8)),
    ] {
        assert_eq!(read(given), Ok(expected), "{given:?}");
    }
}

/// Upstream's TestNewTopologyManagerOptions, the values that are none.
#[test]
fn a_value_that_is_none_is_refused() {
    for (name, value, refusal) in [
        (
            "prefer-closest-numa-nodes",
            "not a boolean",
            "bad value for option",
        ),
        ("prefer-closest-numa-nodes", "tRUE", "bad value for option"),
        (
            "max-allowable-numa-nodes",
            "can't parse to int",
            "unable to convert policy option to integer",
        ),
        (
            "max-allowable-numa-nodes",
            "7",
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8",
        ),
        (
            "max-allowable-numa-nodes",
            "-1",
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8",
        ),
    ] {
        let refused = read(&[(name, value)]).unwrap_err();
        assert!(refused.starts_with(refusal), "{refused}");
    }
}

/// Upstream's TestPolicyDefaultsAvailable and TestPolicyOptionsAvailable: both options of this version are stable.
#[test]
fn an_option_of_no_such_name_is_refused() {
    for (name, value) in [
        ("prefer-closest-numa-nodes", "true"),
        ("max-allowable-numa-nodes", "8"),
    ] {
        assert!(read(&[(name, value)]).is_ok(), "{name}");
    }
    let refused = read(&[("this-option-does-not-exist", "true")]).unwrap_err();
    let expected = "unknown Topology Manager Policy option: \"this-option-does-not-exist\"";
    assert_eq!(refused, expected);
}
