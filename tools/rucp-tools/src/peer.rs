//! The running program in another process, which is the other end of an endpoint.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// This program in another process. It ends when its input ends.
pub struct PeerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl PeerProcess {
    /// Starts it with these arguments.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(arguments: &[&str]) -> Result<PeerProcess, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let started = Command::new(me)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|e| e.to_string())?;
        let output = child.stdout.take().ok_or("no pipe from the peer")?;
        Ok(PeerProcess {
            input: child.stdin.take(),
            output: Some(BufReader::new(output)),
            child,
        })
    }

    /// Its output, once.
    pub fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.output.take()
    }

    /// Its input, once. The process ends when the input is dropped, which has to be before this value is.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.input.take()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
