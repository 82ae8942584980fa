//! `oxctl console`: the node in a terminal, live.
//!
//! What is shown is asked for again every two seconds, and nothing else; keys are answered meanwhile.

mod content;
mod place;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use tokio::time::Instant;

use self::content::Content;
use self::place::{Place, Tab};
use crate::agent::{AgentClient, AgentError};

/// Between two looks at the node.
const PERIOD: Duration = Duration::from_secs(2);
/// Between two looks at its pressure: the agent measures every pod for them.
const PRESSURE_PERIOD: Duration = Duration::from_secs(10);
/// For one look: what takes longer is told, and tried again.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows that a page key moves by.
const PAGE: usize = 10;

/// Shows the node until the operator has seen enough.
///
/// # Errors
/// This is no terminal, or it cannot be drawn to. An agent that does not answer is shown, and asked again.
pub(crate) async fn run(agent: &AgentClient) -> Result<(), AgentError> {
    if !io::stdout().is_terminal() {
        let why = "the console needs a terminal; `oxctl pods`, `oxctl tree` and the like print";
        return Err(AgentError::Output(io::Error::other(why)));
    }
    let mut terminal = ratatui::try_init().map_err(AgentError::Output)?;
    let shown = show(agent, &mut terminal).await;
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(AgentError::Output)
}

async fn show(agent: &AgentClient, terminal: &mut ratatui::DefaultTerminal) -> io::Result<()> {
    let mut console = Console::default();
    let mut keys = EventStream::new();
    loop {
        let mut look = pin!(look(agent, console.place().clone()));
        let mut is_looking = true;
        let next = Instant::now() + period(console.place());
        loop {
            terminal.draw(|frame| screen::draw(frame, &mut console))?;
            let key = tokio::select! {
                seen = &mut look, if is_looking => {
                    is_looking = false;
                    console.see(seen);
                    continue;
                }
                () = tokio::time::sleep_until(next), if !is_looking => break,
                key = keys.next() => key,
            };
            let Some(key) = key else { return Ok(()) };
            match console.handle(&key?) {
                Step::Stay => {}
                Step::Look => break,
                Step::Leave => return Ok(()),
            }
        }
    }
}

fn period(place: &Place) -> Duration {
    match place {
        Place::Tab(Tab::Pressure) => PRESSURE_PERIOD,
        Place::Tab(_) | Place::Pod { .. } | Place::Log { .. } => PERIOD,
    }
}

async fn look(agent: &AgentClient, place: Place) -> Result<Content, AgentError> {
    content::of(agent, LOOK_TIMEOUT, &place).await
}

/// What comes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Stay,
    /// Another place is to be seen.
    Look,
    Leave,
}

/// Where the operator is, and what was seen there.
#[derive(Debug)]
struct Console {
    /// From the tab to what is shown; never empty.
    way: Vec<Place>,
    content: Content,
    /// Why nothing newer was seen.
    trouble: Option<String>,
    selected: usize,
}

impl Default for Console {
    fn default() -> Self {
        Console {
            way: vec![Place::Tab(Tab::Pods)],
            content: Content::default(),
            trouble: None,
            selected: 0,
        }
    }
}

impl Console {
    fn place(&self) -> &Place {
        self.way.last().unwrap_or(&Place::Tab(Tab::Pods))
    }

    fn tab(&self) -> Tab {
        match self.way.first() {
            Some(Place::Tab(tab)) => *tab,
            Some(Place::Pod { .. } | Place::Log { .. }) | None => Tab::Pods,
        }
    }

    fn see(&mut self, seen: Result<Content, AgentError>) {
        match seen {
            Ok(content) => {
                // Whoever reads the end of a log goes on reading it.
                let follows =
                    self.content.is_log() && self.selected + 1 >= self.content.lines.len();
                let is_first = self.content.place.as_ref() != content.place.as_ref();
                self.content = content;
                self.trouble = None;
                if self.content.is_log() && (follows || is_first) {
                    self.selected = usize::MAX;
                }
                self.select(self.selected);
            }
            Err(trouble) => self.trouble = Some(trouble.to_string()),
        }
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.content.lines.len().saturating_sub(1));
    }

    fn go(&mut self, way: Vec<Place>) -> Step {
        self.way = way;
        self.content = Content::default();
        self.selected = 0;
        Step::Look
    }

    fn handle(&mut self, event: &Event) -> Step {
        let Event::Key(key) = event else {
            // The next drawing has the new size.
            return Step::Stay;
        };
        match key.kind {
            KeyEventKind::Press | KeyEventKind::Repeat => self.press(key),
            KeyEventKind::Release => Step::Stay,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "any other key does nothing")]
    fn press(&mut self, key: &KeyEvent) -> Step {
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
        let row = self.selected;
        match key.code {
            KeyCode::Char('c') if is_interrupt => return Step::Leave,
            KeyCode::Char('q') => return Step::Leave,
            KeyCode::Char('r') => return Step::Look,
            KeyCode::Char(digit @ '1'..='9') => return self.nth_tab(digit),
            KeyCode::Right | KeyCode::Tab | KeyCode::Char('l') => {
                return self.go(vec![Place::Tab(self.tab().next())]);
            }
            KeyCode::Left | KeyCode::BackTab | KeyCode::Char('h') => {
                return self.go(vec![Place::Tab(self.tab().previous())]);
            }
            KeyCode::Enter => return self.open(),
            KeyCode::Esc | KeyCode::Backspace => return self.back(),
            KeyCode::Down | KeyCode::Char('j') => self.select(row.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.select(row.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.select(row.saturating_add(PAGE)),
            KeyCode::PageUp => self.select(row.saturating_sub(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            _ => {}
        }
        Step::Stay
    }

    fn nth_tab(&mut self, digit: char) -> Step {
        let number = digit.to_digit(10).unwrap_or_default();
        match Tab::numbered(number) {
            Some(tab) => self.go(vec![Place::Tab(tab)]),
            None => Step::Stay,
        }
    }

    /// Goes where the selected row leads.
    fn open(&mut self) -> Step {
        let line = self.content.lines.get(self.selected);
        match line.and_then(|line| line.leads_to.clone()) {
            Some(place) => {
                let way = self.way.iter().cloned().chain([place]).collect();
                self.go(way)
            }
            None => Step::Stay,
        }
    }

    fn back(&mut self) -> Step {
        match self.way.len() {
            0 | 1 => Step::Stay,
            length => {
                let way = self.way[..length - 1].to_vec();
                self.go(way)
            }
        }
    }
}
