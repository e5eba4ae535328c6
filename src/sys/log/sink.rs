//! Destinations of log messages: standard output, standard error, or a file that is rotated when it has grown.

use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// A destination. Every write is one system call, so lines of several threads and processes do not mix.
pub enum LogSink {
    Standard(BorrowedFd<'static>),
    File(LogFile),
}

/// A log file that is rotated.
pub struct LogFile {
    /// Rotation replaces the file behind the descriptor.
    file: File,
    /// The pattern of its name.
    pattern: String,
    /// A file that would grow beyond this is rotated, bytes.
    limit: usize,
    /// Number of rotated files that are kept.
    backups: u32,
    written: AtomicUsize,
    /// The process that opened it: after a fork the expanded name may differ.
    pid: AtomicU32,
    /// Set while one thread changes the file behind the descriptor.
    busy: AtomicBool,
}

impl LogSink {
    /// Opens the destination that `UCX_LOG_FILE` names; one that cannot be opened is replaced by standard output.
    pub fn open(name: &str, limit: Option<usize>, backups: u32) -> LogSink {
        match name {
            "" | "stdout" => return LogSink::Standard(stdout()),
            "stderr" => return LogSink::Standard(stderr()),
            _ => (),
        }
        let pattern = name.strip_prefix("file:").unwrap_or(name);
        match open_file(&expand(pattern)) {
            Ok(file) => LogSink::File(LogFile {
                file,
                pattern: pattern.to_owned(),
                limit: limit.unwrap_or(usize::MAX),
                backups,
                written: AtomicUsize::new(0),
                pid: AtomicU32::new(std::process::id()),
                busy: AtomicBool::new(false),
            }),
            Err(error) => {
                let sink = LogSink::Standard(stdout());
                sink.write(&format!(
                    "UCX  WARN  cannot open the log file {pattern}: {error}\n"
                ));
                sink
            }
        }
    }

    /// Writes whole lines. A message that cannot be written is lost, without an error.
    pub fn write(&self, lines: &str) {
        let fd = match self {
            LogSink::Standard(fd) => *fd,
            LogSink::File(log) => {
                log.prepare(lines.len());
                log.file.as_fd()
            }
        };
        let mut rest = lines.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(fd, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => (),
                Err(_) => return,
            }
        }
    }
}

impl LogFile {
    /// Changes to another file before `len` bytes are written, where that is due.
    fn prepare(&self, len: usize) {
        let forked = self.pid.load(Ordering::Relaxed) != std::process::id();
        let full = self
            .written
            .fetch_add(len, Ordering::Relaxed)
            .saturating_add(len)
            > self.limit;
        if !forked && !full {
            return;
        }
        // If another thread changes the file, this message goes to either file. In a forked child the flag may be left
        // from a thread that does not exist there, and is ignored.
        if self.busy.swap(true, Ordering::Acquire) && !forked {
            return;
        }
        let path = expand(&self.pattern);
        if full && !forked {
            self.put_aside(&path);
        }
        if let Ok(file) = open_file(&path) {
            // SAFETY: both descriptors are open; this swaps the file behind the latter in one step, for all threads.
            // rustix's function would take the latter by a mutable reference.
            unsafe { libc::dup3(file.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) };
            self.written.store(len, Ordering::Relaxed);
            self.pid.store(std::process::id(), Ordering::Relaxed);
        }
        self.busy.store(false, Ordering::Release);
    }

    /// Renames the file to `.1`, `.1` to `.2` and so on; without backups it is emptied.
    fn put_aside(&self, path: &str) {
        let backup = |number: u32| format!("{path}.{number}");
        // A file that cannot be renamed stays, and is appended to.
        for number in (1..self.backups).rev() {
            let _ = fs::rename(backup(number), backup(number + 1));
        }
        let _ = match self.backups {
            0 => fs::remove_file(path),
            _ => fs::rename(path, backup(1)),
        };
    }
}

/// Opens for appending, so that processes that share a file do not overwrite each other.
fn open_file(path: &str) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Replaces `%h`, `%p`, `%c`, `%t`, `%u`, `%e` in a name; other text stays.
pub fn expand(pattern: &str) -> String {
    let mut name = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        name.push_str(before);
        let mut after_key = after.chars();
        match after_key.next().and_then(substitute) {
            Some(text) => {
                name.push_str(&text);
                rest = after_key.as_str();
            }
            None => {
                name.push('%');
                rest = after;
            }
        }
    }
    name + rest
}

/// The placeholders of a name that [`expand`] does not know, and leaves as they are.
pub fn unknown_placeholders(pattern: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut rest = pattern;
    while let Some((_, after)) = rest.split_once('%') {
        let key = after.chars().next();
        if key.and_then(substitute).is_none() {
            unknown.push(key.map_or("%".into(), |key| format!("%{key}")));
        }
        rest = after;
    }
    unknown
}

/// The substitute for a letter behind `%`.
fn substitute(key: char) -> Option<String> {
    match key {
        'h' => Some(super::host().to_owned()),
        'p' => Some(std::process::id().to_string()),
        'c' => Some(format!("{:02}", rustix::thread::sched_getcpu())),
        't' => Some(local_time()),
        'u' => Some(std::env::var("USER").unwrap_or_default()),
        'e' => {
            let exe = std::env::current_exe().ok()?;
            Some(exe.file_name()?.to_string_lossy().into_owned())
        }
        _ => None,
    }
}

/// The time here as `2026-11-21-11-07-00`.
fn local_time() -> String {
    let format = CString::from(c"%Y-%m-%d-%H-%M-%S");
    let mut text = [0u8; 32];
    // SAFETY: `tm` is plain data, for which zeros are valid; both calls get pointers to it and to a buffer with
    // its length; the format ends with a zero.
    let len = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        let now = libc::time(std::ptr::null_mut());
        libc::localtime_r(&now, &mut tm);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &tm)
    };
    String::from_utf8_lossy(&text[..len]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("rucp-sink-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory can be written");
        dir
    }

    #[test]
    fn names_have_substitutions() {
        let pid = std::process::id();
        assert_eq!(expand("a.%p.b"), format!("a.{pid}.b"));
        assert_eq!(expand("%h"), super::super::host());
        assert_eq!(expand("100%"), "100%");
        assert_eq!(expand("%%x%p"), format!("%%x{pid}"));
        assert_eq!(unknown_placeholders("%h.%p.%c.%t.%u.%e"), [""; 0]);
        assert_eq!(unknown_placeholders("%%q%p.%ä 1%"), ["%%", "%q", "%ä", "%"]);
        assert_eq!(expand("%t").len(), "2026-11-21-11-07-00".len());
        assert!(!expand("%e.%c.%u").contains('%'));
    }

    #[test]
    fn a_full_file_is_put_aside() {
        let dir = directory("full");
        let path = dir.join("log");
        let sink = LogSink::open(&format!("file:{}", path.display()), Some(10), 2);
        for number in 1..=4 {
            sink.write(&format!("line {number}\n"));
        }
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        assert_eq!(read("log").as_deref(), Some("line 4\n"));
        assert_eq!(read("log.1").as_deref(), Some("line 3\n"));
        assert_eq!(read("log.2").as_deref(), Some("line 2\n"));
        assert_eq!(read("log.3"), None);
        drop(sink);
        fs::remove_dir_all(dir).expect("the directory is ours");
    }

    #[test]
    fn threads_do_not_mix_their_lines() {
        let dir = directory("threads");
        let path = dir.join("log");
        let sink = LogSink::open(&path.display().to_string(), None, 0);
        std::thread::scope(|scope| {
            for letter in ["a", "b", "c", "d"] {
                let sink = &sink;
                scope.spawn(move || {
                    (0..100).for_each(|_| sink.write(&format!("{}\n", letter.repeat(100))))
                });
            }
        });
        let text = fs::read_to_string(&path).expect("the file was written");
        assert_eq!(text.lines().count(), 400);
        assert!(
            text.lines().all(
                |line| line.len() == 100 && line.bytes().all(|byte| byte == line.as_bytes()[0])
            )
        );
        drop(sink);
        fs::remove_dir_all(dir).expect("the directory is ours");
    }

    #[test]
    fn standard_streams_are_known_by_name() {
        let number = |name| match LogSink::open(name, None, 0) {
            LogSink::Standard(fd) => Some(fd.as_raw_fd()),
            LogSink::File(_) => None,
        };
        assert_eq!(number(""), Some(1));
        assert_eq!(number("stdout"), Some(1));
        assert_eq!(number("stderr"), Some(2));
        assert_eq!(number("/nonexistent/dir/log"), Some(1));
    }
}
