//! Makes a program of a command line. The commands it knows are in the table of the crate's page;
//! every other one is a server that runs until it is stopped where it is the last thing the
//! container does, and a quick success anywhere else.

use crate::program::shell::{self, Redirect, ShellToken, UnsupportedSyntax};
use crate::program::{Program, ProgramStep, Reaction, Sink, signal};
use crate::settings::duration::{DurationSetting, nanos};

/// Whose command line it is: what an unknown last command means differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramRole {
    /// The container's own process.
    Main,
    /// A command run inside a container.
    Exec,
}

/// Commands that are over at once and have no effect that anyone could see here.
const QUICK: [&str; 22] = [
    ":", "true", "cd", "chmod", "chown", "cp", "date", "env", "export", "hostname", "id", "ln",
    "ls", "mkdir", "mv", "ps", "pwd", "set", "sync", "umask", "uname", "wait",
];

/// A longer command line is not looked into.
const LONGEST: usize = 256 << 10;

/// A loop that never waits would keep this process busy for nothing.
const SHORTEST_ROUND: i64 = 10_000_000;

/// Returns the program of a command line; `variable` gives the values of its environment.
pub(crate) fn program(
    argv: &[String],
    role: ProgramRole,
    variable: &dyn Fn(&str) -> String,
) -> Program {
    let argv = if argv.first().is_some_and(|name| base(name) == "busybox") {
        &argv[1..]
    } else {
        argv
    };
    let tokens = match script(argv) {
        _ if argv.iter().map(String::len).sum::<usize>() > LONGEST => Err(UnsupportedSyntax),
        Some(script) => shell::tokens(script, variable),
        None => Ok(argv.iter().cloned().map(ShellToken::Word).collect()),
    };
    let steps = tokens.and_then(|tokens| {
        let mut compiler = Compiler {
            tokens,
            at: 0,
            steps: Vec::new(),
            role,
            depth: 0,
        };
        compiler.list(&[])?;
        compiler.steps.push(ProgramStep::Exit(None));
        Ok(compiler.steps)
    });
    let steps = match (steps, role) {
        (Ok(steps), ProgramRole::Exec) => steps,
        (Ok(steps), ProgramRole::Main) if !argv.is_empty() => steps,
        (Err(UnsupportedSyntax), ProgramRole::Exec) => vec![ProgramStep::Exit(Some(0))],
        (Ok(_) | Err(UnsupportedSyntax), ProgramRole::Main) => vec![ProgramStep::Forever],
    };
    Program {
        steps: steps.into(),
        behavior: None,
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn script(argv: &[String]) -> Option<&str> {
    let shell = ["sh", "bash", "ash", "dash"].contains(&base(argv.first()?));
    let (flag, script) = (argv.get(1)?, argv.get(2)?);
    (shell && flag.starts_with('-') && flag.ends_with('c')).then_some(script)
}

struct Compiler {
    tokens: Vec<ShellToken>,
    at: usize,
    steps: Vec<ProgramStep>,
    role: ProgramRole,
    depth: u8,
}

impl Compiler {
    /// Compiles commands up to one of the words in `ends`, or to the end of the script.
    fn list(&mut self, ends: &[&str]) -> Result<(), UnsupportedSyntax> {
        loop {
            while self.tokens.get(self.at) == Some(&ShellToken::Then) {
                self.at += 1;
            }
            match self.tokens.get(self.at) {
                None if ends.is_empty() => return Ok(()),
                None => return Err(UnsupportedSyntax),
                Some(ShellToken::Word(word)) if ends.contains(&word.as_str()) => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => self.chain()?,
            }
        }
    }

    /// Compiles commands joined by `&&` and `||`, which bind alike and from the left.
    fn chain(&mut self) -> Result<(), UnsupportedSyntax> {
        self.command()?;
        loop {
            let success = match self.tokens.get(self.at) {
                Some(ShellToken::And) => false,
                Some(ShellToken::Or) => true,
                Some(ShellToken::Then | ShellToken::Word(_) | ShellToken::Redirect { .. })
                | None => return Ok(()),
            };
            self.at += 1;
            let hole = self.steps.len();
            self.steps.push(ProgramStep::JumpIf { success, to: 0 });
            self.command()?;
            self.steps[hole] = ProgramStep::JumpIf {
                success,
                to: self.here(),
            };
        }
    }

    fn here(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    fn command(&mut self) -> Result<(), UnsupportedSyntax> {
        if self.tokens.get(self.at) == Some(&ShellToken::Word("while".into())) {
            return self.forever();
        }
        let mut words = Vec::new();
        let mut out = Sink::Stdout;
        loop {
            match self.tokens.get(self.at) {
                Some(ShellToken::Word(word)) => words.push(word.clone()),
                Some(ShellToken::Redirect { from, how }) => {
                    let (from, how) = (*from, *how);
                    let sink = self.sink(how)?;
                    if from == 1 {
                        out = sink;
                    }
                }
                Some(ShellToken::Then | ShellToken::And | ShellToken::Or) | None => break,
            }
            self.at += 1;
        }
        let last = self.depth == 0
            && self.tokens[self.at..]
                .iter()
                .all(|token| *token == ShellToken::Then);
        self.simple(&words, out, last)
    }

    fn sink(&mut self, how: Redirect) -> Result<Sink, UnsupportedSyntax> {
        let append = match how {
            Redirect::To(2) => return Ok(Sink::Stderr),
            Redirect::To(_) => return Ok(Sink::Stdout),
            Redirect::Append => true,
            Redirect::Write => false,
        };
        self.at += 1;
        match self.tokens.get(self.at) {
            Some(ShellToken::Word(path)) => Ok(match path.as_str() {
                "/dev/null" => Sink::Nowhere,
                "/dev/stdout" | "/proc/1/fd/1" => Sink::Stdout,
                "/dev/stderr" | "/proc/1/fd/2" => Sink::Stderr,
                path => Sink::File {
                    path: path.into(),
                    append,
                },
            }),
            Some(
                ShellToken::Then | ShellToken::And | ShellToken::Or | ShellToken::Redirect { .. },
            )
            | None => Err(UnsupportedSyntax),
        }
    }

    /// Compiles `while true; do …; done`, the only loop there is.
    fn forever(&mut self) -> Result<(), UnsupportedSyntax> {
        let words: Vec<_> = self.tokens[self.at..].iter().take(4).cloned().collect();
        let word = |text: &str| ShellToken::Word(text.into());
        let known = [word("true"), word(":")].contains(words.get(1).ok_or(UnsupportedSyntax)?)
            && words.get(2) == Some(&ShellToken::Then)
            && words.get(3) == Some(&word("do"));
        if !known || self.depth > 16 {
            return Err(UnsupportedSyntax);
        }
        self.at += 4;
        let start = self.here();
        self.depth += 1;
        self.list(&["done"])?;
        self.depth -= 1;
        let body = &self.steps[start as usize..];
        if !body.iter().any(ProgramStep::shows) {
            self.steps.truncate(start as usize);
            self.steps.push(ProgramStep::Forever);
            return Ok(());
        }
        if !body.iter().any(ProgramStep::takes_time) {
            self.steps.push(ProgramStep::Sleep(SHORTEST_ROUND));
        }
        self.steps.push(ProgramStep::Jump(start));
        Ok(())
    }

    fn simple(&mut self, words: &[String], out: Sink, last: bool) -> Result<(), UnsupportedSyntax> {
        let replaced = words.iter().take_while(|word| *word == "exec").count();
        let Some((name, args)) = words[replaced..].split_first() else {
            return Err(UnsupportedSyntax);
        };
        if replaced > 0 {
            self.simple(&words[replaced..], out, true)?;
            self.steps.push(ProgramStep::Exit(None));
            return Ok(());
        }
        let step = match base(name) {
            "if" | "for" | "until" | "case" | "{" | "do" | "done" | "then" | "fi" | "!"
            | "function" => return Err(UnsupportedSyntax),
            "echo" => echo(args, out),
            "sleep" => sleep(args)?,
            "exit" => ProgramStep::Exit(
                args.first()
                    .map(|code| code.parse())
                    .transpose()
                    .map_err(|_| UnsupportedSyntax)?,
            ),
            "false" => ProgramStep::Status(1),
            "trap" => return self.trap(args),
            "kill" => kill(args),
            "cat" if !args.is_empty() => {
                return self.each(args, |path| ProgramStep::Cat {
                    path,
                    to: out.clone(),
                });
            }
            "touch" => return self.each(args, ProgramStep::Touch),
            "rm" => {
                let force = args
                    .iter()
                    .any(|arg| arg.starts_with('-') && arg.contains('f'));
                return self.each(args, |path| ProgramStep::Remove { path, force });
            }
            "test" | "[" => match args {
                [flag, path, ..] if ["-e", "-f", "-d", "-s", "-r"].contains(&flag.as_str()) => {
                    ProgramStep::Exists(path.as_str().into())
                }
                _ => ProgramStep::Status(0),
            },
            "cat" | "tail" | "pause" if self.role == ProgramRole::Main => ProgramStep::Forever,
            quick if QUICK.contains(&quick) || !last || self.role == ProgramRole::Exec => {
                ProgramStep::Status(0)
            }
            _ => ProgramStep::Forever,
        };
        self.steps.push(step);
        Ok(())
    }

    fn each(
        &mut self,
        args: &[String],
        step: impl Fn(Box<str>) -> ProgramStep,
    ) -> Result<(), UnsupportedSyntax> {
        let paths = args.iter().filter(|arg| !arg.starts_with('-'));
        self.steps
            .extend(paths.map(|path| step(path.as_str().into())));
        Ok(())
    }

    /// Compiles a trap; its handler stands where the trap is set, jumped over until a signal comes.
    fn trap(&mut self, args: &[String]) -> Result<(), UnsupportedSyntax> {
        let Some((handler, names)) = args.split_first() else {
            return Err(UnsupportedSyntax);
        };
        let signals = names
            .iter()
            .filter_map(|name| signal::number(name))
            .filter(|n| *n != signal::KILL)
            .collect();
        let reaction = match handler.as_str() {
            "" => Reaction::Ignore,
            "-" => Reaction::Default,
            script => {
                let tokens = shell::tokens(script, &|_| String::new())?;
                let mut inner = Compiler {
                    tokens,
                    at: 0,
                    steps: Vec::new(),
                    role: ProgramRole::Exec,
                    depth: 1,
                };
                inner.list(&[])?;
                inner.steps.push(ProgramStep::Exit(None));
                let start = self.here() + 1;
                let over = start + inner.here();
                self.steps.push(ProgramStep::Jump(over));
                self.steps
                    .extend(inner.steps.into_iter().map(|step| moved(step, start)));
                Reaction::Run(start)
            }
        };
        self.steps.push(ProgramStep::Trap { signals, reaction });
        Ok(())
    }
}

/// Returns a step as it stands `by` places further on.
pub(crate) fn moved(mut step: ProgramStep, by: u32) -> ProgramStep {
    if let ProgramStep::Jump(to)
    | ProgramStep::JumpIf { to, .. }
    | ProgramStep::Trap {
        reaction: Reaction::Run(to),
        ..
    } = &mut step
    {
        *to += by;
    }
    step
}

fn echo(args: &[String], to: Sink) -> ProgramStep {
    let flags = args
        .iter()
        .take_while(|arg| ["-n", "-e", "-ne", "-en"].contains(&arg.as_str()))
        .count();
    let mut text = args[flags..].join(" ");
    if args[..flags].iter().any(|flag| flag.contains('e')) {
        text = text.replace("\\n", "\n").replace("\\t", "\t");
    }
    ProgramStep::Echo {
        text: text.into(),
        to,
    }
}

fn sleep(args: &[String]) -> Result<ProgramStep, UnsupportedSyntax> {
    let mut total = 0i64;
    for arg in args {
        if arg == "infinity" || arg == "inf" {
            return Ok(ProgramStep::Forever);
        }
        let bare = arg.ends_with(|c: char| c.is_ascii_digit() || c == '.');
        let text = match arg.strip_suffix('d').map(str::parse::<u32>) {
            Some(Ok(days)) => format!("{}h", u64::from(days) * 24),
            _ if bare => format!("{arg}s"),
            _ => arg.clone(),
        };
        let part = text
            .parse::<DurationSetting>()
            .map_err(|_| UnsupportedSyntax)?;
        total = total.saturating_add(nanos(part.0));
    }
    Ok(ProgramStep::Sleep(total))
}

fn kill(args: &[String]) -> ProgramStep {
    let mut number = Some(signal::TERM);
    let mut args = args.iter();
    let mut target = None;
    while let Some(arg) = args.next() {
        match arg.strip_prefix('-') {
            Some("s" | "n") => number = args.next().and_then(|name| signal::number(name)),
            Some("-") => {}
            Some(name) => number = signal::number(name),
            None => target = Some(arg.as_str()),
        }
    }
    match (number, target) {
        (Some(number), Some("1")) => ProgramStep::Kill(number),
        _ => ProgramStep::Status(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(argv: &[&str], role: ProgramRole) -> Vec<ProgramStep> {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        program(&argv, role, &|name| name.to_lowercase())
            .steps
            .into_vec()
    }

    fn script(text: &str) -> Vec<ProgramStep> {
        steps(&["/bin/sh", "-c", text], ProgramRole::Main)
    }

    #[test]
    fn plain_commands_are_what_they_say() {
        assert_eq!(
            steps(&["sleep", "1.5"], ProgramRole::Main),
            [ProgramStep::Sleep(1_500_000_000), ProgramStep::Exit(None)]
        );
        assert_eq!(
            steps(&["/bin/busybox", "sleep", "2m"], ProgramRole::Main)[0],
            ProgramStep::Sleep(120_000_000_000)
        );
        assert_eq!(
            steps(&["exit", "3"], ProgramRole::Main)[0],
            ProgramStep::Exit(Some(3))
        );
        assert_eq!(
            steps(&["false"], ProgramRole::Main)[0],
            ProgramStep::Status(1)
        );
        assert_eq!(steps(&[], ProgramRole::Main), [ProgramStep::Forever]);
        assert_eq!(
            steps(&["/pause"], ProgramRole::Main)[0],
            ProgramStep::Forever
        );
        assert_eq!(
            steps(&["kill", "-9", "1"], ProgramRole::Exec)[0],
            ProgramStep::Kill(9)
        );
        assert_eq!(
            steps(&["redis-cli", "ping"], ProgramRole::Exec)[0],
            ProgramStep::Status(0)
        );
    }

    #[test]
    fn a_script_is_a_sequence() {
        let echo = |text: &str| ProgramStep::Echo {
            text: text.into(),
            to: Sink::Stdout,
        };
        assert_eq!(
            script("echo x $HOME; sleep 1; exit 3"),
            [
                echo("x home"),
                ProgramStep::Sleep(1_000_000_000),
                ProgramStep::Exit(Some(3)),
                ProgramStep::Exit(None)
            ]
        );
        assert_eq!(script("mkdir /x && server")[2], ProgramStep::Forever);
        assert_eq!(
            script("false || exit 2")[1],
            ProgramStep::JumpIf {
                success: true,
                to: 3
            }
        );
    }

    #[test]
    fn a_loop_that_does_nothing_costs_nothing() {
        assert_eq!(
            script("while true; do sleep 1; done")[0],
            ProgramStep::Forever
        );
        assert_eq!(
            script("while true; do echo x; done")[1],
            ProgramStep::Sleep(SHORTEST_ROUND)
        );
        assert_eq!(
            script("while :\ndo echo x; sleep 5; done")[2],
            ProgramStep::Jump(0)
        );
    }

    #[test]
    fn a_trap_is_kept_with_its_handler() {
        assert_eq!(
            script("trap '' TERM; sleep 9")[0],
            ProgramStep::Trap {
                signals: [15].into(),
                reaction: Reaction::Ignore
            }
        );
        let steps = script("trap 'echo bye; exit 4' TERM INT; sleep 9");
        assert_eq!(steps[0], ProgramStep::Jump(4));
        assert_eq!(
            steps[4],
            ProgramStep::Trap {
                signals: [15, 2].into(),
                reaction: Reaction::Run(1)
            }
        );
    }

    proptest::proptest! {
        #[test]
        fn no_script_makes_it_panic_or_run_for_ever(
            script in r#"(echo|sleep|exit|trap|kill|cat|rm|test|exec|while|true|do|done|;|&&|\|\||>|>>|&|'|"|\$|X|/f| |-9|1|TERM|\n){0,40}"#
        ) {
            use crate::program::interpreter::Interpreter;
            use crate::program::environment::{ContainerFiles, ProgramEnvironment};
            let argv = ["sh".to_owned(), "-c".to_owned(), script];
            for role in [ProgramRole::Main, ProgramRole::Exec] {
                let program = program(&argv, role, &|_| String::new());
                let (mut files, mut out) = (ContainerFiles::new(), |_: i64, _: cri_server::OutputStream, _: &str| {});
                let mut environment = ProgramEnvironment::inside(&mut files, &[], &mut out);
                Interpreter::new(0).advance(&program, 1_000_000_000, &mut environment);
            }
        }
    }

    #[test]
    fn what_is_beyond_it_is_a_server_or_a_success() {
        for text in [
            "if true; then exit 1; fi",
            "a | b",
            "echo 'x",
            "while read x; do :; done",
            "while",
            "&& x",
            "echo >",
        ] {
            assert_eq!(script(text), [ProgramStep::Forever], "{text}");
            assert_eq!(
                steps(&["sh", "-c", text], ProgramRole::Exec),
                [ProgramStep::Exit(Some(0))],
                "{text}"
            );
        }
    }
}
