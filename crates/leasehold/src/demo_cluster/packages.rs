//! The programs of other people that the demonstration needs, and the packages that have them.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::child::User;

/// Debian keeps each version's programs in a folder off the path.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Where the programs are.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) redis_server: PathBuf,
    pub(super) redis_cli: PathBuf,
    /// The folder of `initdb` and `postgres`.
    pub(super) postgres: PathBuf,
}

impl Programs {
    /// Finds all of them, or says what to install.
    pub(super) fn find() -> anyhow::Result<Self> {
        Self::choose(on_path("redis-server"), on_path("redis-cli"), postgres(Path::new(POSTGRES_VERSIONS)))
    }

    fn choose(
        redis_server: Option<PathBuf>,
        redis_cli: Option<PathBuf>,
        postgres: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        match (redis_server, redis_cli, postgres) {
            (Some(redis_server), Some(redis_cli), Some(postgres)) => {
                Ok(Self { redis_server, redis_cli, postgres })
            }
            (redis_server, redis_cli, postgres) => {
                let redis = redis_server.and(redis_cli);
                let packages = [("redis-server", redis.is_none()), ("postgresql", postgres.is_none())];
                let missing: Vec<&str> =
                    packages.iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| *name).collect();
                let missing = missing.join(" ");
                bail!(
                    "demo --cluster needs programs that are not installed:\n\n  apt-get install {missing}\n"
                )
            }
        }
    }
}

/// PostgreSQL refuses to be root; its package makes the user `postgres`, and `nobody` is on every system.
pub(super) fn unprivileged_user() -> anyhow::Result<Option<User>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    match user_named(&users, "postgres").or_else(|| user_named(&users, "nobody")) {
        Some(user) => Ok(Some(user)),
        None => bail!("PostgreSQL does not run as root, and there is no user `postgres`"),
    }
}

fn user_named(users: &str, name: &str) -> Option<User> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut ids = line.split(':').skip(2).map(|id| id.parse().ok());
    Some(User { user_id: ids.next()??, group_id: ids.next()?? })
}

/// The folder with the programs of the newest version.
fn postgres(versions: &Path) -> Option<PathBuf> {
    let number = |version: &PathBuf| version.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = std::fs::read_dir(versions).into_iter().flatten().flatten().map(|version| version.path());
    let whole =
        versions.filter(|version| ["bin/initdb", "bin/postgres"].iter().all(|it| version.join(it).is_file()));
    let newest = whole.max_by_key(number).map(|version| version.join("bin"));
    newest.or_else(|| on_path("initdb")?.parent().map(Path::to_owned))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_what_is_missing_is_named() {
        let there = || Some(PathBuf::from("/usr/bin/x"));
        let said = |redis_server, redis_cli, postgres| {
            Programs::choose(redis_server, redis_cli, postgres).unwrap_err().to_string()
        };
        assert!(said(None, None, None).contains("\n  apt-get install redis-server postgresql\n"));
        assert!(said(there(), there(), None).contains("\n  apt-get install postgresql\n"));
        assert!(said(there(), None, there()).contains("\n  apt-get install redis-server\n"));
        assert!(Programs::choose(there(), there(), there()).is_ok());
    }

    #[test]
    fn the_newest_version_that_is_whole_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for (version, programs) in [("9", "initdb postgres"), ("15", "initdb postgres"), ("17", "pg_dump")] {
            let bin = folder.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            programs.split(' ').for_each(|program| std::fs::write(bin.join(program), "").unwrap());
        }
        assert_eq!(postgres(folder.path()), Some(folder.path().join("15/bin")));
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "postgresql:x:7:8::/:\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        let user = user_named(users, "postgres").unwrap();
        assert_eq!((user.user_id, user.group_id), (101, 104));
        assert!(user_named(users, "post").is_none());
    }
}
