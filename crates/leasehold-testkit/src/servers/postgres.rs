//! One PostgreSQL server with a database of its own.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tokio_postgres::{Client, NoTls};

use super::authority::Certificate;
use super::clock::ClockShift;
use super::instance::{Instance, Place, Program};
use super::spawner::{self, User};
use crate::signals;

/// Who may connect to a server with TLS: everybody on this machine who uses it.
const TLS_ONLY: &str = "hostssl all all 127.0.0.1/32 trust\n";

/// How a PostgreSQL server is started.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    args: Vec<String>,
    clock: Option<ClockShift>,
    certificate: Option<Certificate>,
}

/// A PostgreSQL server. It is gone when this is dropped.
#[derive(Debug)]
pub struct Postgres {
    instance: Instance,
}

#[derive(Debug)]
struct PostgresProgram {
    /// Where `initdb` and `postgres` are.
    programs: PathBuf,
    /// Whom it runs as: PostgreSQL refuses to be root.
    user: Option<User>,
    options: PostgresOptions,
}

impl PostgresOptions {
    /// The same with more arguments: `&["-c", "max_connections=300"]`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// The same by this clock.
    pub fn clock(mut self, clock: &ClockShift) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// The same by TLS, and in no other way.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.certificate = Some(certificate.clone());
        self
    }

    /// Makes an empty database and starts the server; panics with its log when it does not start.
    pub fn start(&self) -> Postgres {
        let user = rustix::process::geteuid().is_root().then(unprivileged_user);
        let program = PostgresProgram { programs: programs(), user, options: self.clone() };
        Postgres { instance: Instance::start(program) }
    }
}

impl Postgres {
    /// A server with an empty database, open to everybody on this machine as the user `postgres`.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// For a server with something different.
    pub fn options() -> PostgresOptions {
        PostgresOptions::default()
    }

    /// The same as [`start`](Self::start) with more arguments: `&["-c", "max_connections=300"]`.
    pub fn start_with(args: &[&str]) -> Self {
        Self::options().args(args).start()
    }

    /// `postgres://postgres@127.0.0.1:port/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// A connection, as whoever may do everything.
    pub async fn client(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url(), NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        client
    }

    /// `127.0.0.1:port`, the same after a restart.
    pub fn address(&self) -> String {
        self.instance.place().address()
    }

    /// The port alone.
    pub fn port(&self) -> u16 {
        self.instance.place().port()
    }

    /// The id of the process that starts all the others.
    pub fn pid(&self) -> u32 {
        self.instance.pid()
    }

    /// True from its start until it is killed or stopped; a paused one counts as running.
    pub fn is_running(&self) -> bool {
        self.instance.is_running()
    }

    /// Kills all its processes without a word, as a power cut would, and waits until they are gone.
    pub fn kill9(&mut self) {
        self.instance.kill9();
    }

    /// Stops the world for all its processes, and waits until they stand still.
    pub fn pause(&mut self) {
        self.instance.pause();
    }

    /// Lets it go on after a pause.
    pub fn resume(&mut self) {
        self.instance.resume();
    }

    /// Asks it to end, and waits for it. It closes every connection and finishes no transaction.
    pub fn stop(&mut self) {
        self.instance.stop();
    }

    /// Starts it again with its data, after it was killed or stopped.
    pub fn restart(&mut self) {
        self.instance.restart();
    }

    /// Starts it again with an empty database.
    pub fn restart_empty(&mut self) {
        self.instance.restart_empty();
    }
}

impl Program for PostgresProgram {
    fn prepare(&self, place: &Place) {
        if let Some(user) = self.user {
            for folder in [place.folder().to_owned(), place.data()] {
                chown(&folder, Some(user.user_id), Some(user.group_id))
                    .unwrap_or_else(|error| panic!("cannot give {} away: {error}", folder.display()));
            }
        }
        let mut initdb = spawner::tied_to_us(&self.programs.join("initdb"), self.user);
        initdb.arg("-D").arg(place.data()).current_dir(place.folder());
        // Nothing is worth keeping over a power cut while the database is being made.
        initdb.args(["-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync"]);
        let output = initdb.output().unwrap_or_else(|error| panic!("cannot run {initdb:?}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{initdb:?}: {}\n{said}", output.status);
        if let Some(certificate) = &self.options.certificate {
            self.copy(certificate.certificate_file(), &place.data().join("server.crt"));
            self.copy(certificate.key_file(), &place.data().join("server.key"));
            std::fs::write(place.data().join("pg_hba.conf"), TLS_ONLY)
                .expect("who may connect can be written");
        }
    }

    fn command(&self, place: &Place) -> Command {
        let mut command = spawner::tied_to_us(&self.programs.join("postgres"), self.user);
        command.arg("-D").arg(place.data()).args(["-p", &place.port().to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        if self.options.certificate.is_some() {
            command.args(["-c", "ssl=on"]);
        }
        command.args(&self.options.args);
        if let Some(clock) = &self.options.clock {
            clock.set_for(&mut command);
        }
        command
    }

    /// The server writes its process id and its state into a file, for exactly this question.
    fn is_ready(&self, place: &Place, pid: u32) -> bool {
        let state = signals::read_lossy(&place.data().join("postmaster.pid"));
        let lines: Vec<&str> = state.lines().map(str::trim).collect();
        lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
    }

    fn stop_signal(&self) -> Signal {
        Signal::INT
    }
}

impl PostgresProgram {
    /// Gives the server a file that it takes only if nobody else can read it.
    fn copy(&self, from: &Path, to: &Path) {
        let copied = std::fs::copy(from, to).and_then(|_| {
            std::fs::set_permissions(to, Permissions::from_mode(0o600))?;
            match self.user {
                Some(user) => chown(to, Some(user.user_id), Some(user.group_id)),
                None => Ok(()),
            }
        });
        copied.unwrap_or_else(|error| panic!("cannot give the server {}: {error}", to.display()));
    }
}

/// The programs of the newest version installed; Debian keeps each version's in a folder off the path.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|version| version.path())
        .filter(|version| version.join("bin/initdb").is_file())
        .max_by_key(number)
        .map(|version| version.join("bin"));
    newest.unwrap_or_else(|| {
        let initdb = spawner::on_path("initdb", "postgresql");
        initdb.parent().expect("a program is in a folder").to_owned()
    })
}

/// Debian's package makes the user `postgres`; `nobody` is on every system.
fn unprivileged_user() -> User {
    let user = User::named("postgres").or_else(|| User::named("nobody"));
    user.expect("a user that is not root")
}
