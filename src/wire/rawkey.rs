//! TLS 1.3 with raw Ed25519 public keys on both sides (RFC 7250), for the agent link.
//!
//! ```text
//! SubjectPublicKeyInfo of Ed25519 (RFC 8410):  30 2a 30 05 06 03 2b 65 70 03 21 00 | key: 32 bytes
//! ```
//!
//! The agent pins the server's key. The server lets any well-formed key finish the handshake, which
//! proves that the peer holds its private half, and hands the key on: who it is, is decided above.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::codes::{Code, Fault};

/// The protocol name that both ends negotiate.
pub const ALPN: &[u8] = b"wingman/2";
/// The server's key in its data folder.
pub const SERVER_KEY_FILE: &str = "server.key";
/// The agent's key in its data folder.
pub const AGENT_KEY_FILE: &str = "agent.key";

const SPKI_PREFIX: &[u8; 12] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// An Ed25519 public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Lower-case hexadecimal.
    pub fn to_hex(self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse_hex(text: &str) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE
            .decode(text.as_bytes())
            .ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0[..]].concat()
    }

    fn from_spki(der: &[u8]) -> Option<Self> {
        let key = der.strip_prefix(SPKI_PREFIX)?;
        Some(Self(key.try_into().ok()?))
    }
}

/// Why a key could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("read the key {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("write the key {path}: {source}")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Not an Ed25519 key in PKCS #8 form.
    #[error("{path} holds no key of this program")]
    Unreadable { path: PathBuf },
    #[error("set up TLS: {0}")]
    Tls(#[from] Error),
}

impl From<KeyError> for Fault {
    fn from(error: KeyError) -> Self {
        let code = match error {
            KeyError::Read { .. } | KeyError::Write { .. } => Code::StorageFailed,
            KeyError::Unreadable { .. } => Code::ConfigInvalid,
            KeyError::Tls(_) => Code::Internal,
        };
        Fault::new(code, error.to_string())
    }
}

/// A key pair with its PKCS #8 form.
#[derive(Clone)]
pub struct LinkKey {
    pkcs8: Vec<u8>,
    public: PublicKey,
}

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkKey")
            .field("public", &self.public.to_hex())
            .finish_non_exhaustive()
    }
}

impl LinkKey {
    /// A fresh key.
    pub fn generate() -> Self {
        let random = ring::rand::SystemRandom::new();
        // INVARIANT: generation fails only when the system random source does.
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).expect("the random source works");
        // INVARIANT: what was just generated can be read.
        Self::from_pkcs8(pkcs8.as_ref()).expect("a generated key is readable")
    }

    fn from_pkcs8(bytes: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(bytes).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self {
            pkcs8: bytes.to_owned(),
            public,
        })
    }

    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Reads the key file; `None` when there is none.
    pub fn load(path: &Path) -> Result<Option<Self>, KeyError> {
        match std::fs::read(path) {
            Ok(bytes) => match Self::from_pkcs8(&bytes) {
                Some(key) => Ok(Some(key)),
                None => Err(KeyError::Unreadable {
                    path: path.to_owned(),
                }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(KeyError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Writes the key file as a whole, mode 0600.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let write = || -> std::io::Result<()> {
            let dir = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(dir)?;
            // Temporary files are made with mode 0600.
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(&self.pkcs8)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|source| KeyError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads the key file, or makes a key and writes it.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        if let Some(key) = Self::load(path)? {
            return Ok(key);
        }
        let key = Self::generate();
        key.save(path)?;
        Ok(key)
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.pkcs8.clone()));
        let signer = provider.key_provider.load_private_key(der)?;
        let spki = CertificateDer::from(self.public.to_spki());
        Ok(Arc::new(CertifiedKey::new(vec![spki], signer)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The agent's side: own key, pinned server key.
pub fn client_config(key: &LinkKey, pin: PublicKey) -> Result<Arc<ClientConfig>, KeyError> {
    let provider = provider();
    let certified = key.certified(&provider)?;
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedServer { pin, provider }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A raw key has no name to ask for.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// The server's side: own key, any client key.
pub fn server_config(key: &LinkKey) -> Result<Arc<ServerConfig>, KeyError> {
    let provider = provider();
    let certified = key.certified(&provider)?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(AnyAgent { provider }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would skip the proof of the key.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The name that TLS wants and raw keys do not use.
pub fn server_name() -> ServerName<'static> {
    // INVARIANT: a valid DNS name.
    ServerName::try_from("wingman.invalid").expect("a valid name")
}

/// The key that the other side has proven, after the handshake.
pub fn peer_key(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    PublicKey::from_spki(certificates?.first()?.as_ref())
}

/// Folds a failed handshake into a fault: a wrong server key is `pin_mismatch`.
pub fn handshake_fault(error: &std::io::Error) -> Fault {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            Fault::new(Code::PinMismatch, "the server's key is not the pinned one")
        }
        _ => Fault::new(
            Code::LinkClosed,
            format!("the TLS handshake failed: {error}"),
        ),
    }
}

#[derive(Debug)]
struct PinnedServer {
    pin: PublicKey,
    provider: Arc<CryptoProvider>,
}

fn verify(
    provider: &CryptoProvider,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature_with_raw_key(
        message,
        &SubjectPublicKeyInfoDer::from(certificate.as_ref()),
        signature,
        &provider.signature_verification_algorithms,
    )
}

/// TLS 1.2 is switched off, so nobody asks.
fn tls12_refused() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(
        rustls::PeerIncompatible::Tls13RequiredForQuic,
    ))
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if PublicKey::from_spki(end_entity.as_ref()) == Some(self.pin) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls12_refused()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.provider, message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct AnyAgent {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyAgent {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match PublicKey::from_spki(end_entity.as_ref()) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls12_refused()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.provider, message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    async fn handshake(
        pin: PublicKey,
        server: &LinkKey,
        agent: &LinkKey,
    ) -> Result<PublicKey, Fault> {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let acceptor = TlsAcceptor::from(server_config(server).unwrap());
        let connector = TlsConnector::from(client_config(agent, pin).unwrap());
        let accepted = tokio::spawn(async move { acceptor.accept(far).await });
        let connected = connector.connect(server_name(), near).await;
        let stream = connected.map_err(|error| handshake_fault(&error))?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(ALPN));
        let accepted = accepted.await.unwrap().unwrap();
        Ok(peer_key(accepted.get_ref().1.peer_certificates()).unwrap())
    }

    #[tokio::test]
    async fn both_keys_are_proven_and_a_wrong_pin_is_told() {
        let (server, agent) = (LinkKey::generate(), LinkKey::generate());
        let seen = handshake(server.public(), &server, &agent).await;
        assert_eq!(seen, Ok(agent.public()));
        let wrong = handshake(agent.public(), &server, &agent).await;
        assert_eq!(wrong.unwrap_err().code, Code::PinMismatch);
    }

    #[test]
    fn key_file_is_private_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(AGENT_KEY_FILE);
        let made = LinkKey::load_or_create(&path).unwrap();
        let read = LinkKey::load_or_create(&path).unwrap();
        assert_eq!(made.public(), read.public());
        assert_eq!(
            PublicKey::parse_hex(&made.public().to_hex()),
            Some(made.public())
        );
        std::fs::write(&path, b"nonsense").unwrap();
        assert!(matches!(
            LinkKey::load(&path),
            Err(KeyError::Unreadable { .. })
        ));
    }
}
