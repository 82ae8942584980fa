//! The console drawn.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line as TextLine;
use ratatui::widgets::{List, ListItem, ListState, Paragraph, Tabs};
use strum::IntoEnumIterator;

use super::Console;
use super::place::{Place, Tab};

const KEYS: &str =
    "q quit   1-7 ← → view   ↑ ↓ row   Enter open: pod, then log   Esc back   r look now";

/// Draws all of the console.
pub(super) fn draw(frame: &mut Frame<'_>, console: &mut Console) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [tabs, title, head, body, keys] = Layout::vertical(rows).areas(frame.area());
    let names = Tab::iter().map(|tab| format!("{} {}", tab.number(), <&str>::from(tab)));
    let selected = usize::try_from(console.tab().number()).unwrap_or(1) - 1;
    let marked = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(
        Tabs::new(names).select(selected).highlight_style(marked),
        tabs,
    );
    frame.render_widget(title_line(console), title);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head_line = Paragraph::new(console.content.head.as_str()).style(bold);
    frame.render_widget(head_line, head);
    let lines = console.content.lines.iter();
    let items: Vec<ListItem<'_>> = lines
        .map(|line| ListItem::new(line.text.as_str()).style(style(&line.text)))
        .collect();
    let mut state = ListState::default().with_selected(Some(console.selected));
    let list = List::new(items).highlight_style(marked);
    frame.render_stateful_widget(list, body, &mut state);
    let faint = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new(KEYS).style(faint), keys);
}

fn title_line(console: &Console) -> Paragraph<'_> {
    let red = Style::new().fg(Color::Red);
    match (&console.trouble, console.place()) {
        (Some(trouble), _) => Paragraph::new(trouble.as_str()).style(red),
        (None, Place::Tab(_)) => Paragraph::default(),
        (None, place) => Paragraph::new(TextLine::from(place.title())),
    }
}

/// What needs somebody is red.
fn style(line: &str) -> Style {
    const BAD: [&str; 8] = [
        "Warning",
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "degraded",
        "backingoff",
        "Stuck",
        "under pressure:",
    ];
    match BAD.iter().any(|word| line.contains(word)) {
        true => Style::new().fg(Color::Red),
        false => Style::new(),
    }
}
