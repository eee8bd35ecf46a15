//! TLS for PostgreSQL's client, which leaves it to others.
//!
//! Passwords are not tied to the certificate (SCRAM's channel binding): `channel_binding=require` is refused.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::{Connect, TlsConnector, client};

use crate::tls;

/// The name of PostgreSQL's protocol, for servers that listen to several.
const PROTOCOL: &[u8] = b"postgresql";

/// Makes encrypted connections, and remembers whether it has made one.
#[derive(Clone)]
pub(super) struct Encryption {
    config: Arc<ClientConfig>,
    was_used: Arc<AtomicBool>,
}

/// One connection to be encrypted.
pub(super) struct Handshake {
    encryption: Encryption,
    server: ServerName<'static>,
}

/// A handshake under way.
pub(super) struct Shaking<S> {
    connect: Connect<S>,
    was_used: Arc<AtomicBool>,
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(client::TlsStream<S>);

impl Encryption {
    /// Trusts the certificates of a file, and no others.
    pub(super) fn trusting(ca_file: &Path) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in tls::certificates(&tls::read_ca_file(ca_file)?)? {
            roots.add(certificate).map_err(io::Error::other)?;
        }
        Self::with(roots)
    }

    /// Trusts whom the system trusts.
    pub(super) fn trusting_as_the_system() -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let mut found = rustls_native_certs::load_native_certs();
        // One that cannot be read only leaves somebody out who could have been trusted.
        roots.add_parsable_certificates(found.certs);
        if let (true, Some(error)) = (roots.is_empty(), found.errors.pop()) {
            return Err(io::Error::other(error));
        }
        Self::with(roots)
    }

    fn with(roots: RootCertStore) -> io::Result<Self> {
        let cryptography = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(cryptography).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_owned()];
        Ok(Self { config: Arc::new(config), was_used: Arc::default() })
    }

    /// The same for one more connection.
    pub(super) fn anew(&self) -> Self {
        Self { config: Arc::clone(&self.config), was_used: Arc::default() }
    }

    pub(super) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}

impl<S> MakeTlsConnect<S> for Encryption
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        // Of several servers, the one that is tried last counts.
        self.was_used.store(false, Ordering::Relaxed);
        // One without a name is a socket of this machine, and the client encrypts nothing to it.
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(Handshake { encryption: self.clone(), server: ServerName::try_from(host)?.to_owned() })
    }
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Shaking<S>;

    fn connect(self, stream: S) -> Shaking<S> {
        let Encryption { config, was_used } = self.encryption;
        Shaking { connect: TlsConnector::from(config).connect(self.server, stream), was_used }
    }
}

impl<S> Future for Shaking<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    type Output = io::Result<Encrypted<S>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.connect).poll(context).map_ok(|stream| {
            self.was_used.store(true, Ordering::Relaxed);
            Encrypted(stream)
        })
    }
}

impl<S> tokio_postgres::tls::TlsStream for Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S> AsyncRead for Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S> AsyncWrite for Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
