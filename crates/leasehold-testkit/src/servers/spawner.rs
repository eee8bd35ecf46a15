//! Starts programs that end with the test, however the test ends.
//!
//! The kernel sends a child its death signal when the *thread* that started it ends, and tests run on
//! threads that come and go. So one thread starts every server, and lives as long as the process.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

/// A command, and where its child goes.
struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// Whom a program runs as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub(crate) user_id: u32,
    pub(crate) group_id: u32,
}

static SPAWNER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    let spawner = std::thread::Builder::new().name("server-spawner".to_owned());
    let run = move || {
        for Order { mut command, answer } in inbox {
            // Whoever asked may have panicked meanwhile; then the child is dropped and must not stay.
            if let Err(unclaimed) = answer.send(command.spawn())
                && let Ok(mut child) = unclaimed.0
            {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    };
    spawner.spawn(run).expect("a thread for starting servers");
    orders
});

/// Starts a command made by [`tied_to_us`].
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (answer, child) = channel();
    SPAWNER.send(Order { command, answer }).expect("the spawner lives as long as the process");
    child.recv().expect("the spawner answers every order")
}

/// A command that runs `program`, as `user` if one is given, and is killed when this process ends.
pub(crate) fn tied_to_us(program: &Path, user: Option<User>) -> Command {
    let mut command = Command::new(on_path("setpriv", "util-linux"));
    if let Some(user) = user {
        let (user_id, group_id) = (user.user_id.to_string(), user.group_id.to_string());
        command.args(["--reuid", &user_id, "--regid", &group_id, "--clear-groups", "--"]);
        // A new user id takes the death signal back, so it is asked for after that.
        command.arg("setpriv");
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

impl User {
    /// The user of this name, if there is one.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(|id| id.parse().ok());
        Some(Self { user_id: ids.next()??, group_id: ids.next()?? })
    }
}

/// Where a program is; panics with the Debian package to install when it is nowhere.
pub(crate) fn on_path(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    let found = places.find(|place| place.is_file());
    let install = format!("apt-get install --no-install-recommends {package}");
    found.unwrap_or_else(|| panic!("`{program}` is not installed: {install}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_the_package_that_has_it() {
        let panicked = std::panic::catch_unwind(|| on_path("no-such-program", "some-package"));
        let message = panicked.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("`no-such-program`"), "{message}");
        assert!(message.contains("apt-get install --no-install-recommends some-package"), "{message}");
    }
}
