//! A file of locks: where it lies, who may write it, and whether it is whole.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::Chart;
use super::file_system::{Kind, kind_of};

const WRITABLE_BY_ALL: u32 = 0o002;

pub(super) fn examine(url: &str, chart: &mut Chart) {
    let path = url.trim_start_matches("sqlite:");
    let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
    let place = path.display().to_string();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        chart.is_unreachable = true;
        return chart.problem("file", &place, format!("the folder {} does not exist", folder.display()));
    }
    file_system(folder, &place, chart);
    let mode = folder.metadata().map_or(0, |metadata| metadata.permissions().mode());
    if mode & WRITABLE_BY_ALL != 0 {
        let text = "everybody can write the folder, and so replace the file and the locks in it; use a folder of \
                    the jobs' own user";
        chart.warn("rights", &place, text);
    } else {
        chart.ok("rights", &place, "only its users can write the folder");
    }
    chart.ok("version", &place, format!("SQLite {} is built in", rusqlite::version()));
    if !path.exists() {
        return chart.ok("file", &place, "there is no such file yet; it is made when it is first used");
    }
    match look(&path) {
        Ok((mode, whole)) => {
            if mode == "wal" {
                chart.ok(
                    "journal",
                    &place,
                    "write-ahead log: readers and writers do not wait for each other",
                );
            } else {
                chart.warn("journal", &place, format!("journal mode {mode}; it becomes wal at the next use"));
            }
            if whole == "ok" {
                chart.ok("file", &place, "the file is whole");
            } else {
                let text =
                    format!("the file is damaged: {whole}. Stop its users, delete it; it is made anew");
                chart.problem("file", &place, text);
            }
        }
        Err(error) => {
            chart.is_unreachable = true;
            chart.problem("file", &place, format!("it cannot be read as a file of locks: {error}"));
        }
    }
}

fn file_system(folder: &Path, place: &str, chart: &mut Chart) {
    match kind_of(folder) {
        Some(Kind::Local(name)) => chart.ok("file-system", place, format!("{name}, on this machine")),
        Some(Kind::Memory(name)) => {
            let text = format!(
                "{name}, in memory. A restart of the machine deletes the file, and fences begin at 1 again: lower \
                 than those a resource has seen. Use a folder on a disk if fences are checked"
            );
            chart.warn("file-system", place, text);
        }
        Some(Kind::Network(name)) => {
            let text = format!(
                "{name}, on another machine. Each machine has its own clock and takes the others' leases for \
                 leftovers; SQLite's own file locks are not safe there either. Use a local folder, or Redis"
            );
            chart.problem("file-system", place, text);
        }
        Some(Kind::Unknown(number)) => {
            let text =
                format!("a file system that is not known here ({number:#x}); make sure it is a local one");
            chart.warn("file-system", place, text);
        }
        None => chart.warn("file-system", place, "the kind of file system cannot be read"),
    }
}

/// The journal mode, and `ok` or what is wrong.
fn look(path: &Path) -> rusqlite::Result<(String, String)> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    let mode = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let whole = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((mode, whole))
}
