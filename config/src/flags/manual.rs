//! The manual page of `oxlet` and its completions for shells, made from the table of flags: `config/manual/`.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::{Generator, Shell, generate};
use clap_mangen::Man;
use kernel::testing::assert_generated;

use super::table::{self, Flag, FlagStatus};
use super::usage::{help, placeholder};
use super::value::FlagType;

const DESCRIPTION: &str = "Oxlet runs the pods of a node: those that an API server assigns to it, and those of manifests on the node \
    itself. It takes the kubelet's flags and configuration file and does the kubelet's work. A flag beats a drop-in, a drop-in beats \
    the file, the file beats defaults. A switch alone means true; --switch=false turns it off.";

/// The title; clap's has no date, and so its other fields in the wrong places.
const TITLE: &str = ".TH OXLET 8 \"\" \"Oxlet\" \"System administration\"\n";

/// Sections that no table tells; roff.
const SECTIONS: &str = r"
.SH FILES
.TP
.I /etc/oxlet/config.yaml
the node's configuration, a KubeletConfiguration, where the agent runs as a service without an API server
.TP
.I /etc/oxlet/config.d/*.conf
what is merged over it
.TP
.I /etc/oxlet/plugins.yaml
the node's plugins: runtimes, network, storage
.TP
.I /etc/oxlet/manifests
the pods of a node that was started with --alone
.TP
.I /etc/default/oxlet
OXLET_ARGS, further flags of the service
.TP
.I /var/lib/kubelet
pods, volumes and checkpoints, as the kubelet has them; Oxlet's own are in its folder oxlet
.TP
.I /run/oxlet/admin.sock
where oxctl finds the agent
.SH SEE ALSO
.BR oxctl (8),
.BR systemd.unit (5)
";

/// The command line as clap has it, for what is generated; the agent reads it by itself.
fn command() -> Command {
    let mut flags: Vec<&Flag> = table::all()
        .filter(|flag| !matches!(flag.status, FlagStatus::Removed(_)))
        .collect();
    flags.sort_by_key(|flag| (flag.status == FlagStatus::Ours, flag.name));
    Command::new("oxlet")
        .about("Kubernetes node agent in the kubelet's place")
        .long_about(DESCRIPTION)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(flags.into_iter().map(argument))
}

fn argument(flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).help(help(flag));
    let argument = match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    match placeholder(flag.kind) {
        "" => argument.action(ArgAction::SetTrue),
        value => argument
            .action(ArgAction::Append)
            .value_name(value)
            .value_hint(hint(flag)),
    }
}

/// Files are completed where the help speaks of them.
fn hint(flag: &Flag) -> ValueHint {
    let is_path = ["file", "folder", "socket", "Socket"]
        .iter()
        .any(|word| flag.help.contains(word));
    match flag.kind == FlagType::Text && is_path {
        true => ValueHint::AnyPath,
        false => ValueHint::Other,
    }
}

fn page() -> String {
    let mut bytes = TITLE.as_bytes().to_vec();
    let man = Man::new(command());
    man.render_name_section(&mut bytes).unwrap();
    bytes.extend(b".SH SYNOPSIS\n.B oxlet\n[\\fIflags\\fR]\n");
    man.render_description_section(&mut bytes).unwrap();
    man.render_options_section(&mut bytes).unwrap();
    bytes.extend(SECTIONS.trim_start().as_bytes());
    String::from_utf8(bytes).unwrap()
}

fn completion(shell: impl Generator) -> String {
    let mut bytes = Vec::new();
    generate(shell, &mut command(), "oxlet", &mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// The flags that a person should find: all but those that upstream has removed.
fn told() -> impl Iterator<Item = &'static Flag> {
    table::all().filter(|flag| !matches!(flag.status, FlagStatus::Removed(_)))
}

#[test]
fn the_manual_has_each_flag() {
    let page = page();
    for flag in told() {
        let name = format!("\\-\\-{}", flag.name.replace('-', "\\-"));
        assert!(page.contains(&format!("{name}\\fR")), "{name}");
    }
    assert!(page.contains("(deprecated; no effect: the kubelet only checks it"));
    assert!(!page.contains("pod\\-infra\\-container\\-image"));
    assert_generated("config/manual/oxlet.8", &page);
}

#[test]
fn the_completions_have_each_flag() {
    for (shell, dashes, file) in [
        (Shell::Bash, "--", "oxlet.bash"),
        (Shell::Zsh, "--", "_oxlet"),
        (Shell::Fish, "-l ", "oxlet.fish"),
    ] {
        let text = completion(shell);
        for flag in told() {
            let name = format!("{dashes}{}", flag.name);
            assert!(text.contains(&name), "{name} in {file}");
        }
        assert_generated(&format!("config/manual/{file}"), &text);
    }
}
