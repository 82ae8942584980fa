//! The command line as pflag reads it, and each flag's effect.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(line: &str) -> Result<LowArgs, FlagError> {
    LowArgs::parse(line.split_whitespace().map(OsString::from))
}

fn refused(line: &str) -> String {
    parse(line).unwrap_err().to_string()
}

#[test]
fn every_way_to_write_a_flag_is_pflags() {
    for line in [
        "--max-pods=5",
        "--max-pods 5",
        "--max_pods=5",
        "--max-pods=4 --max-pods=5",
        "--register-node --max-pods 5",
        "--register-node=false --max-pods=5",
        "--max-pods=5 --",
    ] {
        assert_eq!(
            parse(line).unwrap().configuration["maxPods"],
            json!(5),
            "{line}"
        );
    }
    for line in ["-v=4", "-v 4", "-v4", "--v=4", "--v 4"] {
        assert_eq!(
            parse(line).unwrap().configuration["logging.verbosity"],
            json!(4),
            "{line}"
        );
    }
    assert_eq!(
        parse("--node-labels a=b --node-labels=c=d").unwrap().own["node-labels"],
        json!({"a": "b", "c": "d"})
    );
    assert_eq!(
        parse("--cluster-dns=1.1.1.1 --cluster-dns=2.2.2.2")
            .unwrap()
            .configuration["clusterDNS"],
        json!(["1.1.1.1", "2.2.2.2"])
    );
}

/// Upstream's TestVModule.
#[test]
fn patterns_of_files_have_a_verbosity_each() {
    let read = |text: &str| parse(&format!("--vmodule={text}"));
    let item =
        |pattern: &str, verbosity: i64| json!({"filePattern": pattern, "verbosity": verbosity});
    let good = [
        ("gopher*=1", vec![item("gopher*", 1)]),
        ("foo=1,bar=2", vec![item("foo", 1), item("bar", 2)]),
        ("foo=1,bar=2,", vec![item("foo", 1), item("bar", 2)]),
        (
            "validint32=2147483647",
            vec![item("validint32", 2_147_483_647)],
        ),
    ];
    for (text, expected) in good {
        let low = read(text).unwrap();
        assert_eq!(
            low.configuration["logging.vmodule"],
            json!(expected),
            "{text}"
        );
    }
    for text in ["gopher*", "=1", "foo=-1", "invalidint32=2147483648"] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains("\"--vmodule\" flag: "), "{error}");
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn what_pflag_refuses_is_refused_in_its_words() {
    for (line, message) in [
        ("--nonsense", "unknown flag: --nonsense"),
        ("--nonsense=1", "unknown flag: --nonsense"),
        ("--max-pods", "flag needs an argument: --max-pods"),
        ("-v", "flag needs an argument: 'v' in -v"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("-hx", "unknown shorthand flag: 'x' in -hx"),
        ("--=1", "bad flag syntax: --=1"),
        ("---max-pods", "bad flag syntax: ---max-pods"),
        ("run", "unknown command run"),
        ("--max-pods=1 run", "unknown command run"),
        ("-- run", "unknown command run"),
        ("--register-node false", "unknown command false"),
        ("-", "unknown command -"),
    ] {
        assert_eq!(refused(line), message, "{line}");
    }
    assert_eq!(
        refused("--max-pods=many"),
        "invalid argument \"many\" for \"--max-pods\" flag: expected a whole number that fits 32 bits"
    );
    assert!(refused("--register-node=maybe").contains("expected true or false"));
}

#[test]
fn an_argument_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let argument = OsString::from_vec(vec![b'-', b'-', 0xff]);
    assert!(matches!(
        LowArgs::parse([argument]),
        Err(FlagError::NotText(_))
    ));
}

#[test]
fn help_and_version_ask_for_answers() {
    assert!(parse("-h").unwrap().help && parse("--help").unwrap().help);
    assert!(!parse("--help=false").unwrap().help);
    assert_eq!(parse("--version").unwrap().version.as_deref(), Some("true"));
    assert_eq!(
        parse("--version=raw").unwrap().version.as_deref(),
        Some("raw")
    );
    assert_eq!(
        parse("--version=v1.36.9").unwrap().version.as_deref(),
        Some("v1.36.9")
    );
    assert!(parse("--version=newest").is_err());
}

#[test]
fn every_flag_of_the_table_is_in_the_help_or_removed() {
    let text = usage();
    for flag in table::all() {
        let shown = text.contains(&format!("--{} ", flag.name));
        assert_eq!(
            shown,
            !matches!(flag.status, FlagStatus::Removed(_)),
            "{}",
            flag.name
        );
        assert!(!flag.help.is_empty(), "{}", flag.name);
    }
}

#[test]
fn no_two_flags_share_a_name_or_a_field() {
    let mut names = BTreeSet::new();
    let mut fields = BTreeSet::new();
    for flag in table::all() {
        assert!(names.insert(flag.name), "{}", flag.name);
        if let Sets::Configuration(path) = flag.sets {
            assert!(fields.insert(path), "{path}");
        }
    }
}

#[test]
fn own_flags_and_their_structure_agree() {
    let structure = serde_json::to_value(KubeletFlags::default()).unwrap();
    let fields: BTreeSet<_> = structure
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let own = table::all()
        .filter(|flag| flag.sets == Sets::Own)
        .map(|flag| flag.name);
    assert_eq!(own.collect::<BTreeSet<_>>(), fields);
}

/// A value that each kind of flag accepts.
fn sample(kind: value::FlagType) -> &'static str {
    use value::FlagType;
    match kind {
        FlagType::Bool => "true",
        FlagType::Int32
        | FlagType::Int64
        | FlagType::Uint32
        | FlagType::Amount
        | FlagType::Ints => "7",
        FlagType::Duration => "7s",
        FlagType::Text | FlagType::Texts => "word",
        FlagType::Ip => "10.0.0.1",
        FlagType::Pairs | FlagType::Pair | FlagType::Labels => "a=b",
        FlagType::Thresholds => "memory.available<1Gi",
        FlagType::Gates => "AllAlpha=false",
        FlagType::Headers => "a:b",
        FlagType::VModule => "a=1",
        FlagType::Taints => "a=b:NoSchedule",
        FlagType::ReservedMemory => "0:memory=1Gi",
        FlagType::Version => "raw",
    }
}

#[test]
fn every_flag_gives_its_field_what_that_takes() {
    use crate::document;
    use crate::kubelet_configuration::{KubeletConfiguration, specimen};
    let known = specimen();
    for flag in table::all() {
        let argument = format!("--{}={}", flag.name, sample(flag.kind));
        let low = parse(&argument).unwrap();
        match flag.sets {
            Sets::Configuration(path) => {
                assert!(
                    document::get(known.as_object().unwrap(), path).is_some(),
                    "{path} is no field"
                );
                let mut fields = Map::new();
                document::put(&mut fields, path, low.configuration[path].clone());
                document::decode::<KubeletConfiguration>(fields).unwrap();
            }
            Sets::Own if flag.name == "exit-on-lock-contention" => {
                assert_eq!(low.kubelet_flags(), Err(FlagError::NoLockFile));
            }
            Sets::Own => assert_ne!(
                low.kubelet_flags().unwrap(),
                KubeletFlags::default_but_for(flag.name)
            ),
            Sets::Nothing | Sets::Answer => {}
        }
    }
}

impl KubeletFlags {
    /// The defaults; where the sample value is the default itself, something else.
    fn default_but_for(name: &str) -> KubeletFlags {
        let mut flags = KubeletFlags::default();
        if name == "register-schedulable" {
            flags.register_schedulable = false;
        }
        flags
    }
}

#[test]
fn deprecated_and_removed_flags_are_one_warning_each() {
    let low =
        parse("--max-pods=5 --read-only-port=0 -v=2 --pod-infra-container-image=localhost/pause")
            .unwrap();
    assert_eq!(
        low.warnings(),
        [
            "deprecated flags, better set in the file that --config names: --max-pods, --read-only-port",
            "flags without effect, removed from the kubelet before 1.36: --pod-infra-container-image",
        ]
    );
    assert!(
        parse("-v=2 --provider-id=a --root-dir=/a")
            .unwrap()
            .warnings()
            .is_empty()
    );
}

#[test]
fn node_labels_keep_to_what_a_node_may_say() {
    let flags = |line: &str| parse(line).unwrap().kubelet_flags();
    assert!(flags("--node-labels=a=b,node.kubernetes.io/x=y,kubernetes.io/hostname=z").is_ok());
    assert!(matches!(
        flags("--node-labels=node-role.kubernetes.io/master="),
        Err(FlagError::ReservedLabels(_))
    ));
    assert!(matches!(
        flags("--node-labels=a=not/valid"),
        Err(FlagError::Labels(_))
    ));
}

proptest! {
    #[test]
    fn no_command_line_panics(args in proptest::collection::vec("(--?)?[a-z_-]{0,12}=?.{0,8}", 0..6)) {
        if let Err(error) = LowArgs::parse(args.into_iter().map(OsString::from)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_value_of_a_known_flag_panics(index in 0_usize..150, text in ".{0,16}") {
        let flag = table::all().nth(index).unwrap();
        let argument = OsString::from(format!("--{}={text}", flag.name));
        if let Ok(low) = LowArgs::parse([argument]) {
            let _checked: Result<KubeletFlags, FlagError> = low.kubelet_flags();
        }
    }
}
