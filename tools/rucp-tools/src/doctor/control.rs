//! The control connection of a pair: lines of JSON over a socket or a pipe.

use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Longest line, bytes: an address of a worker has some hundred.
const MAX_LINE: u64 = 4 << 20;

/// Lines that wait to be handled; the other end waits with further ones.
const MAX_LINES: usize = 4;

/// One control connection. A thread reads its lines; it ends when the connection does.
pub struct ControlConn {
    lines: Receiver<Result<String, String>>,
    output: Box<dyn Write>,
}

impl ControlConn {
    /// Over two directions of a connection.
    pub fn new(input: impl Read + Send + 'static, output: impl Write + 'static) -> ControlConn {
        let (sender, lines) = sync_channel(MAX_LINES);
        std::thread::spawn(move || {
            let mut input = BufReader::new(input);
            loop {
                let mut line = String::new();
                let line = match (&mut input).take(MAX_LINE).read_line(&mut line) {
                    Ok(0) => return,
                    Ok(_) => Ok(line),
                    Err(error) => Err(error.to_string()),
                };
                let ended = line.is_err();
                if sender.send(line).is_err() || ended {
                    return;
                }
            }
        });
        ControlConn {
            lines,
            output: Box::new(output),
        }
    }

    /// Sends a value.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send(&mut self, value: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_string(value).map_err(|e| e.to_string())?;
        let sent = self.output.write_all(format!("{text}\n").as_bytes());
        sent.and_then(|()| self.output.flush())
            .map_err(|e| format!("the other end has closed the connection: {e}"))
    }

    /// The next value. Calls `progress` while it waits, or sleeps if there is nothing to progress.
    ///
    /// # Errors
    /// The connection is closed, the deadline is over, or the other end is no rucp_doctor of this version.
    pub fn receive<T: for<'a> Deserialize<'a>>(
        &mut self,
        deadline: Instant,
        progress: Option<&dyn Fn()>,
    ) -> Result<T, String> {
        const CLOSED: &str = "the other end has closed the connection";
        const LATE: &str = "the other end does not answer";
        let line = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Err(LATE.to_owned());
            }
            let Some(progress) = progress else {
                match self.lines.recv_timeout(left) {
                    Ok(line) => break line,
                    Err(RecvTimeoutError::Timeout) => return Err(LATE.to_owned()),
                    Err(RecvTimeoutError::Disconnected) => return Err(CLOSED.to_owned()),
                }
            };
            match self.lines.try_recv() {
                Ok(line) => break line,
                Err(TryRecvError::Empty) => progress(),
                Err(TryRecvError::Disconnected) => return Err(CLOSED.to_owned()),
            }
        };
        serde_json::from_str(&line?)
            .map_err(|e| format!("the other end speaks another version: {e}"))
    }
}
