//! `scripts/check-layers`: this project passes, and a use of a higher layer is reported with its line.
//! `scripts/check-circles`: this project passes, and a circle of more than three modules is reported.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `scripts/check-layers`; returns its verdict and its output.
fn check(root: &Path) -> (bool, String) {
    run("check-layers", root)
}

/// Runs a script on a crate; returns its verdict and its output.
fn run(script: &str, root: &Path) -> (bool, String) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let output = Command::new(scripts.join(script))
        .arg(root)
        .output()
        .expect("python3 is installed");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// A crate with the layers `low`, `mid`, `high`, and this text in `src/mid/file.rs`.
fn check_text(name: &str, text: &str) -> (bool, String) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let src = root.join("src");
    fs::create_dir_all(src.join("mid")).unwrap();
    fs::write(
        src.join("lib.rs"),
        "pub mod low;\n// mod none;\nmod mid;\npub(crate) mod high;\n",
    )
    .unwrap();
    fs::write(
        src.join("low.rs"),
        "#[macro_export]\nmacro_rules! lower { () => {} }\n",
    )
    .unwrap();
    fs::write(
        src.join("high.rs"),
        "#[macro_export]\nmacro_rules! higher { () => {} }\n",
    )
    .unwrap();
    fs::write(src.join("mid/file.rs"), text).unwrap();
    check(&root)
}

#[test]
fn this_project_is_in_order() {
    let (passed, output) = check(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(passed, "{output}");
}

#[test]
fn upward_dependencies_are_caught() {
    let wrong = [
        "\nuse crate::high::Thing;\n",
        "\nuse crate::{low::{a, b}, high};\n",
        "\nfn f() -> u8 { crate::high::g(\"//\") }\n",
        "\nuse super::super::high;\n",
        "\nmod tests { use crate::high; }\n",
        "\nuse crate::higher;\n",
        "/* two\nlines */ const C: char = '\"'; use crate::high;\n",
    ];
    for (i, text) in wrong.into_iter().enumerate() {
        let (passed, output) = check_text(&format!("wrong{i}"), text);
        assert!(!passed, "{text}");
        assert!(
            output.starts_with("src/mid/file.rs:2: `mid` uses `high"),
            "{text}{output}"
        );
    }
}

#[test]
fn names_of_transports_above_their_layer_are_caught() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("transports");
    let src = root.join("src");
    fs::create_dir_all(src.join("tl/fat")).unwrap();
    fs::write(src.join("lib.rs"), "mod sys;\nmod tl;\nmod op;\n").unwrap();
    fs::write(src.join("sys.rs"), "").unwrap();
    fs::write(src.join("tl/mod.rs"), "fn f() { fat::g(Lane::Fat) }\n").unwrap();
    fs::write(src.join("tl/fat/lane.rs"), "").unwrap();
    let texts = [
        ("use crate::sys::fat::Id;\n", None),
        ("use crate::tl::Lane;\n", None),
        ("use crate::tl::fat::Sender;\n", Some("fat::Sender")),
        (
            "fn f(_: Option<Lane>) { Some(Lane::Fat) }\n",
            Some("Lane::Fat"),
        ),
        (
            "use T; const T: u8 = LaneTarget::Fat;\n",
            Some("LaneTarget::Fat"),
        ),
        ("const K: K = IfaceKind::Fat;\n", Some("IfaceKind::Fat")),
    ];
    for (text, named) in texts {
        fs::write(src.join("op.rs"), text).unwrap();
        let (passed, output) = check(&root);
        assert_eq!(passed, named.is_none(), "{text}{output}");
        let error = named.map(|named| format!("src/op.rs:1: `op` names a transport, `{named}`"));
        assert!(
            error.is_none_or(|error| output.starts_with(&error)),
            "{text}{output}"
        );
    }
}

#[test]
fn downward_dependencies_pass() {
    let right = [
        "use crate::low::high; use crate::{low::{high, x}, mid};",
        "//! Read by [`crate::high`].\nuse super::high;",
        "const C: &str = \"crate::high\"; const R: &str = r#\" \" crate::high\"#;",
        "use crate::lower;",
    ];
    for (i, text) in right.into_iter().enumerate() {
        let (passed, output) = check_text(&format!("right{i}"), text);
        assert!(passed, "{text}\n{output}");
    }
}

#[test]
fn names_from_nowhere_are_refused() {
    let (passed, output) = check_text("nowhere", "use crate::reexport;");
    assert!(
        !passed && output.contains("`crate::reexport` is no module"),
        "{output}"
    );
}

/// A crate of one layer, `mid`, with these modules: name, text.
fn circles_of(name: &str, modules: &[(&str, &str)]) -> (bool, String) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mid = root.join("src/mid");
    fs::create_dir_all(&mid).unwrap();
    fs::write(root.join("src/lib.rs"), "mod mid;\n").unwrap();
    let declared: String = modules
        .iter()
        .map(|(module, _)| format!("mod {module};\n"))
        .collect();
    fs::write(mid.join("mod.rs"), declared).unwrap();
    for (module, text) in modules {
        let file = mid.join(format!("{module}.rs"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    run("check-circles", &root)
}

#[test]
fn circles_of_more_than_three_modules_are_caught() {
    let (passed, output) = run("check-circles", Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(passed, "{output}");
    let (a, b, c) = (
        ("a", "use super::b;\nfn f() { b::f() }"),
        ("b", "use crate::mid::{c::{self, g}, d};"),
        ("c", "fn g() { crate::mid::d::f() }"),
    );
    let (passed, output) = circles_of("circle_of_4", &[a, b, c, ("d", "pub use super::a::f;")]);
    assert!(!passed, "{output}");
    assert!(
        output.contains("4 modules import each other in a circle: a, b, c, d"),
        "{output}"
    );
    let (passed, output) = circles_of("circle_of_3", &[a, b, c, ("d", "use super::c::g;")]);
    assert!(passed, "{output}");
    // Tests, comments, and the files below a module make no circle.
    let nothing = "//! [`super::a::f`]\n#[cfg(test)]\nmod tests { use crate::mid::a; }";
    let (passed, output) = circles_of("no_circle", &[a, b, c, ("d", nothing)]);
    assert!(passed && output.ends_with("none\n"), "{output}");
}
