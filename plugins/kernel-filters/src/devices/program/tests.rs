//! Programs are run by a small machine of the same instructions.

use serde_json::{Value, json};

use super::*;

/// What a program says about an access.
fn run(filter: &DeviceFilter, kind: i32, major: u32, minor: u32, access: i32) -> bool {
    let context = [(access << 16 | kind).cast_unsigned(), major, minor];
    let (mut registers, mut at) = ([0_u32; 16], 0);
    loop {
        let Instruction {
            code,
            registers: names,
            offset,
            operand,
        } = filter.instructions[at];
        let (to, from) = (usize::from(names & 0xf), usize::from(names >> 4));
        let (operand, skip) = (operand.cast_unsigned(), usize::try_from(offset).unwrap());
        at += 1;
        match code {
            LOAD_WORD => registers[to] = context[skip / 4],
            AND => registers[to] &= operand,
            SHIFT_RIGHT => registers[to] >>= operand,
            MOVE => registers[to] = operand,
            MOVE_REGISTER => registers[to] = registers[from],
            JUMP_NOT_EQUAL if registers[to] != operand => at += skip,
            JUMP_EQUAL if registers[to] == operand => at += skip,
            JUMP_NOT_EQUAL | JUMP_EQUAL => {}
            EXIT => return registers[0] == 1,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn compile(rules: Value) -> Result<DeviceFilter, DeviceError> {
    let rules: Vec<DeviceRule> = serde_json::from_value(rules).unwrap();
    DeviceFilter::compile(&rules)
}

#[test]
fn without_a_rule_a_container_has_what_every_container_has() {
    for rules in [json!([]), json!([{"allow": false, "access": "rwm"}])] {
        let filter = compile(rules).unwrap();
        for (major, minor) in [
            (1, 3),
            (1, 5),
            (1, 7),
            (1, 8),
            (1, 9),
            (5, 0),
            (5, 2),
            (136, 7),
            (10, 200),
        ] {
            assert!(
                run(&filter, CHAR, major, minor, READ | WRITE),
                "{major}:{minor}"
            );
        }
        assert!(run(&filter, CHAR, 1, 1, MKNOD) && run(&filter, BLOCK, 8, 0, MKNOD));
        assert!(!run(&filter, CHAR, 1, 1, READ), "/dev/mem");
        assert!(!run(&filter, CHAR, 5, 1, READ), "/dev/console");
        assert!(
            !run(&filter, BLOCK, 1, 3, READ),
            "a block device of the same number"
        );
        assert!(!run(&filter, BLOCK, 8, 0, WRITE | MKNOD));
    }
}

#[test]
fn the_last_rule_decides_for_each_kind_of_access() {
    let filter = compile(json!([
        {"allow": false},
        {"allow": true, "type": "c", "major": 10, "access": "rw"},
        {"allow": false, "type": "c", "major": 10, "minor": 7, "access": "w"},
        {"allow": true, "type": "b", "major": 8, "minor": 1, "access": "r"},
        {"allow": true, "type": "b", "major": 8, "minor": -1, "access": "w"},
    ]))
    .unwrap();
    assert!(run(&filter, CHAR, 10, 6, READ | WRITE));
    assert!(run(&filter, CHAR, 10, 7, READ));
    assert!(!run(&filter, CHAR, 10, 7, WRITE) && !run(&filter, CHAR, 10, 7, READ | WRITE));
    assert!(run(&filter, BLOCK, 8, 1, READ | WRITE));
    assert!(run(&filter, BLOCK, 8, 2, WRITE) && !run(&filter, BLOCK, 8, 2, READ));
    assert!(!run(&filter, CHAR, 11, 6, READ));
}

#[test]
fn a_rule_about_all_devices_makes_those_before_it_void() {
    let privileged = compile(json!([
        {"allow": false, "type": "c", "major": 1, "minor": 1, "access": "rwm"},
        {"allow": true, "type": "a", "access": "rwm"},
    ]))
    .unwrap();
    assert!(run(&privileged, CHAR, 1, 1, READ | WRITE | MKNOD));
    let closed = compile(json!([
        {"allow": true, "type": "c", "major": 1, "minor": 1},
        {"allow": false, "type": "a", "major": -1, "minor": -1},
    ]))
    .unwrap();
    assert!(!run(&closed, CHAR, 1, 1, READ));
}

#[test]
fn device_numbers_of_all_32_bits_are_compared() {
    let filter = compile(json!([
        {"allow": true, "type": "c", "major": 4_294_967_295_u32, "minor": 2_147_483_648_u32, "access": "r"},
    ]))
    .unwrap();
    assert!(run(&filter, CHAR, u32::MAX, 1 << 31, READ));
    assert!(!run(&filter, CHAR, u32::MAX, 0, READ));
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name() {
    let refused = |rule: Value| {
        compile(json!([{"allow": false}, rule]))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(json!({"allow": true, "type": "p"})).contains("devices[1].type: \"p\""));
    assert!(refused(json!({"allow": true, "access": "rx"})).contains("devices[1].access: \"rx\""));
    assert!(refused(json!({"allow": true, "major": -2})).contains("devices[1]: -2"));
    assert!(refused(json!({"allow": true, "minor": 4_294_967_296_i64})).contains("4294967296"));
}
