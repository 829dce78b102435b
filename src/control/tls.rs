//! TLS of the HTTP side: own certificate files, or a generated certificate whose pin is printed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::fault::file;
use crate::config::HttpConfig;
use crate::wire::{Code, Fault};

const CERTIFICATE_FILE: &str = "http-certificate.pem";
const KEY_FILE: &str = "http-key.pem";

/// What the listener speaks TLS with.
#[derive(Clone)]
pub struct HttpTls {
    pub(super) acceptor: TlsAcceptor,
    /// SHA-256 of the certificate as hexadecimal; only for a generated one, whose issuer nobody knows.
    pub pin: Option<String>,
}

/// TLS where files are named or the address leaves loopback; `None` on plain loopback. A generated
/// certificate is kept in `data_dir`, so that its pin stays. Blocks on the disk.
pub fn http_tls(
    config: &HttpConfig,
    address: SocketAddr,
    data_dir: &Path,
) -> Result<Option<HttpTls>, Fault> {
    if !config.tls_certificate.as_os_str().is_empty() {
        return load(&config.tls_certificate, &config.tls_key, false).map(Some);
    }
    if address.ip().is_loopback() {
        return Ok(None);
    }
    let (certificate, key) = (data_dir.join(CERTIFICATE_FILE), data_dir.join(KEY_FILE));
    if !certificate.exists() || !key.exists() {
        generate(config, address, &certificate, &key)?;
    }
    load(&certificate, &key, true).map(Some)
}

fn load(certificate: &Path, key: &Path, generated: bool) -> Result<HttpTls, Fault> {
    let bad = |path: &Path, why: &dyn std::fmt::Display| {
        Fault::new(Code::ConfigInvalid, format!("{}: {why}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, &error))?;
    let first = chain
        .first()
        .ok_or_else(|| bad(certificate, &"holds no certificate"))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, first);
    let pin = generated.then(|| data_encoding::HEXLOWER.encode(digest.as_ref()));
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| Fault::internal(format!("set TLS up: {error}")))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| bad(certificate, &error))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(HttpTls {
        acceptor: TlsAcceptor::from(Arc::new(tls)),
        pin,
    })
}

fn generate(
    config: &HttpConfig,
    address: SocketAddr,
    certificate: &Path,
    key: &Path,
) -> Result<(), Fault> {
    let mut names = vec!["localhost".to_owned(), address.ip().to_string()];
    names.extend(config.allowed_hosts.iter().cloned());
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Fault::internal(format!("generate a certificate: {error}")))?;
    let what = "store the generated certificate";
    write_private(key, made.signing_key.serialize_pem().as_bytes())
        .and_then(|()| write_private(certificate, made.cert.pem().as_bytes()))
        .map_err(|error| file(what, &error))
}

/// Written beside its place and renamed; `tempfile` makes files that only their owner reads.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(dir)?;
    part.write_all(bytes)?;
    part.as_file().sync_all()?;
    part.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_needs_no_tls_and_elsewhere_gets_a_lasting_pin() {
        let dir = tempfile::tempdir().unwrap();
        let config = HttpConfig::default();
        let loopback = "127.0.0.1:1".parse().unwrap();
        assert!(http_tls(&config, loopback, dir.path()).unwrap().is_none());
        let open = "0.0.0.0:1".parse().unwrap();
        let first = http_tls(&config, open, dir.path()).unwrap().unwrap();
        let second = http_tls(&config, open, dir.path()).unwrap().unwrap();
        assert_eq!(first.pin.as_ref().unwrap().len(), 64);
        assert_eq!(first.pin, second.pin);
    }

    #[test]
    fn files_that_are_no_certificate_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cert.pem");
        std::fs::write(&path, "nonsense").unwrap();
        let config = HttpConfig {
            tls_certificate: path.clone(),
            tls_key: path,
            ..HttpConfig::default()
        };
        let address = "127.0.0.1:1".parse().unwrap();
        let fault = http_tls(&config, address, dir.path()).err().unwrap();
        assert_eq!(fault.code, Code::ConfigInvalid);
        assert!(fault.message.contains("cert.pem"));
    }
}
