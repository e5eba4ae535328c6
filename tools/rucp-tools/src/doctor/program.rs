//! Which libraries a program loads, or a running process has loaded.

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is known of a program or a process.
#[derive(Debug, Default)]
pub struct LoadedProgram {
    /// The program file.
    pub path: PathBuf,
    /// The loader that it names; `None`: it is linked statically.
    pub loader: Option<PathBuf>,
    /// Set-id bits: the loader ignores `LD_PRELOAD` and `LD_LIBRARY_PATH`.
    pub set_id: bool,
    /// The files of its libraries.
    pub libraries: BTreeSet<PathBuf>,
    /// Libraries that the loader does not find.
    pub missing: Vec<String>,
    /// Files of `LD_PRELOAD` that do not exist or are no libraries.
    pub preloads_missing: Vec<String>,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// It is running: the libraries are those that it has loaded.
    pub running: bool,
}

/// A library as a UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcxKind {
    Rucp,
    Genuine,
}

impl LoadedProgram {
    /// A program that is to be started. A script is judged by its interpreter.
    ///
    /// # Errors
    /// There is no such program, or it cannot be read.
    pub fn of_file(name: &str) -> Result<LoadedProgram, String> {
        let path = interpreter_of(&find(name).ok_or(format!("no program {name}"))?)?;
        let metadata = fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut program = LoadedProgram {
            loader: loader_of(&path)?,
            set_id: metadata.permissions().mode() & 0o6000 != 0,
            preloads_missing: missing_preloads(),
            environment: std::env::vars().collect(),
            path,
            ..LoadedProgram::default()
        };
        if let Some(loader) = program.loader.clone() {
            let (libraries, missing) = dependencies(&loader, &program.path)?;
            program.libraries = libraries;
            program.missing = missing;
        }
        Ok(program)
    }

    /// A running process.
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn of_process(pid: i32) -> Result<LoadedProgram, String> {
        let text = |e: procfs::ProcError| format!("process {pid}: {e}");
        let process = procfs::process::Process::new(pid).map_err(text)?;
        let maps = process.maps().map_err(text)?;
        // Of a container, files are found through the root of the process.
        let root = match mount_namespace("self") == mount_namespace(&pid.to_string()) {
            true => String::new(),
            false => format!("/proc/{pid}/root"),
        };
        let here = |path: &Path| PathBuf::from(format!("{root}{}", path.display()));
        let files = maps.iter().filter_map(|map| match &map.pathname {
            procfs::process::MMapPath::Path(path) => Some(path),
            _ => None,
        });
        let libraries = files.filter(|path| file_name(path).contains(".so"));
        let libraries = libraries.map(|path| here(path)).collect();
        let environment = process.environ().unwrap_or_default();
        let owned = |s: &std::ffi::OsString| s.to_string_lossy().into_owned();
        let path = here(&process.exe().map_err(text)?);
        Ok(LoadedProgram {
            loader: loader_of(&path).unwrap_or_default(),
            path,
            libraries,
            environment: environment
                .iter()
                .map(|(k, v)| (owned(k), owned(v)))
                .collect(),
            running: true,
            ..LoadedProgram::default()
        })
    }

    /// The libraries that have the functions of UCP, each file once.
    pub fn ucps(&self) -> Vec<(&Path, UcxKind)> {
        ucps(&self.libraries)
    }

    /// The library whose file name begins so.
    pub fn library(&self, prefix: &str) -> Option<&Path> {
        named(&self.libraries, prefix)
    }

    /// A variable of its environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }
}

/// The library whose file name begins so.
pub fn named<'a>(libraries: &'a BTreeSet<PathBuf>, prefix: &str) -> Option<&'a Path> {
    let has = |path: &&PathBuf| file_name(path).starts_with(prefix);
    libraries.iter().find(has).map(PathBuf::as_path)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The libraries that have the functions of UCP, each file once.
pub fn ucps(libraries: &BTreeSet<PathBuf>) -> Vec<(&Path, UcxKind)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for path in libraries {
        let name = file_name(path);
        // An MPI may have a UCX linked in.
        if !["libucp", "libmpi", "librucp"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            continue;
        }
        let identity = fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
        if let Some(kind) = kind_of(path).filter(|_| seen.insert(identity)) {
            found.push((path.as_path(), kind));
        }
    }
    found
}

/// Whether a library has the functions of UCP, and whose.
fn kind_of(path: &Path) -> Option<UcxKind> {
    let bytes = fs::read(path).ok()?;
    let file: ElfFile64 = ElfFile64::parse(&*bytes).ok()?;
    let mut kind = None;
    for symbol in file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
    {
        match symbol.name() {
            // A function that no other library has.
            Ok("ucpx_cq_create") => return Some(UcxKind::Rucp),
            Ok("ucp_init_version") => kind = Some(UcxKind::Genuine),
            _ => (),
        }
    }
    kind
}

/// Identity of a process's mount namespace.
fn mount_namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// The program that a shell would start.
fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The interpreter of a script; the file itself if it is none.
fn interpreter_of(path: &Path) -> Result<PathBuf, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let Some(line) = bytes.strip_prefix(b"#!") else {
        return Ok(path.to_owned());
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_whitespace();
    let interpreter = words.next().unwrap_or_default();
    let name = match interpreter.ends_with("/env") {
        true => words
            .find(|word| !word.starts_with('-'))
            .unwrap_or_default(),
        false => interpreter,
    };
    find(name).ok_or(format!("{}: no interpreter {name}", path.display()))
}

/// The loader that a program names.
fn loader_of(path: &Path) -> Result<Option<PathBuf>, String> {
    let text = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let bytes = fs::read(path).map_err(|e| text(&e))?;
    let header = elf::FileHeader64::<object::Endianness>::parse(&*bytes).map_err(|e| text(&e))?;
    let endian = header.endian().map_err(|e| text(&e))?;
    let parts = header
        .program_headers(endian, &*bytes)
        .map_err(|e| text(&e))?;
    let interpreter = parts
        .iter()
        .find_map(|part| part.interpreter(endian, &*bytes).ok().flatten());
    Ok(interpreter.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned())))
}

/// The files that the loader would load for a program or a library, with the `LD_*` of the environment, and the names
/// that it does not find. Nothing of the program runs.
pub fn dependencies(
    loader: &Path,
    path: &Path,
) -> Result<(BTreeSet<PathBuf>, Vec<String>), String> {
    let mut command = Command::new(loader);
    if file_name(loader).starts_with("ld-linux") {
        // As ldd does: `--list` stops at the first library that is missing.
        command.env("LD_TRACE_LOADED_OBJECTS", "1");
    } else {
        command.arg("--list");
    }
    let output = command
        .arg(path)
        .output()
        .map_err(|e| format!("{}: {e}", loader.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut found, mut missing) = (BTreeSet::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        // `libm.so.6 => /lib/libm.so.6 (0x7f…)`, `/lib/libucp.so.0 (0x7f…)`, `libucp.so.0 => not found`
        let (name, target) = line.split_once(" => ").unwrap_or((line, line));
        if target == "not found" {
            missing.push(name.to_owned());
        } else if let Some((file, _)) = target.split_once(" (")
            && file.starts_with('/')
        {
            found.insert(PathBuf::from(file));
        }
    }
    Ok((found, missing))
}

/// The files of `LD_PRELOAD` that the loader cannot load: it prints one line and goes on.
pub fn missing_preloads() -> Vec<String> {
    let value = std::env::var("LD_PRELOAD").unwrap_or_default();
    let names = value.split([':', ' ']).filter(|name| !name.is_empty());
    // Names without a slash are searched for by the loader.
    let paths = names.filter(|name| name.contains('/'));
    let is_library = |name: &str| {
        fs::read(name).is_ok_and(|bytes| ElfFile64::<object::Endianness>::parse(&*bytes).is_ok())
    };
    paths
        .filter(|name| !is_library(name))
        .map(str::to_owned)
        .collect()
}
