//! The manual page of `oxctl` and its completions for shells, made from its command line: `config/manual/`.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use kernel::testing::assert_generated;

use crate::OxctlArguments;

/// The title; clap's has no date, and so its other fields in the wrong places.
const TITLE: &str = ".TH OXCTL 8 \"\" \"Oxlet\" \"System administration\"\n";

/// A command that is shown, and its name from the program's on.
fn commands(above: &str, command: &Command) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    for child in command
        .get_subcommands()
        .filter(|child| !child.is_hide_set())
    {
        let name = format!("{above} {}", child.get_name());
        match child.has_subcommands() {
            true => found.extend(commands(&name, child)),
            false => found.push((name, child.clone())),
        }
    }
    found
}

/// Text as it stands, in roff.
fn literal(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.lines()
        .map(|line| format!("\\&{}\n", line.trim_end()))
        .collect()
}

fn page() -> String {
    let command = OxctlArguments::command().disable_help_subcommand(true);
    let mut bytes = TITLE.as_bytes().to_vec();
    let man = Man::new(command.clone());
    man.render_name_section(&mut bytes).unwrap();
    man.render_synopsis_section(&mut bytes).unwrap();
    man.render_description_section(&mut bytes).unwrap();
    man.render_options_section(&mut bytes).unwrap();
    let mut page = String::from_utf8(bytes).unwrap();
    page.push_str(".SH COMMANDS\n");
    for (name, command) in commands("oxctl", &command) {
        let help = command.bin_name(&name).disable_help_flag(true);
        let help = help.term_width(90).clone().render_long_help().to_string();
        page.push_str(&format!(
            ".SS {}.nf\n{}.fi\n",
            literal(&name),
            literal(&help)
        ));
    }
    page.push_str(".SH SEE ALSO\n.BR oxlet (8)\n");
    page
}

#[test]
fn the_manual_has_each_command() {
    let page = page();
    let commands = commands("oxctl", &OxctlArguments::command());
    assert!(commands.len() > 10);
    for (name, command) in commands {
        assert!(
            page.contains(&format!(".SS \\&{}", literal(&name)[2..].trim())),
            "{name}"
        );
        for long in command.get_arguments().filter_map(clap::Arg::get_long) {
            let flag = literal(&format!("--{long}"));
            assert!(page.contains(flag[2..].trim()), "{name} {long}");
        }
    }
    assert!(!page.contains("oxctl fault"));
    assert_generated("config/manual/oxctl.8", &page);
}

#[test]
fn the_completions_have_each_command() {
    for (shell, file) in [
        (Shell::Bash, "oxctl.bash"),
        (Shell::Zsh, "_oxctl"),
        (Shell::Fish, "oxctl.fish"),
    ] {
        let mut bytes = Vec::new();
        generate(shell, &mut OxctlArguments::command(), "oxctl", &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        for (name, _) in commands("oxctl", &OxctlArguments::command()) {
            let word = name.rsplit(' ').next().unwrap();
            assert!(text.contains(word), "{name} in {file}");
        }
        assert_generated(&format!("config/manual/{file}"), &text);
    }
}
