//! `scripts/check-hot-path` finds calls in a library that may not be on the hot path.
#![cfg(target_arch = "x86_64")]

use std::fs;
use std::path::Path;
use std::process::Command;

const SYMBOLS: [&str; 8] = [
    "ucp_tag_recv_nbx",
    "ucp_worker_progress",
    "ucp_put_nbx",
    "ucp_get_nbx",
    "ucp_am_send_nbx",
    "ucp_request_free",
    "ucp_ep_flush_nbx",
    "ucp_atomic_op_nbx",
];

/// Builds a library whose `ucp_tag_send_nbx` has this body, and checks it with these arguments.
fn check(name: &str, body: &str, arguments: &[&str]) -> (bool, String) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hot_path");
    fs::create_dir_all(&dir).unwrap();
    let (source, library) = (
        dir.join(name).with_extension("c"),
        dir.join(name).with_extension("so"),
    );
    let others: String = SYMBOLS
        .iter()
        .map(|symbol| format!("long {symbol}(long x) {{ return x; }}\n"))
        .collect();
    let prelude = "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#include <pthread.h>\n\
                   pthread_mutex_t lock; _Thread_local long mine; long shared;\n\
                   __attribute__((noinline, noclone)) void *slow(long x) { return malloc(x); }\n";
    fs::write(
        &source,
        format!("{prelude}{others}long ucp_tag_send_nbx(long x) {{ {body} }}\n"),
    )
    .unwrap();
    // rustc calls through the GOT too.
    let flags = ["-O2", "-fno-plt", "-shared", "-fPIC", "-Wl,-z,now", "-o"];
    let built = Command::new("cc")
        .args(flags)
        .arg(&library)
        .arg(&source)
        .status()
        .expect("cc is installed");
    assert!(built.success(), "{body}");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/check-hot-path");
    let counts = dir.join(name).with_extension("counts");
    let output = Command::new(script)
        .arg("--counts")
        .arg(&counts)
        .args(arguments)
        .arg(&library)
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[test]
fn banned_calls_are_found() {
    let banned = [
        (
            "allocates",
            "return *(long *)memset(malloc(x), 1, x);",
            "reaches for malloc",
        ),
        (
            "tail_call",
            "free((void *)x); return 0;",
            "reaches for free",
        ),
        (
            "locks",
            "pthread_mutex_lock(&lock); return shared;",
            "reaches for pthread_mutex_lock",
        ),
        ("thread_local", "return mine += x;", "__tls_get_addr"),
        (
            "system_call",
            "__asm__ volatile(\"syscall\"); return x;",
            "makes a system call",
        ),
        (
            "by_pointer",
            "void *(*f)(size_t) = malloc; void **to = (void **)x; to[0] = f(8); to[1] = f(x); return 0;",
            "malloc",
        ),
    ];
    for (name, body, fault) in banned {
        let (passed, output) = check(name, body, &[]);
        assert!(!passed && output.contains(fault), "{name}: {output}");
    }
}

#[test]
fn allowed_calls_pass_and_callees_are_not_entered() {
    let body = "if (__builtin_expect(x > 9, 0)) return (long)slow(x); return __atomic_fetch_add(&shared, x, 0);";
    let (passed, output) = check("fast", body, &[]);
    assert!(passed, "{output}");
    let line = output
        .lines()
        .find(|line| line.starts_with("ucp_tag_send_nbx"))
        .unwrap();
    assert!(line.contains(", 1 atomic"), "{line}");
}

#[test]
fn counts_only_go_down() {
    assert!(check("counted", "return x;", &["--record"]).0);
    assert!(check("counted", "return x;", &[]).0);
    let (passed, output) = check("counted", "return x * x + shared;", &[]);
    assert!(
        !passed && output.contains("ucp_tag_send_nbx: grew"),
        "{output}"
    );
}

/// rustc reaches its allocator by an address in the GOT, which no symbol names.
#[test]
fn the_allocator_of_rust_is_found() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, library) = (dir.join("allocates.rs"), dir.join("liballocates.so"));
    let text = "#[unsafe(no_mangle)] pub extern \"C\" fn ucp_request_free(x: u64) -> *mut u64 { \
                Box::into_raw(Box::new(x)) }";
    fs::write(&source, text).unwrap();
    let flags = [
        "-O",
        "-Cpanic=abort",
        "--edition=2024",
        "--crate-type=cdylib",
        "-o",
    ];
    assert!(
        Command::new("rustc")
            .args(flags)
            .arg(&library)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/check-hot-path");
    let output = Command::new(script).arg(&library).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.contains("ucp_request_free: reaches for __rustc::__rust_alloc"),
        "{output}"
    );
    assert!(output.contains("ucp_put_nbx: not found"), "{output}");
}
