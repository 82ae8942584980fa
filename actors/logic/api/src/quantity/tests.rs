//! What quantities read and print as, case by case, and for every text that the grammar makes.

use proptest::prelude::*;

use super::*;

fn q(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

#[test]
fn quantities_read_and_print_as_upstream() {
    let rows = [
        ("0", 0, 0, "0"),
        ("-0", 0, 0, "0"),
        ("0Mi", 0, 0, "0"),
        ("100m", 1, 100, "100m"),
        ("0.1", 1, 100, "100m"),
        (".5", 1, 500, "500m"),
        ("5.", 5, 5000, "5."),
        ("1.50", 2, 1500, "1500m"),
        ("+5", 5, 5000, "+5"),
        ("1000", 1000, 1_000_000, "1k"),
        ("5000m", 5, 5000, "5"),
        ("1e3", 1000, 1_000_000, "1e3"),
        ("100e1", 1000, 1_000_000, "1e3"),
        ("2Ki", 2048, 2_048_000, "2Ki"),
        ("1024Mi", 1 << 30, (1 << 30) * 1000, "1Gi"),
        ("1.5Gi", 3 << 29, (3 << 29) * 1000, "1536Mi"),
        ("0.5Ki", 512, 512_000, "512"),
        ("1500u", 1, 2, "1500u"),
        ("-100m", -1, -100, "-100m"),
        ("12E", i64::MAX, i64::MAX, "12E"),
        ("1Ei", 1 << 60, i64::MAX, "1Ei"),
        (
            "9223372036854775807",
            i64::MAX,
            i64::MAX,
            "9223372036854775807",
        ),
        ("0.0000000001", 1, 1, "1n"),
    ];
    for (text, value, milli, printed) in rows {
        let quantity = q(text);
        assert_eq!(quantity.value(), value, "{text}");
        assert_eq!(quantity.milli_value(), milli, "{text}");
        assert_eq!(quantity.to_string(), printed, "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_refused() {
    for text in [
        "", " ", "-", "m", "Mi", "1x", "10%", "1 Gi", "--1", "1Zi", "1KI", "1ki", "1e", "1e+",
        "e3", ".", "１", "1.2.3", "0x10", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i",
        "-3.01i", "-3.01e-",
    ] {
        assert!(Quantity::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn spaces_around_a_quantity_are_read_over_in_the_api_only() {
    for text in [" 1", "1 "] {
        assert_eq!(q(text).value(), 1, "{text:?}");
        assert!(text.parse::<Quantity>().is_err(), "{text:?}");
    }
}

/// Upstream's rows that saturate, round, or are odd: the number in billionths, and the format.
#[test]
fn numbers_saturate_and_round_as_upstream() {
    use QuantityFormat::{BinarySI, DecimalExponent, DecimalSI};
    const ONE: i128 = 1_000_000_000;
    const MOST: i128 = i64::MAX as i128 * ONE;
    let rows = [
        ("0Ki", 0, BinarySI),
        ("3Ei", 3 * (1_i128 << 60) * ONE, BinarySI),
        ("1E-3", 1_000_000, DecimalExponent),
        ("1.3E+6", 1_300_000 * ONE, DecimalExponent),
        ("100.035k", 100_035 * ONE, DecimalSI),
        ("0.00050k", ONE / 2, DecimalSI),
        ("3.001n", 4, DecimalSI),
        ("1.1E-9", 2, DecimalExponent),
        ("0.0000000005", 1, DecimalSI),
        ("0.5e-9", 1, DecimalExponent),
        ("0.9n", 1, DecimalSI),
        ("0.00000012345", 124, DecimalSI),
        ("9Ei", MOST, BinarySI),
        ("9223372036854775807Ki", MOST, BinarySI),
        ("12E", 12_000_000_000_000_000_000 * ONE, DecimalSI),
        ("100.035Ki", 102_435_840_000_000, BinarySI),
        ("0.05Gi", 53_687_091_200_000_000, BinarySI),
        ("0.000000000001Ki", 2, DecimalSI),
        ("1.G", ONE * ONE, DecimalSI),
        (
            "18446744073709551616",
            18_446_744_073_709_551_616 * ONE,
            DecimalSI,
        ),
    ];
    for (text, nanos, format) in rows {
        for (text, nanos) in [
            (text.to_owned(), nanos),
            (format!("-{text}"), -nanos),
            (format!("+{text}"), nanos),
        ] {
            let amount = QuantityValue::Big {
                unscaled: nanos,
                scale: 9,
            };
            let expected = Quantity {
                amount,
                format,
                text: None,
            };
            assert_eq!(compare(&q(&text), &expected), Ordering::Equal, "{text}");
            assert_eq!(q(&text).format, format, "{text}");
        }
    }
    // The cap is a whole number: its form shows in the UID of a static pod.
    let cap = QuantityValue::Big {
        unscaled: i64::MAX.into(),
        scale: 0,
    };
    assert_eq!(q("8Ei").amount, cap);
    assert_eq!(q(&format!("{}Ki", "9".repeat(60))).amount, cap);
}

#[test]
fn a_number_of_any_size_is_read() {
    for (text, value) in [
        ("1e99".to_owned(), i64::MAX),
        ("1e1000".to_owned(), i64::MAX),
        (format!("1e{}", i64::MAX), i64::MAX),
        ("9".repeat(60), i64::MAX),
        (format!("-{}", "9".repeat(60)), i64::MIN),
        ("1e-99".to_owned(), 1),
        (format!("1e{}", i64::MIN), 1),
        (format!("123456789.{}1", "0".repeat(60)), 123_456_790),
        (format!("1.{}1Ki", "0".repeat(60)), 1025),
    ] {
        assert_eq!(q(&text).value(), value, "{text}");
    }
}

#[test]
fn quantities_print_as_upstreams_rows() {
    for (text, printed) in [
        ("307200Ki", "300Mi"),
        ("1025024Mi", "1001Gi"),
        ("0.001T", "1G"),
        ("1000u", "1m"),
        ("1.08", "1080m"),
        (".001e12", "1e9"),
        ("0.001e0", "1e-3"),
        ("1000e-12", "1e-9"),
        ("00", "0"),
        ("1000M", "1G"),
        (".001Ki", "1024m"),
        (".000001Ki", "1024u"),
        (".000000001Ki", "1024n"),
        (".000000000001Ki", "2n"),
    ] {
        assert_eq!(q(text).to_string(), printed, "{text}");
    }
}

#[test]
fn rounding_to_milli_forgets_the_text_only_when_it_rounds() {
    assert_eq!(q("100m").rounded_to_milli().text.as_deref(), Some("100m"));
    let rounded = q("1500u").rounded_to_milli();
    assert_eq!(
        (rounded.amount, rounded.text),
        (
            QuantityValue::Small {
                value: 2,
                scale: -3
            },
            None
        )
    );
    let big = q("1.5Gi").rounded_to_milli();
    assert_eq!(
        big.amount,
        QuantityValue::Big {
            unscaled: 1_610_612_736_000,
            scale: 3
        }
    );
    let whole = q("10Ei").rounded_to_milli();
    assert_eq!(
        whole.amount,
        QuantityValue::Big {
            unscaled: i128::from(i64::MAX) * 1000,
            scale: 3
        }
    );
}

#[test]
fn sums_keep_the_first_format() {
    assert_eq!(q("1Gi").plus(&q("1Gi")).unwrap().to_string(), "2Gi");
    assert_eq!(q("0").plus(&q("1Gi")).unwrap().to_string(), "1Gi");
    assert_eq!(q("100m").plus(&q("1")).unwrap().to_string(), "1100m");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_panic(text in any::<String>(), other in "[-+]?[0-9.]{0,40}([eE]-?[0-9]{1,4}|[numkMGTPE]i?)?") {
        for text in [text, other] {
            if let Ok(quantity) = Quantity::parse(&text) {
                let (_, _, rounded) = (quantity.value(), quantity.milli_value(), quantity.clone().rounded_to_milli());
                prop_assert_ne!(compare(&rounded, &quantity), if quantity.is_negative() { Ordering::Greater } else { Ordering::Less });
            }
        }
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same_number(number in any::<i32>(), suffix in "[numkMGTPE]?|[KMGTPE]i|e-?[0-9]") {
        let quantity = q(&format!("{number}{suffix}"));
        let printed = Quantity { text: None, ..quantity.clone() }.to_string();
        let again = q(&printed);
        prop_assert_eq!(compare(&again, &quantity), Ordering::Equal, "{}", printed);
        let canonical = Quantity { text: None, ..again }.to_string();
        prop_assert_eq!(canonical, printed);
    }

    #[test]
    fn order_is_the_order_of_the_numbers(left in any::<i32>(), right in any::<i32>()) {
        let order = compare(&q(&format!("{left}m")), &q(&format!("{right}m")));
        prop_assert_eq!(order, left.cmp(&right));
        prop_assert_eq!(compare(&q(&format!("{left}e900")), &q(&format!("{right}"))), i64::from(left).saturating_mul(1 << 32).cmp(&right.into()));
    }
}
