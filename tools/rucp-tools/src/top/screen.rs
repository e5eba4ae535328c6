//! The screen: a table of workers, peers and lanes, and its keys.

use crate::batch::peer_name;
use crate::rows::{LaneRow, Order, PeerRow, Traffic, WorkerRow, rows};
use crate::sample::Sample;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use std::io;
use std::time::{Duration, Instant};

/// The user's settings.
pub struct View {
    pub only: Option<u32>,
    pub every: Duration,
    pub order: Order,
    /// The columns of protocols show bytes and not messages.
    bytes: bool,
    paused: bool,
    scroll: usize,
}

impl View {
    /// The view at the start.
    pub fn new(only: Option<u32>, every: Duration, order: Order) -> Self {
        View {
            only,
            every,
            order,
            bytes: false,
            paused: false,
            scroll: 0,
        }
    }

    /// Handles a key; true to end.
    fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if control => return true,
            KeyCode::Char('p') => self.order = Order::Pid,
            KeyCode::Char('m') => self.order = Order::Messages,
            KeyCode::Char('b') => self.order = Order::Bytes,
            KeyCode::Char('u') => self.order = Order::Unexpected,
            KeyCode::Char('w') => self.order = Order::Pending,
            KeyCode::Char('t') => self.bytes = !self.bytes,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        false
    }
}

/// Draws samples until the user ends it.
///
/// # Errors
/// Errors of the terminal.
pub fn run(terminal: &mut DefaultTerminal, view: &mut View) -> io::Result<()> {
    let mut before = None;
    let mut now = Sample::take(view.only);
    loop {
        let shown = rows(before.as_ref(), &now, view.order);
        terminal.draw(|frame| draw(frame, view, &shown))?;
        let due = now.at + view.every;
        while Instant::now() < due || view.paused {
            let wait = due.saturating_duration_since(Instant::now());
            // While it is paused only a key causes an update.
            let wait = if view.paused { view.every } else { wait };
            if !event::poll(wait)? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press && view.key(key) => {
                    return Ok(());
                }
                _ => {}
            }
            let shown = rows(before.as_ref(), &now, view.order);
            terminal.draw(|frame| draw(frame, view, &shown))?;
        }
        before = Some(std::mem::replace(&mut now, Sample::take(view.only)));
    }
}

fn draw(frame: &mut Frame, view: &mut View, shown: &[WorkerRow]) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom] = areas.areas(frame.area());
    let peers: usize = shown.iter().map(|worker| worker.peers.len()).sum();
    let title = format!(
        "rucp_top: {} workers, {peers} peers; every {:?}, by {:?}{}",
        shown.len(),
        view.every,
        view.order,
        if view.paused { ", PAUSED" } else { "" },
    );
    frame.render_widget(Line::from(title).style(Modifier::BOLD), top);
    let keys = "q quit  order: p pid m messages b bytes u unexpected w pending  t messages/bytes  space pause";
    frame.render_widget(Line::from(keys).style(Modifier::DIM), bottom);
    if shown.is_empty() {
        let no_worker = "No worker of rucp runs in a process that this user may look into.";
        frame.render_widget(Paragraph::new(no_worker), middle);
    } else {
        draw_table(frame, middle, view, shown);
    }
}

fn draw_table(frame: &mut Frame, area: Rect, view: &mut View, shown: &[WorkerRow]) {
    let mut lines = Vec::new();
    for worker in shown {
        lines.push(worker_line(worker));
        for peer in &worker.peers {
            for (n, lane) in peer.lanes.iter().enumerate() {
                lines.push(lane_line(peer, lane, n == 0, view.bytes));
            }
        }
    }
    view.scroll = view.scroll.min(lines.len().saturating_sub(1));
    let unit = if view.bytes { "B/s" } else { "msg/s" };
    let columns = [
        "worker / peer".to_owned(),
        "lane".into(),
        "pend".into(),
        format!("short {unit}"),
        "eager".into(),
        "rndv".into(),
        "rma".into(),
        "amo".into(),
        "stream".into(),
        "sent/s".into(),
        "sent B/s".into(),
        "recv/s".into(),
        "recv B/s".into(),
    ];
    let mut widths = vec![
        Constraint::Min(24),
        Constraint::Length(14),
        Constraint::Length(5),
        Constraint::Length(11),
    ];
    widths.extend([Constraint::Length(8); 9]);
    let table = Table::new(lines, widths)
        .header(Row::new(columns).style(Modifier::REVERSED))
        .column_spacing(1);
    let mut state = TableState::new().with_offset(view.scroll);
    frame.render_stateful_widget(table, area, &mut state);
}

fn worker_line(worker: &WorkerRow) -> Row<'static> {
    let name = format!("{} {} {}", worker.pid, worker.command, worker.name);
    let waits = format!("{} unexp {} req", worker.unexpected, worker.requests);
    let mut cells = vec![name, waits, worker.pending.to_string()];
    cells.extend(std::iter::repeat_n(String::new(), 6));
    cells.extend(ends(&worker.sent, Some(&worker.received)));
    Row::new(cells).style(Style::new().add_modifier(Modifier::BOLD))
}

fn lane_line(peer: &PeerRow, lane: &LaneRow, first: bool, bytes: bool) -> Row<'static> {
    let mut cells = if first {
        vec![
            format!("  {}", peer_name(peer)),
            lane.lane.clone(),
            peer.pending.to_string(),
        ]
    } else {
        vec![String::new(), lane.lane.clone(), String::new()]
    };
    cells.extend(lane.sent.iter().map(|flow| {
        human(if bytes {
            flow.bytes_per_s
        } else {
            flow.messages_per_s
        })
    }));
    cells.extend(ends(&lane.all_sent, lane.received.as_ref()));
    let style = if peer.failed {
        Style::new().add_modifier(Modifier::CROSSED_OUT)
    } else {
        Style::new()
    };
    Row::new(cells).style(style)
}

fn ends(sent: &Traffic, received: Option<&Traffic>) -> [String; 4] {
    let shown = |rate: Option<f64>| rate.map(human).unwrap_or_default();
    [
        human(sent.messages_per_s),
        human(sent.bytes_per_s),
        shown(received.map(|flow| flow.messages_per_s)),
        shown(received.map(|flow| flow.bytes_per_s)),
    ]
}

/// A rate in at most six characters; nothing for nothing.
fn human(rate: f64) -> String {
    if rate < 0.05 {
        return String::new();
    }
    let mut rate = rate;
    let mut unit = 0;
    while rate >= 999.5 && unit < 6 {
        rate /= 1000.0;
        unit += 1;
    }
    let unit = ["", "k", "M", "G", "T", "P", "E"][unit];
    if rate < 9.95 && !unit.is_empty() {
        format!("{rate:.1}{unit}")
    } else {
        format!("{rate:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn press(view: &mut View, code: KeyCode) -> bool {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn view() -> View {
        View::new(None, Duration::from_secs(1), Order::Pid)
    }

    #[test]
    fn keys() {
        let mut v = view();
        assert!(!press(&mut v, KeyCode::Char('b')));
        assert_eq!(v.order, Order::Bytes);
        press(&mut v, KeyCode::Up);
        press(&mut v, KeyCode::PageDown);
        assert_eq!(v.scroll, 10);
        press(&mut v, KeyCode::Char(' '));
        assert!(v.paused);
        assert!(press(&mut v, KeyCode::Char('q')));
        assert!(v.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn any_size_of_the_screen() {
        let worker = WorkerRow {
            pid: 1,
            command: "a".repeat(300),
            uid: 7,
            name: "n".into(),
            context: String::new(),
            unexpected: u64::MAX,
            unexpected_total: 0,
            requests: u64::MAX,
            pending: u64::MAX,
            sent: Traffic {
                messages_per_s: f64::INFINITY,
                bytes_per_s: f64::NAN,
                ..Traffic::default()
            },
            received: Traffic::default(),
            peers: Vec::new(),
        };
        for (width, height) in [(0, 0), (1, 1), (3, 2), (80, 24), (500, 200)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let mut view = view();
            view.scroll = usize::MAX;
            terminal.draw(|f| draw(f, &mut view, &[])).unwrap();
            let rows = std::slice::from_ref(&worker);
            terminal.draw(|f| draw(f, &mut view, rows)).unwrap();
            assert_eq!(view.scroll, 0, "not beyond the end");
        }
    }

    #[test]
    fn rates_for_people() {
        for (rate, text) in [
            (0.0, ""),
            (0.2, "0"),
            (12.4, "12"),
            (999.4, "999"),
            (1000.0, "1.0k"),
            (12_345_678.0, "12M"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(human(rate), text, "{rate}");
        }
        assert!(human(f64::INFINITY).len() <= 6);
    }
}
