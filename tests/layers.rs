//! `scripts/check-layers`: this project passes, and a use of a higher layer is reported with its line.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the script; returns its verdict and its output.
fn check(root: &Path) -> (bool, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/check-layers");
    let output = Command::new(script)
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
