//! The demonstration's PostgreSQL server: one, with an empty database, forgotten at the end.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::process::Signal;

use super::child::{Child, tied_to_us};
use super::packages::{Programs, unprivileged_user};
use super::ports;

/// A running server.
pub(super) struct Postgres {
    child: Child,
    port: u16,
    password: String,
}

impl Postgres {
    /// Makes a database in `folder` and starts its server.
    pub(super) async fn start(programs: &Programs, folder: &Path, password: &str) -> anyhow::Result<Self> {
        let user = unprivileged_user()?;
        let place = folder.join("postgres");
        DirBuilder::new().mode(0o700).create(&place)?;
        // Others on this machine may connect to the port, and a superuser of PostgreSQL may run programs.
        let password_file = place.join("password");
        std::fs::write(&password_file, password)?;
        if let Some(user) = user {
            // It may pass through, and see nothing of what others have there.
            std::fs::set_permissions(folder, Permissions::from_mode(0o711))?;
            for path in [&place, &password_file] {
                chown(path, Some(user.user_id), Some(user.group_id))?;
            }
        }
        let data = place.join("data");
        let mut initdb = tied_to_us(&programs.postgres.join("initdb"), user);
        initdb.arg("-D").arg(&data).arg("--pwfile").arg(&password_file).current_dir(&place);
        // Nothing is worth keeping over a power cut while the database is being made.
        initdb.args(["-U", "postgres", "-A", "scram-sha-256", "--no-locale", "-E", "UTF8", "--no-sync"]);
        let made = tokio::process::Command::from(initdb).kill_on_drop(true).output().await;
        let made = made.context("cannot run initdb")?;
        if !made.status.success() {
            bail!("initdb made no database ({}):\n{}", made.status, String::from_utf8_lossy(&made.stderr));
        }
        let [port] = ports::free()?;
        let mut command = tied_to_us(&programs.postgres.join("postgres"), user);
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]).current_dir(&place);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        let mut child = Child::start("PostgreSQL", command, folder.join("postgres.log"))?;
        let pid = child.pid().to_string();
        child.ready(async || is_ready(&data.join("postmaster.pid"), &pid)).await?;
        Ok(Self { child, port, password: password.to_owned() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres:{}@{}/postgres", self.password, self.address())
    }

    /// Ends it. It closes every connection and finishes no transaction.
    pub(super) async fn stop(self) {
        self.child.stop(Signal::INT).await;
    }
}

/// The server writes its process id and its state into a file, for exactly this question.
fn is_ready(state: &Path, pid: &str) -> bool {
    let state = std::fs::read_to_string(state).unwrap_or_default();
    let lines: Vec<&str> = state.lines().map(str::trim).collect();
    lines.first() == Some(&pid) && lines.get(7) == Some(&"ready")
}
