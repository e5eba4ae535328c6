//! Effects of options on log messages: level, destination, a fork. Each case in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ucp::options::Options;
use ucp::sys::log::{self, LogLevel};

/// The variable with the name of a child's case.
const CASE: &str = "RUCP_LOG_CASE";

fn directory(case: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("rucp-log-{}-{case}", std::process::id()));
    fs::create_dir_all(&dir).expect("the temporary directory can be written");
    dir
}

/// Runs `child` as `case` and removes its directory after `look`.
fn run(case: &str, vars: &[(&str, &str)], look: impl FnOnce(&Path, Output)) {
    let dir = directory(case);
    let exe = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(exe)
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env_clear()
        .env(CASE, case)
        .envs(vars.iter().copied())
        .current_dir(&dir)
        .output()
        .expect("the test can run itself");
    assert!(output.status.success(), "{case}: {output:?}");
    look(&dir, output);
    fs::remove_dir_all(&dir).expect("the directory is ours");
}

/// Logs at every level, as the macros do.
fn log_all() {
    for level in LogLevel::ALL {
        if log::enabled(*level) {
            log::dispatch(*level, "a/b.rs", 1, format_args!("<{}>", level.name()));
        }
    }
}

/// The marks of `log_all` in a text.
fn marks(text: &str) -> Vec<&str> {
    text.split('<')
        .skip(1)
        .filter_map(|rest| rest.split('>').next())
        .collect()
}

#[test]
#[ignore = "run by the other tests, in an environment made for it"]
fn child() {
    match std::env::var(CASE)
        .expect("only the other tests run this")
        .as_str()
    {
        "levels" => {
            log_all();
            log::set_level(LogLevel::Error);
            log_all();
        }
        "earlier" => {
            log::set_level(LogLevel::Fatal);
            log_all();
        }
        "unused" => {
            let options = Options::read(None).expect("the level is passed over");
            log::configure(&options);
            log::warn_unused_once(&options);
            log::warn_unused_once(&options);
        }
        "fork" => {
            log_all();
            // SAFETY: the child logs and leaves at once; it shares no lock with other threads.
            let pid = unsafe { libc::fork() };
            log_all();
            if pid == 0 {
                // SAFETY: no arguments.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: the pid is that of the child, no status is requested.
            assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        }
        _ => log_all(),
    }
}

#[test]
fn the_level_comes_from_the_environment_and_can_be_changed() {
    run("levels", &[("UCX_LOG_LEVEL", "info")], |_, output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            marks(&text),
            ["FATAL", "ERROR", "WARN", "DIAG", "INFO", "FATAL", "ERROR"],
            "{text}"
        );
        assert!(
            text.contains("             b.rs:1    UCX  DIAG  <DIAG>\n"),
            "{text}"
        );
    });
    run("earlier", &[("UCX_LOG_LEVEL", "poll")], |_, output| {
        assert_eq!(marks(&String::from_utf8_lossy(&output.stdout)), ["FATAL"]);
    });
    run("default", &[], |_, output| {
        assert_eq!(
            marks(&String::from_utf8_lossy(&output.stdout)),
            ["FATAL", "ERROR", "WARN"]
        );
    });
}

#[test]
fn messages_go_where_the_options_say() {
    run("stderr", &[("UCX_LOG_FILE", "stderr")], |_, output| {
        assert_eq!(
            marks(&String::from_utf8_lossy(&output.stderr)),
            ["FATAL", "ERROR", "WARN"]
        );
        assert!(marks(&String::from_utf8_lossy(&output.stdout)).is_empty());
    });
    run("file", &[("UCX_LOG_FILE", "file:log")], |dir, output| {
        let text = fs::read_to_string(dir.join("log")).expect("the file was made");
        assert_eq!(marks(&text), ["FATAL", "ERROR", "WARN"]);
        assert!(marks(&String::from_utf8_lossy(&output.stdout)).is_empty());
    });
}

#[test]
fn a_child_of_a_fork_has_its_own_file() {
    run("fork", &[("UCX_LOG_FILE", "log.%p")], |dir, _| {
        let files = fs::read_dir(dir).expect("the directory is there");
        let mut counts: Vec<usize> = files
            .map(|file| fs::read_to_string(file.expect("a file").path()).expect("text"))
            .map(|text| marks(&text).len())
            .collect();
        counts.sort();
        assert_eq!(counts, [3, 6], "3 of the child, 3 and 3 of its parent");
    });
}

#[test]
fn unknown_variables_and_wrong_values_are_warned_of_once() {
    let vars = [("UCX_NOSUCH", "1"), ("UCX_LOG_LEVEL", "loud")];
    run("unused", &vars, |_, output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            text.matches("UCX  WARN  unused environment variable: UCX_NOSUCH (")
                .count(),
            1,
            "{text}"
        );
        assert_eq!(
            text.matches("UCX  WARN  Invalid value for UCX_LOG_LEVEL: 'loud'")
                .count(),
            1,
            "{text}"
        );
    });
}
