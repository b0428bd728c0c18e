//! `corehold top`: what the cluster does now.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use clap::{Args, ValueEnum};
use corehold::entry;
use corehold::observe::{Look, SortBy, Top as Frame};
use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};

use super::{Failure, out};

#[derive(Args)]
pub(super) struct Top {
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// Print one frame as text, and end
    #[arg(long)]
    once: bool,
    /// With --once: for programs
    #[arg(long, requires = "once")]
    json: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0)]
    every: f64,
    /// By what actors are sorted
    #[arg(long, value_enum, default_value = "busy")]
    sort: Sort,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// How busy they are
    Busy,
    /// Messages a second
    Asks,
    /// Messages that wait
    Mailbox,
    /// Restarts
    Restarts,
    /// Name
    Name,
}

const KEYS: &str = "sort: b busy, a asks, m mailbox, r restarts, n name   up/down scroll   q quit";

impl Top {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let every = Duration::try_from_secs_f64(self.every.max(0.1))?;
        if self.once {
            let mut before: Option<Look> = None;
            let mut frame = None;
            entry::watch(&self.cluster, every, |look| match &before {
                None => {
                    before = Some(look);
                    ControlFlow::Continue(())
                }
                Some(before) => {
                    frame = Some(Frame::between(before, &look));
                    ControlFlow::Break(())
                }
            })?;
            if let Some(mut frame) = frame {
                frame.sort(self.sort.into());
                if self.json {
                    out::line(serde_json::to_string(&frame)?)?;
                } else {
                    out::show(frame)?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        // The cluster is looked at by a thread of its own, so that a key is answered at once.
        let (send, looks) = sync_channel::<Look>(1);
        let looking = std::thread::spawn(move || {
            let looked = entry::watch(&self.cluster, every, |look| match send.send(look) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            });
            looked.map_err(|e| e.to_string())
        });
        let Ok(first) = looks.recv() else {
            return match looking.join() {
                Ok(Err(why)) => Err(why.into()),
                _ => Err("the cluster cannot be looked at".into()),
            };
        };
        let mut terminal = ratatui::try_init()?;
        let shown = show(&mut terminal, self.sort.into(), first, &looks);
        ratatui::restore();
        drop(looks);
        if shown? {
            // A look that is under way need not be waited for: the process ends.
            return Ok(ExitCode::SUCCESS);
        }
        match looking.join() {
            Ok(Err(why)) => Err(why.into()),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Draws until a key ends it (true) or there are no more looks.
fn show<B: Backend>(
    terminal: &mut Terminal<B>,
    mut sort: SortBy,
    first: Look,
    looks: &Receiver<Look>,
) -> Result<bool, Failure>
where
    B::Error: 'static,
{
    let mut before = first;
    let mut frame = Frame::between(&before, &before);
    let mut scroll = 0usize;
    loop {
        frame.sort(sort);
        terminal.draw(|f| draw(f, &frame, scroll))?;
        if event::poll(Duration::from_millis(100))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                KeyCode::Char('c') if interrupt => return Ok(true),
                KeyCode::Char('b') => sort = SortBy::Busy,
                KeyCode::Char('a') => sort = SortBy::Asks,
                KeyCode::Char('m') => sort = SortBy::Mailbox,
                KeyCode::Char('r') => sort = SortBy::Restarts,
                KeyCode::Char('n') => sort = SortBy::Name,
                KeyCode::Up => scroll = scroll.saturating_sub(1),
                KeyCode::Down => scroll = (scroll + 1).min(frame.actors.len().saturating_sub(1)),
                _ => {}
            }
        }
        match looks.try_recv() {
            Ok(look) => {
                frame = Frame::between(&before, &look);
                scroll = scroll.min(frame.actors.len().saturating_sub(1));
                before = look;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(false),
        }
    }
}

fn draw(f: &mut ratatui::Frame<'_>, frame: &Frame, scroll: usize) {
    let nodes = frame.nodes.len() as u16 + 2;
    let [title, above, below, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(nodes),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(f.area());
    f.render_widget(Line::from(frame.title()).style(Modifier::BOLD), title);
    let (head, rows) = frame.node_rows();
    f.render_widget(table(&head, rows, 0), above);
    let (head, rows) = frame.actor_rows();
    f.render_widget(table(&head, rows, scroll), below);
    f.render_widget(Line::from(KEYS).style(Modifier::DIM), keys);
}

fn table(head: &[&'static str], rows: Vec<Vec<String>>, scroll: usize) -> Table<'static> {
    let width = |i: usize| {
        let longest = rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
        Constraint::Length(longest.max(head[i].len()).min(40) as u16)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let heading = Row::new(head.to_vec()).style(Style::new().add_modifier(Modifier::REVERSED));
    let rows = rows.into_iter().skip(scroll).map(Row::new);
    Table::new(rows, widths).header(heading).column_spacing(2)
}

impl From<Sort> for SortBy {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Busy => SortBy::Busy,
            Sort::Asks => SortBy::Asks,
            Sort::Mailbox => SortBy::Mailbox,
            Sort::Restarts => SortBy::Restarts,
            Sort::Name => SortBy::Name,
        }
    }
}

#[cfg(test)]
mod tests {
    use corehold::observe::{TopActor, TopNode};
    use ratatui::backend::TestBackend;

    use super::*;

    fn actor(name: &str, waiting: u64, busy: f64) -> TopActor {
        TopActor {
            name: name.to_owned(),
            actor_type: "Counter".to_owned(),
            node: "one".to_owned(),
            state: "alive".to_owned(),
            waiting,
            per_s: 12.5,
            busy,
            handled: 40,
            restarts: 0,
        }
    }

    #[test]
    fn a_frame_is_drawn_sorted_and_scrolled() {
        let node = TopNode {
            name: "one".to_owned(),
            state: "alive".to_owned(),
            cpu: 0.25,
            memory: 4_000_000,
            cpus: ("1".to_owned(), "2".to_owned()),
            held: (0, 1),
            actors: 3,
            per_s: 12.5,
            wire: (1_500.0, 20.0),
        };
        let mut frame = Frame {
            cluster: "test".to_owned(),
            up_s: 5.0,
            over_s: 1.0,
            nodes: vec![node],
            actors: vec![
                actor("idle", 9, 0.0),
                actor("busy", 0, 1.0),
                actor("half", 1, 0.5),
            ],
        };
        let mut terminal = Terminal::new(TestBackend::new(100, 12)).unwrap();
        let mut lines = |frame: &Frame, scroll| {
            terminal.draw(|f| draw(f, frame, scroll)).unwrap();
            let cells = terminal.backend().buffer().content().chunks(100);
            let line =
                |row: &[ratatui::buffer::Cell]| row.iter().map(|c| c.symbol()).collect::<String>();
            cells.map(line).collect::<Vec<_>>()
        };
        frame.sort(SortBy::Busy);
        let text = lines(&frame, 0);
        let at = |name: &str, text: &[String]| text.iter().position(|l| l.starts_with(name));
        assert!(text[0].contains("1 nodes, 3 actors"), "{text:#?}");
        assert!(
            text[2].contains("25.0") && text[2].contains("4.0 MB"),
            "{text:#?}"
        );
        assert!(at("busy", &text) < at("half", &text) && at("half", &text) < at("idle", &text));
        frame.sort(SortBy::Mailbox);
        let text = lines(&frame, 1);
        assert_eq!(at("idle", &text), None);
        assert!(at("half", &text) < at("busy", &text), "{text:#?}");
        assert!(text[11].contains("q quit"));
    }
}
