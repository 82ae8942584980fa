//! Programs are run by a small machine of the same instructions.

use serde_json::{Value, json};

use super::*;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | 1;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | 38;

/// What a program says about a system call.
fn run(filter: &Filter, architecture: u32, number: u32, args: [u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        NUMBER => number,
        ARCHITECTURE => architecture,
        offset => {
            let at = offset - ARGUMENTS;
            let (high, low) = halves(args[usize::try_from(at / 8).unwrap()]);
            if at.is_multiple_of(8) { low } else { high }
        }
    };
    let (mut accumulator, mut at) = (0_u32, 0);
    loop {
        let sock_filter { code, jt, jf, k } = filter.instructions[at];
        let code = u32::from(code);
        at += 1;
        let holds = match code & 0xf0 {
            libc::BPF_JEQ => accumulator == k,
            libc::BPF_JGT => accumulator > k,
            libc::BPF_JGE => accumulator >= k,
            _ => false,
        };
        match code & 0x07 {
            libc::BPF_LD => accumulator = word(k),
            libc::BPF_ALU => accumulator &= k,
            libc::BPF_RET => return k,
            libc::BPF_JMP => at += usize::from(if holds { jt } else { jf }),
            other => panic!("class {other}"),
        }
    }
}

fn compile(profile: Value) -> Result<Filter, SeccompError> {
    Filter::compile(&serde_json::from_value(profile).unwrap())
}

fn says(filter: &Filter, name: &str, args: [u64; 6]) -> u32 {
    run(filter, NATIVE.0, number(name).unwrap(), args)
}

#[test]
fn rules_decide_in_their_order_and_the_default_for_the_rest() {
    let filter = compile(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            {"names": ["read", "no_such_call", "statx"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
        ],
    }))
    .unwrap();
    assert_eq!(says(&filter, "read", [0; 6]), ALLOW);
    assert_eq!(says(&filter, "clone3", [0; 6]), ENOSYS);
    assert_eq!(says(&filter, "mount", [0; 6]), EPERM);
    assert_eq!(says(&filter, "reboot", [0; 6]), EPERM);
    assert_eq!(run(&filter, NATIVE.0, 100_000, [0; 6]), ENOSYS);
}

#[test]
fn each_operator_compares_all_64_bits() {
    let big = 5_u64 << 32;
    let values = [0, 1, 6, 7, 8, big, big + 6, big + 7, big + 8, u64::MAX];
    type Law = fn(u64, u64) -> bool;
    let laws: [(&str, Law); 6] = [
        ("SCMP_CMP_EQ", |a, b| a == b),
        ("SCMP_CMP_NE", |a, b| a != b),
        ("SCMP_CMP_LT", |a, b| a < b),
        ("SCMP_CMP_LE", |a, b| a <= b),
        ("SCMP_CMP_GT", |a, b| a > b),
        ("SCMP_CMP_GE", |a, b| a >= b),
    ];
    for (op, law) in laws {
        for limit in values {
            let filter = compile(json!({
                "defaultAction": "SCMP_ACT_ERRNO",
                "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ALLOW",
                              "args": [{"index": 2, "value": limit, "op": op}]},
                             {"names": ["read"], "action": "SCMP_ACT_ALLOW"}],
            }))
            .unwrap();
            for value in values {
                let expected = if law(value, limit) { ALLOW } else { EPERM };
                assert_eq!(
                    says(&filter, "socket", [0, 0, value, 0, 0, 0]),
                    expected,
                    "{value} {op} {limit}"
                );
            }
            assert_eq!(says(&filter, "read", [0; 6]), ALLOW);
        }
    }
}

#[test]
fn masks_conjunctions_and_alternatives_are_kept() {
    let filter = compile(json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["clone"], "action": "SCMP_ACT_ERRNO",
             "args": [{"index": 0, "value": 0x7e02_0000, "valueTwo": 0x1000_0000, "op": "SCMP_CMP_MASKED_EQ"}]},
            {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO",
             "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 2, "op": "SCMP_CMP_EQ"}]},
            {"names": ["personality"], "action": "SCMP_ACT_ERRNO",
             "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 9, "op": "SCMP_CMP_EQ"}]},
        ],
    }))
    .unwrap();
    assert_eq!(says(&filter, "clone", [0x1000_0011, 0, 0, 0, 0, 0]), EPERM);
    assert_eq!(says(&filter, "clone", [0x11, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(says(&filter, "ioctl", [1, 2, 0, 0, 0, 0]), EPERM);
    assert_eq!(says(&filter, "ioctl", [1, 3, 0, 0, 0, 0]), ALLOW);
    assert_eq!(says(&filter, "personality", [9, 0, 0, 0, 0, 0]), EPERM);
    assert_eq!(says(&filter, "personality", [7, 0, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn calls_of_another_architecture_never_pass() {
    let profile = |architectures: Value| {
        compile(json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": architectures, "syscalls": []})).unwrap()
    };
    let (foreign, name) = FOREIGN[0];
    assert_eq!(
        run(&profile(json!([NATIVE.1])), foreign, 0, [0; 6]),
        libc::SECCOMP_RET_KILL_PROCESS
    );
    assert_eq!(
        run(&profile(json!([NATIVE.1, name])), foreign, 0, [0; 6]),
        ENOSYS
    );
    #[cfg(target_arch = "x86_64")]
    assert_eq!(
        run(&profile(json!([])), NATIVE.0, X32_BIT | 1, [0; 6]),
        ENOSYS
    );
}

#[test]
fn fields_of_dockers_format_are_ignored() {
    let program = compile(json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "archMap": [{ "architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"] }],
        "syscalls": [{
            "names": ["mkdir"],
            "action": "SCMP_ACT_ERRNO",
            "comment": "x",
            "includes": { "caps": ["CAP_SYS_ADMIN"] },
            "excludes": {},
        }],
    }));
    assert!(program.is_ok());
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name() {
    let notify = compile(json!({"defaultAction": "SCMP_ACT_NOTIFY"})).unwrap_err();
    assert!(notify.to_string().contains("SCMP_ACT_NOTIFY"));
    let flag =
        compile(json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_NEW"]}))
            .unwrap_err();
    assert!(flag.to_string().contains("SECCOMP_FILTER_FLAG_NEW"));
    let index = compile(
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"],
        "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]}]}),
    )
    .unwrap_err();
    assert!(index.to_string().contains("argument 6"));
}
