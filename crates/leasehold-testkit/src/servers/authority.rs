//! Certificates for servers that speak TLS, made for one test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, SanType,
};
use tempfile::TempDir;

/// Where every server of a test is.
const LOOPBACK: &str = "127.0.0.1";

/// An authority that nobody has heard of before, and that is forgotten with its value.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Arc<TempDir>,
}

/// A server's certificate and its key, in files.
#[derive(Debug, Clone)]
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    /// The files are in it, and it goes with the last certificate.
    _folder: Arc<TempDir>,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        // OpenSSL takes two authorities of one name for the same, and a server of that name for one of them.
        let mut params = named(&format!("authority {}", uuid::Uuid::new_v4()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("an authority signs itself");
        let folder = tempfile::Builder::new().prefix("leasehold-certificates-").tempdir();
        let folder = Arc::new(folder.expect("a temporary folder for certificates"));
        write(&folder.path().join("ca.pem"), &issuer.pem());
        Self { issuer, folder }
    }

    /// The file with the authority's own certificate, for those who shall trust it.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for a server on loopback.
    pub fn certificate(&self) -> Certificate {
        self.certificate_for(LOOPBACK)
    }

    /// A certificate for the server of this name or address, and no other.
    pub fn certificate_for(&self, host: &str) -> Certificate {
        let mut params = named(host);
        params.subject_alt_names = vec![match host.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into().expect("a name that can be in a certificate")),
        }];
        let key_pair = key();
        let signed = params.signed_by(&key_pair, &self.issuer).expect("the authority signs");
        let file = |ending: &str| self.folder.path().join(format!("{host}.{ending}"));
        let (certificate, key) = (file("pem"), file("key"));
        write(&certificate, &signed.pem());
        write(&key, &key_pair.serialize_pem());
        Certificate { certificate, key, ca: self.ca_file(), _folder: Arc::clone(&self.folder) }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificate {
    pub(crate) fn certificate_file(&self) -> &Path {
        &self.certificate
    }

    pub(crate) fn key_file(&self) -> &Path {
        &self.key
    }

    pub(crate) fn ca_file(&self) -> &Path {
        &self.ca
    }

    /// What Redis must be told, server or Sentinel: names and values.
    pub(crate) fn redis_settings(&self, port: u16) -> Vec<(&'static str, String)> {
        let file = |path: &Path| path.display().to_string();
        vec![
            ("tls-port", port.to_string()),
            ("tls-cert-file", file(self.certificate_file())),
            ("tls-key-file", file(self.key_file())),
            ("tls-ca-cert-file", file(self.ca_file())),
            ("tls-auth-clients", "no".to_owned()),
            // Servers speak TLS among themselves too.
            ("tls-replication", "yes".to_owned()),
        ]
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
