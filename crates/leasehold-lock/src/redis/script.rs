//! A script that Redis runs: sent by its hash, and by its text to a server that does not know it yet.

use redis::{Cmd, ToRedisArgs};

/// A script, by its text and its hash.
#[derive(Debug)]
pub struct Lua {
    text: &'static str,
    hash: String,
}

impl Lua {
    /// A script.
    pub fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    /// The command that runs it on a server that knows it.
    pub(super) fn by_hash(&self, keys: &[impl ToRedisArgs + Sync], args: &[impl ToRedisArgs + Sync]) -> Cmd {
        command("EVALSHA", &self.hash, keys, args)
    }

    /// The command that runs it on any server, which knows it from then on.
    pub(super) fn by_text(&self, keys: &[impl ToRedisArgs + Sync], args: &[impl ToRedisArgs + Sync]) -> Cmd {
        command("EVAL", self.text, keys, args)
    }
}

fn command(
    verb: &str,
    script: &str,
    keys: &[impl ToRedisArgs + Sync],
    args: &[impl ToRedisArgs + Sync],
) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.len()).arg(keys).arg(args);
    command
}
