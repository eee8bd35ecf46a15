//! Where a file lies. SQLite needs a file system of this machine, with locks that work.

use std::path::Path;

/// What is known of a kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// On a disk of this machine.
    Local(&'static str),
    /// In memory: gone after a restart.
    Memory(&'static str),
    /// On another machine.
    Network(&'static str),
    /// Not known here.
    Unknown(u64),
}

/// The numbers that Linux gives to kinds of file systems.
const KINDS: [(u64, Kind); 22] = [
    (0xEF53, Kind::Local("ext4")),
    (0x5846_5342, Kind::Local("xfs")),
    (0x9123_683E, Kind::Local("btrfs")),
    (0x2FC1_2FC1, Kind::Local("zfs")),
    (0xF2F5_2010, Kind::Local("f2fs")),
    (0xCA45_1A4E, Kind::Local("bcachefs")),
    (0x3153_464A, Kind::Local("jfs")),
    (0x5265_4973, Kind::Local("reiserfs")),
    (0x794C_7630, Kind::Local("overlayfs")),
    (0x0102_1994, Kind::Memory("tmpfs")),
    (0x8584_58F6, Kind::Memory("ramfs")),
    (0x6969, Kind::Network("nfs")),
    (0xFF53_4D42, Kind::Network("cifs")),
    (0xFE53_4D42, Kind::Network("smb2")),
    (0x517B, Kind::Network("smb")),
    (0x00C3_6400, Kind::Network("ceph")),
    (0x5346_414F, Kind::Network("afs")),
    (0x6B41_4653, Kind::Network("kafs")),
    (0x7375_7245, Kind::Network("coda")),
    (0x0BD0_0BD0, Kind::Network("lustre")),
    (0x4750_4653, Kind::Network("gpfs")),
    (0x0116_1970, Kind::Network("gfs2")),
];

/// The file system of a path; `None` when it cannot be asked.
pub(super) fn kind_of(path: &Path) -> Option<Kind> {
    let number = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()? & 0xFFFF_FFFF;
    let known = KINDS.iter().find(|(known, _)| *known == number);
    Some(known.map_or(Kind::Unknown(number), |(_, kind)| *kind))
}

/// Whether a path is on another machine, where a file of locks is not safe; `None` when that is not known.
pub fn is_on_network(path: &Path) -> Option<bool> {
    match kind_of(path)? {
        Kind::Local(_) | Kind::Memory(_) => Some(false),
        Kind::Network(_) => Some(true),
        Kind::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_nowhere_are_told_apart() {
        assert_eq!(kind_of(Path::new("/no/such/path")), None);
        if let Some(Kind::Memory(name)) = kind_of(Path::new("/dev/shm")) {
            assert_eq!(name, "tmpfs");
            assert_eq!(is_on_network(Path::new("/dev/shm")), Some(false));
        }
    }
}
