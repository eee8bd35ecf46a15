//! Every example runs, and ends well: each checks for itself what it shows. What the page about fences has to
//! be copied does what the page says.
//!
//! The examples are built beside the tests (`cargo test` and `cargo nextest run` without a choice of targets do
//! that; `cargo build -p leasehold-lock --examples` does only that).

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testkit::servers::RedisServer;
use rusqlite::named_params;

const FENCE_PAGE: &str = include_str!("../../../docs/locks-fence.md");

#[test]
fn every_example_ends_well() {
    let names = names();
    assert!(names.len() >= 6, "the examples have moved: {names:?}");
    let failures: Vec<String> = names.iter().filter_map(|name| run(name).err()).collect();
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

fn run(name: &str) -> Result<(), String> {
    let program = folder().join(name);
    if !program.is_file() {
        let build = "cargo build -p leasehold-lock --examples";
        return Err(format!("{name}: {} is missing; build it with `{build}`", program.display()));
    }
    let output = Command::new(&program).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{name}: {}\n{said}{complained}", output.status))
}

/// The examples that the repository has, built or not.
fn names() -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = std::fs::read_dir(sources).expect("the crate has examples");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// `target/debug/examples` for a test that is `target/debug/deps/examples-0123456789abcdef`.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile = test.parent().and_then(Path::parent).expect("it is two folders below the target");
    profile.join("examples")
}

#[test]
fn sql_snippets_about_fences_accept_what_is_equal_and_refuse_what_is_lower() {
    let blocks = snippets("sql");
    let statements: Vec<&str> = blocks.iter().flat_map(|block| block.split_inclusive(";\n")).collect();
    let [column, advance, write, table, advance_named] = statements.as_slice() else {
        panic!("the page has changed: {statements:?}")
    };
    let database = rusqlite::Connection::open_in_memory().unwrap();
    let rows = "CREATE TABLE invoices (id BIGINT, status TEXT); INSERT INTO invoices VALUES (42, 'open');";
    database.execute_batch(&[rows, column, table].concat()).unwrap();
    let changed = |statement: &str, id: &dyn rusqlite::ToSql, fence: u64| {
        database.execute(statement, named_params! { "$1": id, "$2": fence }).unwrap()
    };
    assert_eq!(changed(advance, &42, 5), 1);
    assert_eq!(changed(write, &42, 5), 1);
    assert_eq!(changed(write, &42, 5), 1, "one holder writes several times");
    assert_eq!(changed(advance, &42, 6), 1, "the next holder");
    assert_eq!((changed(write, &42, 5), changed(advance, &42, 5)), (0, 0), "a late write");
    for (fence, expected) in [(5, 1), (5, 1), (6, 1), (5, 0)] {
        assert_eq!(changed(advance_named, &"invoices", fence), expected, "{fence}");
    }
}

#[test]
fn lua_snippets_about_fences_accept_what_is_equal_and_refuse_what_is_lower() {
    let blocks = snippets("lua");
    let [script] = blocks.as_slice() else { panic!("the page has changed: {blocks:?}") };
    let redis = RedisServer::start();
    for (fence, accepted) in [("5", 1), ("5", 1), ("10", 1), ("9", 0), ("10", 1)] {
        let value = format!("written with {fence}");
        let eval = ["EVAL", script, "2", "invoice:42", "invoice:42:fence", fence, &value];
        assert_eq!(redis.command::<u8>(&eval), accepted, "{fence}");
    }
    assert_eq!(redis.command::<String>(&["GET", "invoice:42"]), "written with 10");
}

/// The blocks of the page in this language, without their comments.
fn snippets(language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let blocks = FENCE_PAGE.split(&begin).skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("a block ends"));
    let code = |block: &str| {
        block.lines().filter(|line| !line.starts_with("--")).map(|line| format!("{line}\n")).collect()
    };
    blocks.map(code).collect()
}
