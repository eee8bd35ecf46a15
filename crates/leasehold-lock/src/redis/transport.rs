//! How Redis servers are reached: in the clear, or by TLS.

#[cfg(feature = "tls")]
use redis::TlsCertificates;
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::SentinelClientBuilder;
use redis::{ConnectionInfo, RedisResult};
#[cfg(feature = "tls")]
use rustls::crypto::{CryptoProvider, ring};

use super::BadRedisUrl;

/// The same for all servers of a URL.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    Plain,
    #[cfg(feature = "tls")]
    Tls(TlsCertificates),
}

impl Transport {
    /// By TLS, trusting the certificates of a file, or those of the system.
    #[cfg(feature = "tls")]
    pub(super) fn encrypted(ca_file: Option<&str>) -> Result<Self, BadRedisUrl> {
        choose_cryptography();
        let read = |path: &str| {
            let path = std::path::PathBuf::from(path);
            crate::tls::read_ca_file(&path).map_err(|source| BadRedisUrl::CaFile { path, source })
        };
        let root_cert = ca_file.map(read).transpose()?;
        Ok(Self::Tls(TlsCertificates { client_tls: None, root_cert }))
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn encrypted(_ca_file: Option<&str>) -> Result<Self, BadRedisUrl> {
        Err(BadRedisUrl::TlsNotBuiltIn)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// Has a server's address say whom to trust.
    pub(super) fn reach(&self, server: ConnectionInfo) -> RedisResult<ConnectionInfo> {
        match self {
            Self::Plain => Ok(server),
            #[cfg(feature = "tls")]
            Self::Tls(certificates) => {
                let client = redis::Client::build_with_tls(server, certificates.clone())?;
                Ok(client.get_connection_info().clone())
            }
        }
    }

    /// Tells a cluster's client, which forgets what the addresses say.
    pub(super) fn reach_cluster(&self, builder: ClusterClientBuilder) -> ClusterClientBuilder {
        match self {
            Self::Plain => builder,
            #[cfg(feature = "tls")]
            Self::Tls(certificates) => builder.certs(certificates.clone()),
        }
    }

    /// Tells Sentinel's client how to reach the master. The Sentinels' own addresses say it by themselves.
    pub(super) fn reach_master(&self, builder: SentinelClientBuilder) -> SentinelClientBuilder {
        match self {
            Self::Plain => builder,
            #[cfg(feature = "tls")]
            Self::Tls(certificates) => builder
                .set_client_to_redis_tls_mode(redis::TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone()),
        }
    }
}

/// The client takes the cryptography of the process, and panics when several are built in and none was chosen.
/// Whatever the program chose before stays.
#[cfg(feature = "tls")]
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster, which is as good.
        let _ = ring::default_provider().install_default();
    }
}
