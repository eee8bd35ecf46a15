//! Connections to PostgreSQL, in the clear or by TLS.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection};

#[cfg(feature = "tls")]
use super::tls;
use crate::error::StoreError;

/// A connection that is not there by then is not coming.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// A connection whose other end does not acknowledge anything for so long is gone, unless the URL says otherwise. The
/// system would go on trying for a quarter of an hour.
const ACKNOWLEDGE_TIME_MAX: Duration = Duration::from_secs(10);
/// One that only listens finds out so long after the last word.
const ASK_FOR_LIFE_AFTER: Duration = Duration::from_secs(15);

/// A URL that names no database, or one that cannot be reached in the way it says.
#[derive(Debug, thiserror::Error)]
pub enum BadPostgresUrl {
    /// Not a URL of PostgreSQL's.
    #[error("not the URL of a PostgreSQL database")]
    Url(#[source] tokio_postgres::Error),
    /// It asks for TLS, which this program does not have.
    #[error("TLS is not built into this program; build it with the feature `tls`")]
    TlsNotBuiltIn,
    /// The certificates to trust.
    #[error("cannot use the certificates of sslrootcert, {}", path.display())]
    CaFile {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The certificates to trust, where the URL names none.
    #[error("cannot read the certificates that this system trusts")]
    SystemCertificates(#[source] io::Error),
}

/// A PostgreSQL database, and how it is reached: what `postgres://user@host/database?sslmode=require` says.
///
/// A server's certificate is verified whenever TLS is used. What this prints of itself has no password.
#[derive(Debug, Clone)]
pub struct Database {
    config: Config,
    #[cfg(feature = "tls")]
    encryption: tls::Encryption,
}

/// A connection to PostgreSQL.
#[derive(Debug)]
pub struct Connected {
    /// Asks.
    pub client: Client,
    /// Whether it is by TLS.
    pub is_encrypted: bool,
    /// The task that carries what is asked and answered. It ends with its client; ended before, it closes the connection.
    pub driver: JoinHandle<()>,
}

impl Database {
    /// Reads a URL, and the certificates to trust. Nothing is connected yet.
    pub fn at(url: &str) -> Result<Self, BadPostgresUrl> {
        let (url, ca_file) = without_ca_file(url);
        let mut config: Config = url.parse().map_err(BadPostgresUrl::Url)?;
        config.connect_timeout(CONNECT_TIME_MAX);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(ACKNOWLEDGE_TIME_MAX);
        }
        if !url.contains("keepalives_idle") {
            config.keepalives_idle(ASK_FOR_LIFE_AFTER);
        }
        let wants_tls = config.get_ssl_mode() == SslMode::Require || ca_file.is_some();
        if wants_tls && !cfg!(feature = "tls") {
            return Err(BadPostgresUrl::TlsNotBuiltIn);
        }
        Ok(Self {
            config,
            #[cfg(feature = "tls")]
            encryption: encryption(ca_file)?,
        })
    }

    /// The same under a name that the database's operator sees.
    pub fn named(mut self, application: &str) -> Self {
        self.config.application_name(application);
        self
    }

    /// Connects as `sslmode` says. A certificate that cannot be trusted is refused in every mode but `disable`.
    pub async fn connect(&self) -> Result<Connected, tokio_postgres::Error> {
        // Nobody is told anything.
        let (told, _) = mpsc::unbounded_channel();
        self.connect_telling(told).await
    }

    /// The same, and what the database says to those who listen is passed on. The channel ends with the connection.
    pub(super) async fn connect_listening(
        &self,
        told: mpsc::UnboundedSender<String>,
    ) -> Result<Client, tokio_postgres::Error> {
        Ok(self.connect_telling(told).await?.client)
    }

    #[cfg(feature = "tls")]
    async fn connect_telling(
        &self,
        told: mpsc::UnboundedSender<String>,
    ) -> Result<Connected, tokio_postgres::Error> {
        let encryption = self.encryption.anew();
        let (client, connection) = self.config.connect(encryption.clone()).await?;
        let driver = tokio::spawn(drive(connection, told));
        Ok(Connected { client, is_encrypted: encryption.was_used(), driver })
    }

    #[cfg(not(feature = "tls"))]
    async fn connect_telling(
        &self,
        told: mpsc::UnboundedSender<String>,
    ) -> Result<Connected, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(tokio_postgres::NoTls).await?;
        let driver = tokio::spawn(drive(connection, told));
        Ok(Connected { client, is_encrypted: false, driver })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

#[cfg(feature = "tls")]
fn encryption(ca_file: Option<PathBuf>) -> Result<tls::Encryption, BadPostgresUrl> {
    match ca_file {
        Some(path) => {
            tls::Encryption::trusting(&path).map_err(|source| BadPostgresUrl::CaFile { path, source })
        }
        None => tls::Encryption::trusting_as_the_system().map_err(BadPostgresUrl::SystemCertificates),
    }
}

/// Takes out of a URL what PostgreSQL's own library knows and this client does not: `sslrootcert=FILE`, and
/// `sslmode=verify-full`, which is what `require` means here.
fn without_ca_file(url: &str) -> (String, Option<PathBuf>) {
    let Some((address, query)) = url.split_once('?').filter(|(address, _)| address.contains("://")) else {
        return (url.to_owned(), None);
    };
    let mut ca_file = None;
    let mut rest: Vec<&str> = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslrootcert", "system")) => ca_file = None,
            Some(("sslrootcert", path)) => ca_file = Some(path),
            Some(("sslmode", "verify-full")) => rest.push("sslmode=require"),
            _ => rest.push(pair),
        }
    }
    let decoded = |path| percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
    (format!("{address}?{}", rest.join("&")), ca_file.map(|path| PathBuf::from(decoded(path))))
}

/// Drives a connection until its client is dropped, or until the error that the next query reports.
async fn drive<S, T>(mut connection: Connection<S, T>, told: mpsc::UnboundedSender<String>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notification(said)) => {
                // Whoever listened may have gone.
                let _ = told.send(said.payload().to_owned());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection to PostgreSQL ended");
                return;
            }
        }
    }
}

/// Sorts an error by what its receiver can do about it.
pub(crate) fn failure(error: tokio_postgres::Error) -> StoreError {
    #[cfg(feature = "tls")]
    if let Some(source) = std::error::Error::source(&error)
        && source.downcast_ref().is_some_and(crate::tls::is_refusal)
    {
        return StoreError::Refused(error.into());
    }
    match error.code() {
        Some(code) if is_no(code) => StoreError::Refused(error.into()),
        _ => StoreError::Unknown(error.into()),
    }
}

/// Whether the database will say the same next time: a wrong password, a right that is missing, a standby. All
/// others pass: it starts, stops, is full, or had to undo one of several.
fn is_no(code: &SqlState) -> bool {
    const PASSING: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];
    *code == SqlState::READ_ONLY_SQL_TRANSACTION || !PASSING.contains(&&code.code()[..2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_clients_of_postgres_know_is_understood() {
        let (url, ca_file) =
            without_ca_file("postgres://ada@db/app?sslmode=verify-full&sslrootcert=/etc/my%20ca.pem");
        assert_eq!(url, "postgres://ada@db/app?sslmode=require");
        assert_eq!(ca_file, Some(PathBuf::from("/etc/my ca.pem")));
        assert_eq!(without_ca_file("postgres://db?sslrootcert=system").1, None);
        assert_eq!(without_ca_file("host=db user=ada").0, "host=db user=ada");
    }

    #[test]
    fn no_password_is_shown() {
        let database = Database::at("postgres://ada:hunter2@db/app?connect_timeout=1").unwrap();
        assert!(!format!("{database:?}").contains("hunter2"), "{database:?}");
        let error = Database::at("postgres://ada:hunter2@db/app?sslmode=perhaps").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error =
            Database::at("postgres://db/app?sslmode=require&sslrootcert=/no/such/ca.pem").unwrap_err();
        assert!(error.to_string().contains("/no/such/ca.pem"), "{error}");
    }
}
