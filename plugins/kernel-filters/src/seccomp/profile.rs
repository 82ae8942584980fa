//! The section as it is written. Unknown fields are ignored, as by containerd and runc: profiles in Docker's format have
//! `archMap`, `comment`, `includes` and `excludes`.

use serde::Deserialize;

/// `linux.seccomp` of the OCI runtime specification 1.2.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    pub default_action: Action,
    #[serde(default)]
    pub default_errno_ret: Option<u16>,
    #[serde(default)]
    pub architectures: Vec<String>,
    #[serde(default)]
    pub flags: Vec<String>,
    #[serde(default)]
    pub listener_path: String,
    #[serde(default)]
    pub listener_metadata: String,
    #[serde(default)]
    pub syscalls: Vec<Rule>,
}

/// What happens to some system calls.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub names: Vec<String>,
    pub action: Action,
    #[serde(default)]
    pub errno_ret: Option<u16>,
    #[serde(default)]
    pub args: Vec<Argument>,
}

/// A condition on one argument.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Argument {
    /// 0 to 5.
    pub index: u8,
    /// What it is compared with; the mask of `MaskedEqual`.
    pub value: u64,
    /// What the masked argument is compared with.
    #[serde(default)]
    pub value_two: u64,
    pub op: Operator,
}

/// How an argument is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Operator {
    #[serde(rename = "SCMP_CMP_NE")]
    NotEqual,
    #[serde(rename = "SCMP_CMP_LT")]
    Less,
    #[serde(rename = "SCMP_CMP_LE")]
    LessOrEqual,
    #[serde(rename = "SCMP_CMP_EQ")]
    Equal,
    #[serde(rename = "SCMP_CMP_GE")]
    GreaterOrEqual,
    #[serde(rename = "SCMP_CMP_GT")]
    Greater,
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Action {
    #[serde(rename = "SCMP_ACT_KILL", alias = "SCMP_ACT_KILL_THREAD")]
    KillThread,
    #[serde(rename = "SCMP_ACT_KILL_PROCESS")]
    KillProcess,
    #[serde(rename = "SCMP_ACT_TRAP")]
    Trap,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
    #[serde(rename = "SCMP_ACT_TRACE")]
    Trace,
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_LOG")]
    Log,
    #[serde(rename = "SCMP_ACT_NOTIFY")]
    Notify,
}
