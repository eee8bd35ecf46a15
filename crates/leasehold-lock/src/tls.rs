//! What every encrypted connection here has in common: whom it trusts, and what it makes of a refusal.
//!
//! Certificates and host names are always verified. Trusted are the certificates of a file that the URL names
//! and no others, or else those of the system, where `SSL_CERT_FILE` and `SSL_CERT_DIR` have a say.

use std::io;
use std::path::Path;

use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The text of a file of certificates, which has at least one.
pub(crate) fn read_ca_file(path: &Path) -> io::Result<Vec<u8>> {
    let text = std::fs::read(path)?;
    certificates(&text)?;
    Ok(text)
}

/// The certificates in a text. None at all would mean to trust nobody, which nobody asks for.
pub(crate) fn certificates(text: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "there are no certificates in it; they begin with -----BEGIN CERTIFICATE-----",
        )),
        Ok(found) => Ok(found),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Whether a connection failed because the two sides do not agree on TLS. Nothing was asked of the server
/// then, and it will go the same way again.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        tls,
        Some(
            rustls::Error::InvalidCertificate(_)
                | rustls::Error::NoCertificatesPresented
                | rustls::Error::PeerIncompatible(_)
                | rustls::Error::AlertReceived(
                    AlertDescription::CertificateRequired
                        | AlertDescription::HandshakeFailure
                        | AlertDescription::ProtocolVersion
                )
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_no_ca_file() {
        let error = certificates(b"not a certificate").unwrap_err();
        assert!(error.to_string().contains("no certificates"), "{error}");
        assert!(read_ca_file(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn only_a_handshake_that_cannot_succeed_is_a_refusal() {
        let of = |error: rustls::Error| is_refusal(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(of(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)));
        assert!(!of(rustls::Error::DecryptError), "that can happen to an answer too");
        assert!(!is_refusal(&io::Error::from(io::ErrorKind::ConnectionReset)));
    }
}
