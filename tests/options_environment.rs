//! Options from the environment and from ucx.conf, each case in a process of its own.

use std::path::PathBuf;
use std::process::Command;

use ucp::options::{OptionError, Options, unused_env_vars, unused_report, used_env_vars};

/// The variable with the name of a child's case.
const CASE: &str = "RUCP_OPTIONS_CASE";

/// An empty directory for one case.
fn directory(case: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("rucp-options-{}-{case}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory can be written");
    dir
}

/// Runs `child` as `case`, with `vars` as its only UCX variables and `conf` as ucx.conf of its directory.
fn run(case: &str, conf: &str, vars: &[(&str, &str)]) {
    let dir = directory(case);
    std::fs::write(dir.join("ucx.conf"), conf).expect("the file can be written");
    let exe = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(exe)
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env_clear()
        .env(CASE, case)
        .envs(vars.iter().copied())
        .current_dir(&dir)
        .output()
        .expect("the test can run itself");
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{case}: {text}{:?}",
        output.stderr
    );
}

fn get(options: &Options, name: &str) -> String {
    options.get(name).expect("a known name")
}

fn child_layers() {
    let own = Options::read(Some("P")).unwrap();
    assert_eq!(get(&own, "TLS"), "own");
    assert_eq!(get(&own, "NUM_EPS"), "2");
    assert_eq!(get(&own, "SEG_SIZE"), "1K");
    let plain = Options::read(None).unwrap();
    assert_eq!(get(&plain, "TLS"), "plain");
    assert!(plain.tls.allows("plain") && !plain.tls.allows("own"));
}

fn child_places() {
    let options = Options::read(None).unwrap();
    assert_eq!(
        [
            get(&options, "TLS"),
            get(&options, "PROTOS"),
            get(&options, "NUM_EPS")
        ],
        ["here", "etc", "1"]
    );
}

fn child_nearness() {
    let options = Options::read(None).unwrap();
    assert_eq!(
        get(&options, "POSIX_SEG_SIZE"),
        "3K",
        "the full name wins, though in a file"
    );
    assert_eq!(get(&options, "SYSV_SEG_SIZE"), "1K");
    assert_eq!(
        get(&options, "SYSV_ALLOC"),
        "mmap",
        "the nearest prefix wins"
    );
    assert_eq!(get(&options, "CMA_ALLOC"), "heap");
    assert_eq!(get(&options, "TCP_ALLOC"), "thp");
    assert_eq!(get(&options, "MAX_EAGER_RAILS"), "5", "the newer name wins");
    let mut options = options;
    options.set("MM_SEG_SIZE", "7").unwrap();
    assert_eq!(get(&options, "POSIX_SEG_SIZE"), "7", "a call wins over all");
}

fn child_wrong() {
    let error = Options::read(None).unwrap_err();
    assert!(
        matches!(&error, OptionError::Invalid { name, value, .. } if name == "RNDV_SCHEME" && value == "bogus")
    );
    let lenient = Options::read_lenient();
    assert_eq!(get(&lenient, "RNDV_SCHEME"), "auto");
    assert_eq!(get(&lenient, "NUM_EPS"), "3");
    assert_eq!(lenient.rejected().len(), 2);
}

fn child_reported() {
    let options = Options::read(None).unwrap();
    assert_eq!(get(&options, "LOG_LEVEL"), "WARN");
    assert_eq!(get(&options, "TRACE_MAX_SIZE"), "256M");
    let name = |error: &OptionError| match error {
        OptionError::Invalid { name, .. } => name.to_string(),
        other => panic!("{other}"),
    };
    let rejected: Vec<String> = options.rejected().iter().map(name).collect();
    assert_eq!(rejected, ["LOG_LEVEL", "TRACE_MAX_SIZE"]);
}

fn child_own() {
    let error = Options::read(None).unwrap_err();
    assert!(
        matches!(&error, OptionError::Invalid { name, .. } if name == "SHM_IDLE_TIMEOUT"),
        "{error}"
    );
}

fn child_transports() {
    let mut options = Options::read(None).unwrap();
    assert_eq!(get(&options, "TCP_NODELAY"), "y");
    assert_eq!(options.check_context(), Ok(()));
    let refused = |options: &Options| match options.check_worker() {
        Err(OptionError::Invalid { name, .. }) => Some(name),
        other => other.map(|()| None).unwrap(),
    };
    assert_eq!(refused(&options).as_deref(), Some("TCP_NODELAY"));
    options.set("TLS", "self,sm").unwrap();
    assert_eq!(refused(&options), None, "TCP is not selected");
    options.set("TLS", "tcp").unwrap();
    options.modify("TCP_NODELAY", "n").unwrap();
    assert_eq!(refused(&options), None, "the program knew better");
}

fn child_connecting() {
    let mut options = Options::read(None).unwrap();
    options.set("TLS", "self").unwrap();
    let refused = options.check_worker();
    // Clients and servers need no transport.
    assert!(
        matches!(&refused, Err(OptionError::Invalid { name, .. }) if name == "TCP_CM_REUSEADDR"),
        "{refused:?}"
    );
}

fn child_files() {
    let error = Options::read(None).unwrap_err().to_string();
    assert!(
        error.starts_with("./ucx.conf:2: Invalid value for UCX_NUM_EPS: 'many'. Expected: "),
        "{error}"
    );
    let mut options = Options::read_lenient();
    assert_eq!(
        options.remarks()[..2],
        [
            "./ucx.conf:1: 'rubbish' is neither UCX_NAME=value nor [section]",
            "./ucx.conf:3: no option is called UCX_NUM_EP",
        ]
    );
    assert!(options.remarks()[2].starts_with("./ucx.conf:2: Invalid value for UCX_NUM_EPS"));
    assert_eq!(options.remarks().len(), 3);
    let refused = options.check_worker().unwrap_err().to_string();
    assert!(
        refused.starts_with("./ucx.conf:5: UCX_TCP_PORT_RANGE is '5-2': "),
        "{refused}"
    );
    // A call has no file.
    options.modify("TCP_PORT_RANGE", "6-2").unwrap();
    let refused = options.check_worker().unwrap_err().to_string();
    assert!(
        refused.starts_with("UCX_TCP_PORT_RANGE is '6-2': "),
        "{refused}"
    );
}

fn child_doubted() {
    let mut options = Options::read(None).unwrap();
    assert_eq!(
        options.remarks(),
        [
            "./ucx.conf:1: UCX_MAX_RNDV_RAILS is '0': a message takes one rail at least",
            "UCX_RNDV_THRESH is '-5': it is read as intra:inf,inter:inf",
        ]
    );
    options.modify("RNDV_THRESH", "8k").unwrap();
    options.modify("MAX_RNDV_RAILS", "1.5").unwrap();
    assert_eq!(
        options.remarks(),
        ["UCX_MAX_RNDV_RAILS is '1.5': it is read as 1"]
    );
}

fn child_unused() {
    let unused = unused_env_vars();
    let names: Vec<&str> = unused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["UCX_NOSUCH", "UCX_RNDV_TRESH"]);
    assert_eq!(unused[1].1, ["UCX_RNDV_THRESH"]);
    assert_eq!(used_env_vars(), ["UCX_IB_SL=3", "UCX_TLS=tcp"]);
    let options = Options::read(None).unwrap();
    let report = unused_report(&options).expect("there are two");
    assert!(
        report.contains("UCX_NOSUCH; UCX_RNDV_TRESH (maybe: UCX_RNDV_THRESH?)"),
        "{report}"
    );
    assert_eq!(unused_report(&options), None, "once is enough");
}

#[test]
#[ignore = "run by the other tests, in an environment made for it"]
fn child() {
    let case = std::env::var(CASE).expect("only the other tests run this");
    match case.as_str() {
        "layers" => child_layers(),
        "places" => child_places(),
        "nearness" => child_nearness(),
        "wrong" => child_wrong(),
        "overridden" => assert_eq!(get(&Options::read(None).unwrap(), "RNDV_SCHEME"), "am"),
        "reported" => child_reported(),
        "own" => child_own(),
        "transports" => child_transports(),
        "connecting" => child_connecting(),
        "unused" => child_unused(),
        "files" => child_files(),
        "doubted" => child_doubted(),
        "silenced" => assert_eq!(unused_report(&Options::read(None).unwrap()), None),
        case => panic!("no case {case}"),
    }
}

#[test]
fn later_sources_win() {
    run(
        "layers",
        "UCX_TLS=file\nUCX_NUM_EPS=1\nUCX_SEG_SIZE=1k\n",
        &[
            ("UCX_TLS", "plain"),
            ("UCX_NUM_EPS", "2"),
            ("P_UCX_TLS", "own"),
        ],
    );
}

#[test]
fn nearer_files_win() {
    let (home, etc) = (directory("home"), directory("etc"));
    std::fs::write(
        home.join("ucx.conf"),
        "UCX_TLS=home\nUCX_PROTOS=home\nUCX_NUM_EPS=1\n",
    )
    .expect("ours");
    std::fs::write(etc.join("ucx.conf"), "UCX_TLS=etc\nUCX_PROTOS=etc\n").expect("ours");
    let path = |dir: &PathBuf| {
        dir.to_str()
            .expect("temporary directories have plain names")
            .to_owned()
    };
    run(
        "places",
        "UCX_TLS=here\n",
        &[("HOME", &path(&home)), ("UCX_CONFIG_DIR", &path(&etc))],
    );
    for dir in [home, etc] {
        std::fs::remove_dir_all(dir).expect("the directory is ours");
    }
}

#[test]
fn nearer_names_win() {
    run(
        "nearness",
        "UCX_POSIX_SEG_SIZE=3k\n",
        &[
            ("UCX_MM_SEG_SIZE", "1k"),
            ("UCX_ALLOC", "thp"),
            ("UCX_SM_ALLOC", "heap"),
            ("UCX_MM_ALLOC", "mmap"),
            ("UCX_MAX_EAGER_LANES", "3"),
            ("UCX_MAX_EAGER_RAILS", "5"),
        ],
    );
}

#[test]
fn wrong_values_fail_or_are_passed_over() {
    run(
        "wrong",
        "",
        &[
            ("UCX_RNDV_SCHEME", "bogus"),
            ("UCX_SEG_SIZE", "x"),
            ("UCX_NUM_EPS", "3"),
        ],
    );
    run(
        "overridden",
        "UCX_RNDV_SCHEME=bogus\n",
        &[("UCX_RNDV_SCHEME", "am")],
    );
    // Options of rucp's own follow those of UCX in the same section.
    run(
        "reported",
        "",
        &[("UCX_LOG_LEVEL", "loud"), ("UCX_TRACE_MAX_SIZE", "much")],
    );
    run("own", "", &[("UCX_SHM_IDLE_TIMEOUT", "soon")]);
    run("transports", "", &[("UCX_TCP_NODELAY", "bogus")]);
    run("connecting", "", &[("UCX_CM_REUSEADDR", "bogus")]);
}

#[test]
fn faults_of_a_file_are_named_with_its_line() {
    let conf = "rubbish\nUCX_NUM_EPS=many\nUCX_NUM_EP=3\nUCX_SEG_SIZE=8k\nUCX_TCP_PORT_RANGE=5-2\n";
    run("files", conf, &[]);
}

#[test]
fn values_that_are_read_as_others_are_remarked() {
    let vars = [("UCX_RNDV_THRESH", "-5"), ("UCX_NUM_EPS", "3")];
    run("doubted", "UCX_MAX_RNDV_RAILS=0\n", &vars);
}

#[test]
fn unknown_variables_are_named_once() {
    let vars = [
        ("UCX_NOSUCH", "1"),
        ("UCX_RNDV_TRESH", "8k"),
        ("UCX_TLS", "tcp"),
        ("UCX_IB_SL", "3"),
        ("UCX_GDR_COPY_ANY", "1"),
        ("UCX_CONFIG_DIR", "/nowhere"),
        ("UC_X", "1"),
    ];
    run("unused", "", &vars);
    run(
        "silenced",
        "",
        &[("UCX_NOSUCH", "1"), ("UCX_WARN_UNUSED_ENV_VARS", "n")],
    );
}
