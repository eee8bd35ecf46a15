//! Settings of the server: flag over environment over file over default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_engine::SecretKey;
use leasehold_lock::{Redis, StoreOptions};
use leasehold_server::{Network, Operators, Rate, ServerConfig};
use serde::Deserialize;

use crate::locks::LockStore;
use crate::logging::LogFormat;

/// Every setting. What is absent comes from the configuration file, else from the defaults.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Address and port to listen on [default: 127.0.0.1:7070]
    #[arg(long, env = "LEASEHOLD_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// The data file, created when absent [default: ./leasehold.db]
    #[arg(long, env = "LEASEHOLD_DATA", value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,

    /// The ledger, in place of a data file, for any number of servers: postgres://USER@HOST/DATABASE
    #[arg(long, env = "LEASEHOLD_LEDGER", value_name = "URL", hide_env_values = true)]
    pub(crate) ledger: Option<String>,

    /// A gate in front of the ledger, which turns away those who come too late: redis://HOST, redis-cluster://HOST,HOST,
    /// redis-sentinel://HOST,HOST/MASTER, or with rediss for TLS
    #[arg(long, env = "LEASEHOLD_GATE", value_name = "URL", hide_env_values = true)]
    pub(crate) gate: Option<String>,

    /// A file with the key that hold secrets are made with, 64 hexadecimal digits, the same for every server on a
    /// ledger; or the variable LEASEHOLD_SECRET_KEY with the digits themselves
    #[arg(long, env = "LEASEHOLD_SECRET_KEY_FILE", value_name = "FILE")]
    pub(crate) secret_key_file: Option<PathBuf>,

    /// The store of the locks: redis://HOST, rediss://HOST by TLS, redis-cluster://HOST,HOST, postgres://HOST/DATABASE,
    /// sqlite:FILE, ... [default: a file beside the data file, with .locks at its end, or the ledger's database]
    #[arg(long, env = "LEASEHOLD_LOCKS", value_name = "URL", hide_env_values = true)]
    pub(crate) locks: Option<String>,

    /// What stands before the names in the keys of Redis [default: lock:]
    #[arg(long, env = "LEASEHOLD_LOCK_PREFIX", value_name = "TEXT")]
    pub(crate) lock_prefix: Option<String>,

    /// The PostgreSQL database that hands out epochs, for fences on Redis: postgres://HOST/DATABASE?sslmode=require
    #[arg(long, env = "LEASEHOLD_LOCK_EPOCHS", value_name = "URL", hide_env_values = true)]
    pub(crate) lock_epochs: Option<String>,

    /// Listen beyond this machine although anyone who can connect can sell, cancel and block
    #[arg(long, env = "LEASEHOLD_INSECURE_LISTEN_WITHOUT_KEYS", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) insecure_listen_without_keys: Option<bool>,

    /// Let the console be used from other machines although anyone who can connect can then see and revoke everything
    #[arg(long, env = "LEASEHOLD_INSECURE_CONSOLE_WITHOUT_KEYS", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) insecure_console_without_keys: Option<bool>,

    /// Refuse writes without an Idempotency-Key
    #[arg(long, env = "LEASEHOLD_REQUIRE_IDEMPOTENCY_KEY", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) require_idempotency_key: Option<bool>,

    /// Requests a second of one address, with an optional burst: 50 or 50:200 [default: no limit]
    #[arg(long, env = "LEASEHOLD_ADDRESS_RATE", value_name = "RATE")]
    pub(crate) address_rate: Option<String>,

    /// New holds a second of one event, with an optional burst [default: no limit]
    #[arg(long, env = "LEASEHOLD_EVENT_RATE", value_name = "RATE")]
    pub(crate) event_rate: Option<String>,

    /// A proxy whose X-Forwarded-For is believed: 10.0.0.7 or 10.0.0.0/8; more with commas
    #[arg(long, env = "LEASEHOLD_TRUSTED_PROXIES", value_name = "NETWORKS")]
    pub(crate) trusted_proxies: Option<String>,

    /// Connections at a time [default: 8192]
    #[arg(long, env = "LEASEHOLD_CONNECTIONS_MAX", value_name = "N")]
    pub(crate) connections_max: Option<usize>,

    /// Seconds that requests get to finish when the server stops [default: 10]
    #[arg(long, env = "LEASEHOLD_DRAIN_SECONDS", value_name = "N")]
    pub(crate) drain_seconds: Option<u64>,

    /// What to log: error, warn, info, debug, or directives such as leasehold_server=debug [default: info]
    #[arg(long, env = "LEASEHOLD_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// How to log [default: text on a terminal, else json]
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// The variable with the secret key itself: a flag would show it to everybody on the machine.
const SECRET_KEY: &str = "LEASEHOLD_SECRET_KEY";

/// Where events, holds and sales are kept.
#[derive(Clone)]
pub(crate) enum Store {
    /// In a data file of this server's own.
    File(PathBuf),
    /// In a database that servers share.
    Ledger {
        /// Where.
        url: String,
        /// What hold secrets are made with.
        key: SecretKey,
        /// The Redis in front of it.
        gate: Option<String>,
    },
}

impl std::fmt::Debug for Store {
    /// Without the ledger's address, which may have a password in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(data) => f.debug_tuple("File").field(data).finish(),
            Self::Ledger { .. } => f.write_str("Ledger"),
        }
    }
}

impl Settings {
    /// These settings, with what they leave open taken from a file.
    pub(crate) fn or_from(self, file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(self) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: Settings =
            toml::from_str(&text).with_context(|| format!("{} is not valid", path.display()))?;
        Ok(Self {
            listen: self.listen.or(file.listen),
            data: self.data.or(file.data),
            ledger: self.ledger.or(file.ledger),
            gate: self.gate.or(file.gate),
            secret_key_file: self.secret_key_file.or(file.secret_key_file),
            locks: self.locks.or(file.locks),
            lock_prefix: self.lock_prefix.or(file.lock_prefix),
            lock_epochs: self.lock_epochs.or(file.lock_epochs),
            insecure_listen_without_keys: self
                .insecure_listen_without_keys
                .or(file.insecure_listen_without_keys),
            insecure_console_without_keys: self
                .insecure_console_without_keys
                .or(file.insecure_console_without_keys),
            require_idempotency_key: self.require_idempotency_key.or(file.require_idempotency_key),
            address_rate: self.address_rate.or(file.address_rate),
            event_rate: self.event_rate.or(file.event_rate),
            trusted_proxies: self.trusted_proxies.or(file.trusted_proxies),
            connections_max: self.connections_max.or(file.connections_max),
            drain_seconds: self.drain_seconds.or(file.drain_seconds),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
        })
    }

    /// Where events, holds and sales are kept.
    pub(crate) fn store(&self) -> anyhow::Result<Store> {
        let Some(url) = &self.ledger else {
            if self.gate.is_some() {
                bail!("--gate stands in front of a ledger: say where that is with --ledger");
            }
            let data = self.data.clone().unwrap_or_else(|| PathBuf::from("./leasehold.db"));
            return Ok(Store::File(data));
        };
        if self.data.is_some() {
            bail!("--data is a file and --ledger a database: choose one");
        }
        let key = match (&self.secret_key_file, std::env::var(SECRET_KEY)) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path);
                text.with_context(|| format!("cannot read the secret key in {}", path.display()))?
            }
            (None, Ok(digits)) => digits,
            (None, Err(_)) => bail!(
                "a ledger needs --secret-key-file or {SECRET_KEY}: the key that hold secrets are made with, the same \
                 for every server; `openssl rand -hex 32` makes one"
            ),
        };
        if let Some(gate) = &self.gate {
            // Opening connects nothing, and says what is wrong with the URL.
            Redis::open(gate).context("--gate")?;
        }
        Ok(Store::Ledger { url: url.clone(), key: secret_key(key.trim())?, gate: self.gate.clone() })
    }

    pub(crate) fn lock_store(&self) -> anyhow::Result<LockStore> {
        let options = StoreOptions { prefix: self.lock_prefix.clone(), epochs: self.lock_epochs.clone() };
        match &self.locks {
            Some(url) => Ok(LockStore::Url { url: url.clone(), options }),
            None if options.prefix.is_some() || options.epochs.is_some() => {
                bail!("--lock-prefix and --lock-epochs are for locks on Redis: say where it is with --locks")
            }
            // Servers that share a ledger share their locks.
            None => Ok(match &self.ledger {
                Some(url) => LockStore::Url { url: url.clone(), options },
                None => LockStore::BesideData,
            }),
        }
    }

    /// The address to listen on, if that is safe or was asked for in so many words.
    pub(crate) fn listen(&self) -> anyhow::Result<SocketAddr> {
        let listen = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 7070)));
        if !listen.ip().is_loopback() && self.insecure_listen_without_keys != Some(true) {
            bail!(
                "refusing to listen on {listen}: there are no API keys yet, so anyone who can connect could create \
                 events, revoke holds and cancel sales. Listen on 127.0.0.1 behind your own service, or say \
                 --insecure-listen-without-keys if the network itself keeps strangers out"
            );
        }
        Ok(listen)
    }

    pub(crate) fn server(&self) -> anyhow::Result<ServerConfig> {
        let defaults = ServerConfig::default();
        let proxies = self.trusted_proxies.as_deref().unwrap_or_default().split(',').map(str::trim);
        let proxies = proxies.filter(|proxy| !proxy.is_empty()).map(str::parse::<Network>);
        Ok(ServerConfig {
            connections_max: self.connections_max.unwrap_or(defaults.connections_max),
            drain_timeout: self.drain_seconds.map_or(defaults.drain_timeout, Duration::from_secs),
            address_rate: self.address_rate.as_deref().map(rate).transpose().context("--address-rate")?,
            event_rate: self.event_rate.as_deref().map(rate).transpose().context("--event-rate")?,
            trusted_proxies: proxies.collect::<Result<_, _>>().context("--trusted-proxies")?,
            require_idempotency_key: self.require_idempotency_key.unwrap_or(false),
            operators: match self.insecure_console_without_keys {
                Some(true) => Operators::Anywhere,
                Some(false) | None => Operators::ThisMachine,
            },
            ..defaults
        })
    }
}

/// Reads 64 hexadecimal digits. They are not part of any message.
fn secret_key(digits: &str) -> anyhow::Result<SecretKey> {
    let mut bytes = [0; 32];
    let plain = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !plain {
        bail!("the secret key is not 64 hexadecimal digits");
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).context("the digits are ASCII")?;
        *byte = u8::from_str_radix(pair, 16).context("the digits are hexadecimal")?;
    }
    Ok(SecretKey::from_bytes(bytes))
}

/// Reads `50` or `50:200`.
fn rate(text: &str) -> anyhow::Result<Rate> {
    let (per_second, burst) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("`{text}` is not a number above 0"),
    };
    Ok(Rate { per_second: number(per_second)?, burst: number(burst)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_unless_told_otherwise() {
        let mut settings = Settings { listen: Some("0.0.0.0:7070".parse().unwrap()), ..Settings::default() };
        let refusal = settings.listen().unwrap_err().to_string();
        assert!(refusal.contains("no API keys"), "{refusal}");
        settings.insecure_listen_without_keys = Some(true);
        assert!(settings.listen().is_ok());
        assert!(Settings::default().listen().unwrap().ip().is_loopback());
    }

    #[test]
    fn the_console_is_for_this_machine_unless_told_otherwise() {
        let operators = |told| {
            let settings = Settings { insecure_console_without_keys: told, ..Settings::default() };
            settings.server().unwrap().operators
        };
        assert_eq!(operators(None), Operators::ThisMachine);
        assert_eq!(operators(Some(false)), Operators::ThisMachine);
        assert_eq!(operators(Some(true)), Operators::Anywhere);
    }

    #[test]
    fn a_flag_is_over_the_file_and_the_file_knows_no_typos() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.toml");
        std::fs::write(&path, "listen = \"127.0.0.1:1\"\nevent_rate = \"5:9\"\n").unwrap();
        let flags = Settings { listen: Some("127.0.0.1:2".parse().unwrap()), ..Settings::default() };
        let merged = flags.or_from(Some(&path)).unwrap();
        assert_eq!(merged.listen.unwrap().port(), 2);
        assert_eq!(merged.server().unwrap().event_rate, Some(Rate { per_second: 5, burst: 9 }));
        std::fs::write(&path, "lissten = \"127.0.0.1:1\"\n").unwrap();
        assert!(Settings::default().or_from(Some(&path)).is_err());
    }

    #[test]
    fn options_of_redis_want_a_redis() {
        let settings = Settings { lock_prefix: Some("app:".to_owned()), ..Settings::default() };
        assert!(settings.lock_store().is_err());
        let settings = Settings { locks: Some("redis://localhost".to_owned()), ..settings };
        assert!(matches!(settings.lock_store().unwrap(), LockStore::Url { .. }));
        assert!(matches!(Settings::default().lock_store().unwrap(), LockStore::BesideData));
    }

    #[test]
    fn a_ledger_wants_a_key_and_no_file_and_has_the_locks_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, format!("{}\n", "0f".repeat(32))).unwrap();
        let settings = Settings {
            ledger: Some("postgres://localhost/shop".to_owned()),
            secret_key_file: Some(path.clone()),
            ..Settings::default()
        };
        let Store::Ledger { key, .. } = settings.store().unwrap() else { panic!("a ledger") };
        assert_eq!(*key.as_bytes(), [15; 32]);
        assert!(Settings { data: Some("x.db".into()), ..settings.clone() }.store().is_err());
        assert!(
            matches!(settings.lock_store().unwrap(), LockStore::Url { url, .. } if Some(&url) == settings.ledger.as_ref())
        );
        std::fs::write(&path, "0f").unwrap();
        let refusal = settings.store().unwrap_err().to_string();
        assert!(refusal.contains("64 hexadecimal digits"), "{refusal}");
        assert!(matches!(Settings::default().store().unwrap(), Store::File(_)));
    }

    #[test]
    fn a_gate_is_a_redis_in_front_of_a_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let (key, file) = (folder.path().join("key"), folder.path().join("leasehold.toml"));
        std::fs::write(&key, "0f".repeat(32)).unwrap();
        std::fs::write(&file, "gate = \"redis://127.0.0.1\"\n").unwrap();
        let alone = Settings { secret_key_file: Some(key), ..Settings::default() };
        let alone = alone.or_from(Some(&file)).unwrap();
        let refusal = alone.store().unwrap_err().to_string();
        assert!(refusal.contains("--ledger"), "{refusal}");

        let ledger = Settings { ledger: Some("postgres://localhost/shop".to_owned()), ..alone };
        let gated = |url: &str| {
            let flag = Settings { gate: Some(url.to_owned()), ..ledger.clone() };
            flag.or_from(Some(&file)).unwrap().store()
        };
        for url in [
            "redis://127.0.0.1",
            "redis-cluster://a:1,b:2",
            "redis-sentinel://a:1,b:2/shop",
            "rediss://cache",
            "rediss-cluster://a:1,b:2",
        ] {
            let Store::Ledger { gate, .. } = gated(url).unwrap() else { panic!("a ledger") };
            assert_eq!(gate.as_deref(), Some(url), "the flag goes before the file");
        }
        for url in ["redlock://a,b,c", "postgres://:hunter2@db/shop", "127.0.0.1:6379"] {
            let refusal = format!("{:#}", gated(url).unwrap_err());
            assert!(refusal.contains("--gate") && refusal.contains("redis-cluster://"), "{refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
    }

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("50").unwrap(), Rate { per_second: 50, burst: 50 });
        assert!(rate("0").is_err());
        assert!(rate("5:x").is_err());
    }
}
