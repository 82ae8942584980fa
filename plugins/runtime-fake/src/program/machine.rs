//! Carries a program out: where it stands, and until when it waits. Everything it needs to go on
//! after a crash is in [`Machine`], which is what the journal keeps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::program::world::{Stream, World};
use crate::program::{Manners, Program, Reaction, Sink, Step, signal};

/// A running program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    place: u32,
    status: i32,
    /// When the step at `place` is due.
    due: i64,
    /// Lines written of a [`Step::Lines`].
    lines: u32,
    traps: BTreeMap<u8, Reaction>,
    /// When it ends of a signal, and with which code.
    ending: Option<(i64, i32)>,
}

/// How far a program has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Goes on at this time.
    Waits(i64),
    /// Runs until it is stopped.
    Forever,
    Ended(End),
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) at: i64,
    pub(crate) code: i32,
    /// Whether it ended by itself rather than of a signal.
    pub(crate) own: bool,
}

/// So much is done at once; then others have a turn.
const STEPS_AT_ONCE: usize = 10_000;

impl Machine {
    pub(crate) fn new(start: i64) -> Machine {
        Machine {
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
        world: &mut World<'_>,
    ) -> Progress {
        for _ in 0..STEPS_AT_ONCE {
            if let Some((at, code)) = self.ending
                && (at <= self.due || self.steps_never(program))
            {
                return if at <= now {
                    Progress::Ended(End {
                        at,
                        code,
                        own: false,
                    })
                } else {
                    Progress::Waits(at)
                };
            }
            let Some(step) = program.steps.get(self.place as usize) else {
                return self.end(program, None);
            };
            if self.due > now {
                return Progress::Waits(self.due);
            }
            if *step == Step::Forever {
                return Progress::Forever;
            }
            if let Step::Exit(code) = step {
                return self.end(program, *code);
            }
            self.carry_out(step, program.manners.as_deref(), world);
        }
        Progress::Waits(now)
    }

    fn steps_never(&self, program: &Program) -> bool {
        matches!(program.steps.get(self.place as usize), Some(Step::Forever))
    }

    fn end(&self, program: &Program, code: Option<i32>) -> Progress {
        let ruled = program
            .manners
            .as_ref()
            .and_then(|manners| manners.exit_code);
        let code = ruled.or(code).unwrap_or(self.status);
        Progress::Ended(End {
            at: self.due,
            code: code & 0xff,
            own: true,
        })
    }

    fn carry_out(&mut self, step: &Step, manners: Option<&Manners>, world: &mut World<'_>) {
        let next = self.place + 1;
        self.place = next;
        let at = self.due;
        if step.shows() {
            world.changed = true;
        }
        match step {
            Step::Echo { text, to } => self.status = world.print(at, text, to),
            Step::Lines { total, every } => self.line(*total, *every, world),
            Step::Sleep(time) => {
                self.due = self.due.saturating_add(*time);
                self.status = 0;
            }
            Step::Status(status) => self.status = *status,
            Step::Jump(to) => self.place = *to,
            Step::JumpIf { success, to } => {
                if (self.status == 0) == *success {
                    self.place = *to;
                }
            }
            Step::Trap { signals, reaction } => self
                .traps
                .extend(signals.iter().map(|signal| (*signal, *reaction))),
            Step::Kill(number) if world.inside => {
                self.receive(*number, at, manners);
                self.status = 0;
            }
            Step::Kill(number) => {
                world.signals.push(*number);
                self.status = 0;
            }
            Step::Cat { path, to } => {
                self.status = match world.read(path) {
                    Some(text) => world.print(at, text.strip_suffix('\n').unwrap_or(&text), to),
                    None => world.complain(
                        at,
                        &format!("cat: can't open '{path}': No such file or directory"),
                    ),
                }
            }
            Step::Touch(path) => self.status = i32::from(!world.put(path, "", true)),
            Step::Remove { path, force } => self.status = i32::from(!world.remove(path) && !force),
            Step::Exists(path) => self.status = i32::from(world.read(path).is_none()),
            Step::Forever | Step::Exit(_) => self.place = next - 1,
        }
    }

    fn line(&mut self, total: u32, every: i64, world: &mut World<'_>) {
        if self.lines < total {
            self.lines += 1;
            self.status = world.print(self.due, &format!("line {}", self.lines), &Sink::Stdout);
            if self.lines < total {
                self.place -= 1;
                self.due = self.due.saturating_add(every);
            }
        }
    }

    /// Takes a signal; returns whether anything came of it.
    pub(crate) fn receive(&mut self, number: u8, now: i64, manners: Option<&Manners>) -> bool {
        if number == signal::KILL {
            self.ending = Some((now, 128 + i32::from(number)));
            self.due = self.due.max(now);
            return true;
        }
        let ignored = manners.is_some_and(|manners| manners.ignore_term);
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
                let delay = manners.map_or(0, |manners| manners.stop_delay);
                let code = manners.and_then(|manners| manners.term_exit_code);
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

impl World<'_> {
    /// Writes text where it belongs; returns the status of having done so.
    fn print(&mut self, at: i64, text: &str, to: &Sink) -> i32 {
        match to {
            Sink::Stdout => self.write(at, Stream::Stdout, text),
            Sink::Stderr => self.write(at, Stream::Stderr, text),
            Sink::Nowhere => {}
            Sink::File { path, append } => {
                return i32::from(!self.put(path, &format!("{text}\n"), *append));
            }
        }
        0
    }

    fn complain(&mut self, at: i64, text: &str) -> i32 {
        self.write(at, Stream::Stderr, text);
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::compile::{self, Role};
    use crate::program::world::Files;

    const SECOND: i64 = 1_000_000_000;

    struct Run {
        program: Program,
        machine: Machine,
        files: Files,
        said: Vec<(i64, String)>,
    }

    fn run(script: &str) -> Run {
        let argv = ["sh", "-c", script].map(String::from);
        let program = compile::program(&argv, Role::Main, &|_| String::new());
        Run {
            program,
            machine: Machine::new(0),
            files: Files::new(),
            said: Vec::new(),
        }
    }

    impl Run {
        fn until(&mut self, now: i64) -> Progress {
            let said = &mut self.said;
            let mut write = |at: i64, _: Stream, text: &str| said.push((at, text.to_owned()));
            let mut world = World::inside(&mut self.files, &[], &mut write);
            self.machine.advance(&self.program, now, &mut world)
        }

        fn ended(at: i64, code: i32, own: bool) -> Progress {
            Progress::Ended(End { at, code, own })
        }
    }

    #[test]
    fn each_step_happens_at_its_own_time_however_late_it_is_noticed() {
        let mut run = run("echo a; sleep 2; echo b; sleep 0.5; exit 3");
        assert_eq!(run.until(0), Progress::Waits(2 * SECOND));
        assert_eq!(run.until(99 * SECOND), Run::ended(5 * SECOND / 2, 3, true));
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
            assert_eq!(run(script).until(0), Run::ended(0, code, true), "{script}");
        }
    }

    #[test]
    fn a_sleep_dies_of_sigterm_at_once() {
        let mut run = run("sleep 9");
        run.until(0);
        assert!(run.machine.receive(signal::TERM, SECOND, None));
        assert_eq!(run.until(SECOND), Run::ended(SECOND, 143, false));
    }

    #[test]
    fn a_trap_holds_sigterm_but_not_sigkill() {
        let mut run = run("trap '' TERM; sleep 9");
        run.until(0);
        assert!(!run.machine.receive(signal::TERM, SECOND, None));
        assert_eq!(run.until(SECOND), Progress::Waits(9 * SECOND));
        assert!(run.machine.receive(signal::KILL, SECOND, None));
        assert_eq!(run.until(SECOND), Run::ended(SECOND, 137, false));
    }

    #[test]
    fn a_handler_ends_the_program_in_its_own_time() {
        let mut run = run("trap 'echo bye; sleep 2; exit 4' TERM; sleep 99");
        run.until(0);
        run.machine.receive(signal::TERM, SECOND, None);
        assert_eq!(run.until(SECOND), Progress::Waits(3 * SECOND));
        assert_eq!(run.until(3 * SECOND), Run::ended(3 * SECOND, 4, true));
        assert_eq!(run.said, [(SECOND, "bye".into())]);
    }

    #[test]
    fn manners_rule_the_end() {
        let manners = Manners {
            stop_delay: 2 * SECOND,
            term_exit_code: Some(5),
            ..Manners::default()
        };
        let mut run = run("server");
        assert_eq!(run.until(0), Progress::Forever);
        run.machine.receive(signal::TERM, SECOND, Some(&manners));
        assert_eq!(run.until(SECOND), Progress::Waits(3 * SECOND));
        assert_eq!(run.until(4 * SECOND), Run::ended(3 * SECOND, 5, false));
    }

    #[test]
    fn an_endless_loop_gives_others_a_turn() {
        let mut run = run("while true; do echo x; sleep 0.001; done");
        assert_eq!(run.until(1_000 * SECOND), Progress::Waits(1_000 * SECOND));
        assert!(run.said.len() < STEPS_AT_ONCE);
    }

    #[test]
    fn numbered_lines_come_one_by_one() {
        let mut run = run("true");
        run.program.steps = [
            Step::Lines {
                total: 3,
                every: SECOND,
            },
            Step::Exit(None),
        ]
        .into();
        assert_eq!(run.until(0), Progress::Waits(SECOND));
        assert_eq!(run.until(9 * SECOND), Run::ended(2 * SECOND, 0, true));
        assert_eq!(run.said.last(), Some(&(2 * SECOND, "line 3".into())));
    }
}
