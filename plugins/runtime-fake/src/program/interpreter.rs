//! Carries a program out: where it stands, and until when it waits. Everything it needs to go on
//! after a crash is in [`Interpreter`], which is what the journal keeps.

use std::collections::BTreeMap;

use cri_server::OutputStream;
use serde::{Deserialize, Serialize};

use crate::program::environment::ProgramEnvironment;
use crate::program::{Program, ProgramBehavior, ProgramStep, Reaction, Sink, signal};

/// A running program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interpreter {
    place: u32,
    status: i32,
    /// When the step at `place` is due.
    due: i64,
    /// Lines written of a [`ProgramStep::Lines`].
    lines: u32,
    traps: BTreeMap<u8, Reaction>,
    /// When it ends of a signal, and with which code.
    ending: Option<(i64, i32)>,
}

/// How far a program has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramProgress {
    /// Goes on at this time.
    Waits(i64),
    /// Runs until it is stopped.
    Forever,
    Ended(ProgramExit),
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramExit {
    pub(crate) at: i64,
    pub(crate) code: i32,
    /// Whether it ended by itself rather than of a signal.
    pub(crate) own: bool,
}

/// Steps of a program in one slice; then other programs run.
const STEPS_AT_ONCE: usize = 10_000;

impl Interpreter {
    pub(crate) fn new(start: i64) -> Interpreter {
        Interpreter {
            place: 0,
            status: 0,
            due: start,
            lines: 0,
            traps: BTreeMap::new(),
            ending: None,
        }
    }

    /// Carries out what is due by `now`. A step takes place at its own time, not at `now`.
    pub(crate) fn advance(
        &mut self,
        program: &Program,
        now: i64,
        environment: &mut ProgramEnvironment<'_>,
    ) -> ProgramProgress {
        for _ in 0..STEPS_AT_ONCE {
            if let Some((at, code)) = self.ending
                && (at <= self.due || self.steps_never(program))
            {
                return if at <= now {
                    ProgramProgress::Ended(ProgramExit {
                        at,
                        code,
                        own: false,
                    })
                } else {
                    ProgramProgress::Waits(at)
                };
            }
            let Some(step) = program.steps.get(self.place as usize) else {
                return self.end(program, None);
            };
            if self.due > now {
                return ProgramProgress::Waits(self.due);
            }
            if *step == ProgramStep::Forever {
                return ProgramProgress::Forever;
            }
            if let ProgramStep::Exit(code) = step {
                return self.end(program, *code);
            }
            self.carry_out(step, program.behavior.as_deref(), environment);
        }
        ProgramProgress::Waits(now)
    }

    fn steps_never(&self, program: &Program) -> bool {
        matches!(
            program.steps.get(self.place as usize),
            Some(ProgramStep::Forever)
        )
    }

    fn end(&self, program: &Program, code: Option<i32>) -> ProgramProgress {
        let ruled = program
            .behavior
            .as_ref()
            .and_then(|behavior| behavior.exit_code);
        let code = ruled.or(code).unwrap_or(self.status);
        ProgramProgress::Ended(ProgramExit {
            at: self.due,
            code: code & 0xff,
            own: true,
        })
    }

    fn carry_out(
        &mut self,
        step: &ProgramStep,
        behavior: Option<&ProgramBehavior>,
        environment: &mut ProgramEnvironment<'_>,
    ) {
        let next = self.place + 1;
        self.place = next;
        let at = self.due;
        if step.shows() {
            environment.changed = true;
        }
        match step {
            ProgramStep::Echo { text, to } => self.status = environment.print(at, text, to),
            ProgramStep::Lines { total, every } => self.line(*total, *every, environment),
            ProgramStep::Sleep(time) => {
                self.due = self.due.saturating_add(*time);
                self.status = 0;
            }
            ProgramStep::Status(status) => self.status = *status,
            ProgramStep::Jump(to) => self.place = *to,
            ProgramStep::JumpIf { success, to } => {
                if (self.status == 0) == *success {
                    self.place = *to;
                }
            }
            ProgramStep::Trap { signals, reaction } => self
                .traps
                .extend(signals.iter().map(|signal| (*signal, *reaction))),
            ProgramStep::Kill(number) if environment.inside => {
                self.receive(*number, at, behavior);
                self.status = 0;
            }
            ProgramStep::Kill(number) => {
                environment.signals.push(*number);
                self.status = 0;
            }
            ProgramStep::Cat { path, to } => {
                self.status = match environment.read(path) {
                    Some(text) => {
                        environment.print(at, text.strip_suffix('\n').unwrap_or(&text), to)
                    }
                    None => environment.complain(
                        at,
                        &format!("cat: can't open '{path}': No such file or directory"),
                    ),
                }
            }
            ProgramStep::Touch(path) => self.status = i32::from(!environment.put(path, "", true)),
            ProgramStep::Remove { path, force } => {
                self.status = i32::from(!environment.remove(path) && !force)
            }
            ProgramStep::Exists(path) => self.status = i32::from(environment.read(path).is_none()),
            ProgramStep::Forever | ProgramStep::Exit(_) => self.place = next - 1,
        }
    }

    fn line(&mut self, total: u32, every: i64, environment: &mut ProgramEnvironment<'_>) {
        if self.lines < total {
            self.lines += 1;
            self.status =
                environment.print(self.due, &format!("line {}", self.lines), &Sink::Stdout);
            if self.lines < total {
                self.place -= 1;
                self.due = self.due.saturating_add(every);
            }
        }
    }

    /// Takes a signal; returns whether anything came of it.
    pub(crate) fn receive(
        &mut self,
        number: u8,
        now: i64,
        behavior: Option<&ProgramBehavior>,
    ) -> bool {
        if number == signal::KILL {
            self.ending = Some((now, 128 + i32::from(number)));
            self.due = self.due.max(now);
            return true;
        }
        let ignored = behavior.is_some_and(|behavior| behavior.ignore_term);
        match self
            .traps
            .get(&number)
            .copied()
            .unwrap_or(Reaction::Default)
        {
            Reaction::Ignore => false,
            Reaction::Default if ignored || !signal::deadly(number) || self.ending.is_some() => {
                false
            }
            Reaction::Default => {
                let delay = behavior.map_or(0, |behavior| behavior.stop_delay);
                let code = behavior.and_then(|behavior| behavior.term_exit_code);
                self.ending = Some((
                    now.saturating_add(delay),
                    code.unwrap_or(128 + i32::from(number)),
                ));
                self.due = self.due.max(now);
                true
            }
            Reaction::Run(place) => {
                self.place = place;
                self.due = now;
                // The handler is not interrupted by its own signal.
                self.traps.insert(number, Reaction::Ignore);
                true
            }
        }
    }
}

impl ProgramEnvironment<'_> {
    /// Writes text where it belongs; returns the status of having done so.
    fn print(&mut self, at: i64, text: &str, to: &Sink) -> i32 {
        match to {
            Sink::Stdout => self.write(at, OutputStream::Stdout, text),
            Sink::Stderr => self.write(at, OutputStream::Stderr, text),
            Sink::Nowhere => {}
            Sink::File { path, append } => {
                return i32::from(!self.put(path, &format!("{text}\n"), *append));
            }
        }
        0
    }

    fn complain(&mut self, at: i64, text: &str) -> i32 {
        self.write(at, OutputStream::Stderr, text);
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::compile::{self, ProgramRole};
    use crate::program::environment::ContainerFiles;

    const SECOND: i64 = 1_000_000_000;

    struct ProgramRun {
        program: Program,
        machine: Interpreter,
        files: ContainerFiles,
        said: Vec<(i64, String)>,
    }

    fn run(script: &str) -> ProgramRun {
        let argv = ["sh", "-c", script].map(String::from);
        let program = compile::program(&argv, ProgramRole::Main, &|_| String::new());
        ProgramRun {
            program,
            machine: Interpreter::new(0),
            files: ContainerFiles::new(),
            said: Vec::new(),
        }
    }

    impl ProgramRun {
        fn until(&mut self, now: i64) -> ProgramProgress {
            let said = &mut self.said;
            let mut write = |at: i64, _: OutputStream, text: &str| said.push((at, text.to_owned()));
            let mut environment = ProgramEnvironment::inside(&mut self.files, &[], &mut write);
            self.machine.advance(&self.program, now, &mut environment)
        }

        fn ended(at: i64, code: i32, own: bool) -> ProgramProgress {
            ProgramProgress::Ended(ProgramExit { at, code, own })
        }
    }

    #[test]
    fn each_step_happens_at_its_own_time_however_late_it_is_noticed() {
        let mut run = run("echo a; sleep 2; echo b; sleep 0.5; exit 3");
        assert_eq!(run.until(0), ProgramProgress::Waits(2 * SECOND));
        assert_eq!(
            run.until(99 * SECOND),
            ProgramRun::ended(5 * SECOND / 2, 3, true)
        );
        assert_eq!(run.said, [(0, "a".into()), (2 * SECOND, "b".into())]);
    }

    #[test]
    fn the_status_of_the_last_command_is_the_exit_code() {
        for (script, code) in [
            ("true; false", 1),
            ("false || true", 0),
            ("true && false || exit 7", 7),
            ("false && exit 2", 1),
            ("echo x > /f; cat /f && rm /f; test -f /f", 1),
            ("exit 256", 0),
        ] {
            assert_eq!(
                run(script).until(0),
                ProgramRun::ended(0, code, true),
                "{script}"
            );
        }
    }

    #[test]
    fn a_sleep_dies_of_sigterm_at_once() {
        let mut run = run("sleep 9");
        run.until(0);
        assert!(run.machine.receive(signal::TERM, SECOND, None));
        assert_eq!(run.until(SECOND), ProgramRun::ended(SECOND, 143, false));
    }

    #[test]
    fn a_trap_holds_sigterm_but_not_sigkill() {
        let mut run = run("trap '' TERM; sleep 9");
        run.until(0);
        assert!(!run.machine.receive(signal::TERM, SECOND, None));
        assert_eq!(run.until(SECOND), ProgramProgress::Waits(9 * SECOND));
        assert!(run.machine.receive(signal::KILL, SECOND, None));
        assert_eq!(run.until(SECOND), ProgramRun::ended(SECOND, 137, false));
    }

    #[test]
    fn a_handler_ends_the_program_in_its_own_time() {
        let mut run = run("trap 'echo bye; sleep 2; exit 4' TERM; sleep 99");
        run.until(0);
        run.machine.receive(signal::TERM, SECOND, None);
        assert_eq!(run.until(SECOND), ProgramProgress::Waits(3 * SECOND));
        assert_eq!(
            run.until(3 * SECOND),
            ProgramRun::ended(3 * SECOND, 4, true)
        );
        assert_eq!(run.said, [(SECOND, "bye".into())]);
    }

    #[test]
    fn manners_rule_the_end() {
        let behavior = ProgramBehavior {
            stop_delay: 2 * SECOND,
            term_exit_code: Some(5),
            ..ProgramBehavior::default()
        };
        let mut run = run("server");
        assert_eq!(run.until(0), ProgramProgress::Forever);
        run.machine.receive(signal::TERM, SECOND, Some(&behavior));
        assert_eq!(run.until(SECOND), ProgramProgress::Waits(3 * SECOND));
        assert_eq!(
            run.until(4 * SECOND),
            ProgramRun::ended(3 * SECOND, 5, false)
        );
    }

    #[test]
    fn an_endless_loop_gives_others_a_turn() {
        let mut run = run("while true; do echo x; sleep 0.001; done");
        assert_eq!(
            run.until(1_000 * SECOND),
            ProgramProgress::Waits(1_000 * SECOND)
        );
        assert!(run.said.len() < STEPS_AT_ONCE);
    }

    #[test]
    fn numbered_lines_come_one_by_one() {
        let mut run = run("true");
        run.program.steps = [
            ProgramStep::Lines {
                total: 3,
                every: SECOND,
            },
            ProgramStep::Exit(None),
        ]
        .into();
        assert_eq!(run.until(0), ProgramProgress::Waits(SECOND));
        assert_eq!(
            run.until(9 * SECOND),
            ProgramRun::ended(2 * SECOND, 0, true)
        );
        assert_eq!(run.said.last(), Some(&(2 * SECOND, "line 3".into())));
    }
}
