//! The walls of the repository, checked by reading its files.
//!
//! What the compiler and clippy can check is theirs. Here stands what they cannot: which crate may know
//! which, what the rules in `leasehold-core` must not touch, and what no file may contain.

use std::fs;
use std::path::{Path, PathBuf};

/// Which crates of the workspace each crate may depend on. Arrows point down only.
const ARROWS: [(&str, &[&str]); 8] = [
    ("leasehold-core", &[]),
    ("leasehold-api", &[]),
    // The ledger and its gate are reached as stores of locks are, and a lease elects who sweeps.
    ("leasehold-engine", &["leasehold-core", "leasehold-lock"]),
    ("leasehold-lock", &["leasehold-core"]),
    ("leasehold-server", &["leasehold-api", "leasehold-core", "leasehold-engine", "leasehold-lock"]),
    ("leasehold-client", &["leasehold-api"]),
    // For tests only: nothing may depend on it except in `[dev-dependencies]`. Its suites drive engines and lock stores;
    // its checker, which judges, knows neither.
    (
        "leasehold-testkit",
        &["leasehold-api", "leasehold-client", "leasehold-core", "leasehold-engine", "leasehold-lock"],
    ),
    (
        "leasehold",
        &[
            "leasehold-api",
            "leasehold-client",
            "leasehold-core",
            "leasehold-engine",
            "leasehold-lock",
            "leasehold-server",
        ],
    ),
];

/// All that the rules may depend on. None of these reads a clock, does I/O or knows a format.
const CORE_DEPENDENCIES: [&str; 3] = ["hashbrown", "thiserror", "unicode-normalization"];

/// Words that must not stand in the code of the rules.
const CORE_FORBIDDEN: [&str; 15] = [
    "SystemTime",
    "Instant::now",
    "time::Instant",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "async fn",
    "async move",
    ".await",
    "tokio",
    "serde",
    "rusqlite",
];

const LINES_MAX: usize = 700;

/// Endings of the files whose text is checked; anything else is data.
const TEXT: [&str; 12] = ["rs", "md", "toml", "js", "sql", "lua", "json", "yml", "yaml", "sh", "html", "css"];

#[test]
fn the_rules_touch_no_clock_no_io_no_async_and_no_format() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.shown.starts_with("crates/leasehold-core/src/")) {
        for (number, line) in code_lines(&file.text) {
            for word in CORE_FORBIDDEN.iter().filter(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: {word}", file.shown));
            }
        }
    }
    let manifest = read(&root().join("crates/leasehold-core/Cargo.toml"));
    for name in dependencies(&manifest) {
        if !CORE_DEPENDENCIES.contains(&name.as_str()) {
            found.push(format!("crates/leasehold-core/Cargo.toml: {name} is not in CORE_DEPENDENCIES"));
        }
    }
    none(found);
}

#[test]
fn checker_knows_nothing_of_what_it_judges() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.shown.starts_with("crates/leasehold-testkit/src/checker")) {
        for (number, line) in code_lines(&file.text) {
            if line.contains("leasehold_core") || line.contains("leasehold_engine") {
                found.push(format!("{}:{number}: judges by the rules it must judge", file.shown));
            }
        }
    }
    none(found);
}

#[test]
fn arrows_between_crates_point_down_only() {
    let mut found = Vec::new();
    for name in folders(&root().join("crates")) {
        let manifest = read(&root().join("crates").join(&name).join("Cargo.toml"));
        let Some((_, allowed)) = ARROWS.iter().find(|(crate_name, _)| *crate_name == name) else {
            found.push(format!("crates/{name}: ARROWS does not say what it may depend on"));
            continue;
        };
        for dependency in dependencies(&manifest) {
            if dependency.starts_with("leasehold") && !allowed.contains(&dependency.as_str()) {
                found.push(format!("crates/{name}: must not depend on {dependency}"));
            }
        }
    }
    none(found);
}

#[test]
fn no_test_is_skipped_and_nothing_is_left_for_later() {
    // Written in two halves, so that this file does not find itself.
    let words = [
        concat!("#[ig", "nore"),
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
    ];
    let mut found = Vec::new();
    for file in files() {
        for (number, line) in lines(&file.text) {
            for word in words.iter().filter(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: {word}", file.shown));
            }
        }
    }
    none(found);
}

#[test]
fn every_rust_file_begins_by_saying_what_it_is_for() {
    let silent = |file: &&File| file.shown.ends_with(".rs") && !file.text.starts_with("//! ");
    none(files().iter().filter(silent).map(|file| file.shown.clone()).collect());
}

#[test]
fn no_rust_file_is_too_long_to_read() {
    let long = |file: &&File| file.shown.ends_with(".rs") && file.text.lines().count() > LINES_MAX;
    none(
        files().iter().filter(long).map(|file| format!("{}: above {LINES_MAX} lines", file.shown)).collect(),
    );
}

#[test]
fn no_file_names_a_path_of_somebodys_machine() {
    let places =
        [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let mut found = Vec::new();
    for file in files() {
        for (number, line) in lines(&file.text) {
            for place in places.iter().filter(|place| line.contains(**place)) {
                found.push(format!("{}:{number}: {place}", file.shown));
            }
        }
    }
    none(found);
}

#[test]
fn every_page_has_exactly_one_title() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.shown.ends_with(".md")) {
        let titles = prose_lines(&file.text).filter(|line| line.starts_with("# ")).count();
        if titles != 1 {
            found.push(format!("{}: {titles} titles", file.shown));
        }
        if !file.text.starts_with("# ") {
            found.push(format!("{}: does not begin with its title", file.shown));
        }
    }
    none(found);
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.shown.ends_with(".md")) {
        let folder = root().join(&file.shown).parent().expect("a file has a folder").to_path_buf();
        for line in prose_lines(&file.text) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = link.split('#').next().unwrap_or_default();
                let elsewhere = path.is_empty() || path.contains("://");
                if !elsewhere && !folder.join(path).exists() {
                    found.push(format!("{}: {link}", file.shown));
                }
            }
        }
    }
    none(found);
}

#[test]
fn every_lock_store_is_described_under_the_same_headings() {
    let wanted = ["## Guarantee", "## Mechanism", "## Clocks", "## What it cannot do", "## Options"];
    let mut found = Vec::new();
    for store in ["memory", "sqlite", "postgres", "redis", "redis-sentinel", "redis-cluster", "redlock"] {
        let page = format!("docs/locks-{store}.md");
        let text = read(&root().join(&page));
        let headings: Vec<&str> = prose_lines(&text).filter(|line| line.starts_with("## ")).collect();
        if !headings.starts_with(&wanted) {
            found.push(format!("{page}: begins with {headings:?}"));
        }
    }
    none(found);
}

#[test]
fn every_problem_code_is_documented() {
    let source = read(&root().join("crates/leasehold-api/src/problem.rs"));
    let (_, names) = source.split_once("fn as_str(self)").expect("problem.rs names its codes");
    let names = names.split("fn status(self)").next().unwrap_or_default();
    let page = read(&root().join("docs/http-api.md"));
    let codes: Vec<&str> = names.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert!(codes.len() > 20, "problem.rs has changed its shape: {} codes", codes.len());
    let unknown = |code: &&&str| !page.lines().any(|line| line.starts_with(&format!("| `{code}` | ")));
    none(codes.iter().filter(unknown).map(|code| format!("docs/http-api.md: no row for {code}")).collect());
}

#[test]
fn every_problem_code_is_one_that_the_server_gives() {
    let source = read(&root().join("crates/leasehold-api/src/problem.rs"));
    let (_, all) = source.split_once("pub const ALL").expect("problem.rs lists its codes");
    let all = all.split("];").next().unwrap_or_default();
    let codes: Vec<&str> = all.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    assert!(codes.len() > 20, "problem.rs has changed its shape: {} codes", codes.len());
    let server: Vec<File> =
        files().into_iter().filter(|file| file.shown.starts_with("crates/leasehold-server/src/")).collect();
    let given = |code: &str| {
        let ends = |rest: &str| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric());
        server.iter().any(|file| file.text.split(code).skip(1).any(ends))
    };
    none(codes.iter().filter(|code| !given(code)).map(|code| format!("{code} is never given")).collect());
}

#[test]
fn the_walls_are_seen_when_they_are_broken() {
    let manifest = "[dependencies]\nserde.workspace = true\n# tokio = 1\n[dependencies.rusqlite]\nversion = 1\n\
                    [dev-dependencies]\nproptest = 1\n[target.'cfg(unix)'.dependencies]\nlibc = { version = 1 }\n";
    assert_eq!(dependencies(manifest), ["serde", "rusqlite", "libc"]);
    let code: Vec<_> = code_lines("// async fn in words\nasync fn f() {} // serde\n").collect();
    assert_eq!(code, [(2, "async fn f() {} ")]);
    let page = "# One\n```\n# a comment in a shell\n```\ntext\n";
    assert_eq!(prose_lines(page).collect::<Vec<_>>(), ["# One", "text"]);
}

/// A text file of the repository.
struct File {
    /// Its path from the root.
    shown: String,
    text: String,
}

fn files() -> Vec<File> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    found.sort();
    assert!(found.len() > 20, "the walk went wrong: {} files", found.len());
    found.into_iter().map(|path| File { shown: shown(&path), text: read(&path) }).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the repository can be read") {
        let path = entry.expect("the repository can be read").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "scratch", ".git"].contains(&name.as_str()) {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|ending| TEXT.iter().any(|text| ending == *text)) {
            found.push(path);
        }
    }
}

fn folders(parent: &Path) -> Vec<String> {
    let entries = fs::read_dir(parent).expect("the repository can be read");
    let paths = entries.map(|entry| entry.expect("the repository can be read").path());
    let mut names: Vec<String> = paths
        .filter(|path| path.join("Cargo.toml").is_file())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

/// The names in a manifest's tables of dependencies, those for tests left out.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            inside = header.ends_with("dependencies") && !header.ends_with("dev-dependencies");
            if let Some((table, name)) = header.rsplit_once("dependencies.")
                && !table.ends_with("dev-")
            {
                names.push(name.to_owned());
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', '=', ' ']).next().map(str::to_owned));
        }
    }
    names
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// Lines without their comments; empty ones are left out.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(text)
        .map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
        .filter(|(_, line)| !line.trim().is_empty())
}

/// The lines of a page that are not inside a fenced block.
fn prose_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").to_path_buf()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).expect("the walk began at the root").to_string_lossy().replace('\\', "/")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
