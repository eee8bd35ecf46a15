//! One step: print a command, run it, say how long it took, stop when it fails.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// A cargo command in the root of the repository.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command to its end. Anything but success is an error that names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    println!("\n$ {shown}");
    let begun = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    let took = begun.elapsed().as_secs_f64();
    if !status.success() {
        bail!("failed after {took:.1} s with {status}: {shown}");
    }
    println!("  done in {took:.1} s");
    Ok(())
}

/// Runs a command to its end without showing what it prints, and returns that.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let shown = show(command);
    println!("\n$ {shown}");
    let begun = Instant::now();
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    let took = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let complaints = String::from_utf8_lossy(&output.stderr);
        bail!("failed after {took:.1} s with {}: {shown}\n{said}{complaints}", output.status);
    }
    println!("  done in {took:.1} s");
    Ok(said)
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let parent = Path::new(&here).parent().expect("xtask is a folder of the repository");
    parent.to_path_buf()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// Builds the command `leasehold` as users get it, and says where it is.
pub(crate) fn release_build() -> Result<PathBuf> {
    run(&mut cargo(["build", "--release", "--locked", "--package", "leasehold"]))?;
    Ok(target().join("release").join("leasehold"))
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    let Some(path) = env::var_os("PATH") else { return false };
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(value)));
        }
    }
    let program = Path::new(command.get_program());
    let is_cargo = program.file_name() == Some(OsStr::new("cargo"));
    words.push(if is_cargo { "cargo".to_owned() } else { quoted(program.as_os_str()) });
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@+%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_quiet_command_said_is_shown_when_it_fails() {
        assert_eq!(output_of(Command::new("echo").arg("well")).unwrap(), "well\n");
        let failed =
            output_of(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap_err();
        let failed = failed.to_string();
        assert!(failed.contains("out") && failed.contains("err") && failed.contains('3'), "{failed}");
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("echo");
        command.args(["plain", "two words", ""]).env("FLAGS", "-D warnings");
        assert_eq!(show(&command), "FLAGS='-D warnings' echo plain 'two words' ''");
    }
}
