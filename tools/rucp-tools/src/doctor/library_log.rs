//! The library's log, kept for the report instead of mixed with it.

use std::fs::File;
use std::io::Read;
use tempfile::NamedTempFile;
use ucp::options::Options;
use ucp::sys::log;

/// The log of this process. Its file has no name any more, so that nothing is left behind.
pub struct LibraryLog(Option<File>);

impl LibraryLog {
    /// Directs the library's messages of level `diag` and more serious ones to a file. To be called before the first
    /// message. Without a writable directory for the file they go to standard error.
    pub fn keep() -> LibraryLog {
        let mut options = Options::read_lenient();
        let file = NamedTempFile::new().ok();
        let path = file.as_ref().and_then(|file| file.path().to_str());
        // Both are valid values.
        let _ = options.set("LOG_FILE", path.unwrap_or("stderr"));
        let _ = options.set("LOG_LEVEL", "diag");
        let _ = options.set("LOG_FILE_SIZE", "inf");
        log::configure(&options);
        // The library has opened the file: its name is not needed.
        LibraryLog(file.and_then(|file| file.reopen().ok()))
    }

    /// The messages since the last call, without their heads: `WARN  text`. An empty list if they went elsewhere.
    pub fn lines(&mut self) -> Vec<String> {
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.0 {
            let _ = file.read_to_end(&mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let message = |line: &str| Some(line.split_once(" UCX  ")?.1.trim().to_owned());
        text.lines().filter_map(message).collect()
    }
}

/// The messages that say that something is wrong.
pub fn complaints(lines: &[String]) -> impl Iterator<Item = &str> {
    let serious = |line: &&String| {
        ["ERROR", "WARN", "DIAG"]
            .iter()
            .any(|l| line.starts_with(l))
    };
    lines.iter().filter(serious).map(|line| {
        let text = line.split_once(' ').map_or(line.as_str(), |(_, text)| text);
        text.trim()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_the_texts_of_serious_messages() {
        let lines = ["ERROR no port", "INFO  Version", "DIAG  cannot open x"].map(str::to_owned);
        assert!(complaints(&lines).eq(["no port", "cannot open x"]));
    }
}
