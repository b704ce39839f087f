//! Authorities and certificates, made for one test and gone with it.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_nbd::{Tls, TlsMode};
use stonefold_tls::{Acceptor, Files};

/// Signs certificates, and keeps what it makes in a folder.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// Whom a certificate is for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    Server,
    Client,
    /// A client that has slept too long.
    ExpiredClient,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let authority =
            Authority { folder: tempfile::tempdir().unwrap(), issuer: Issuer::new(params, key), certificate };
        std::fs::write(authority.certificate(), &authority.certificate).unwrap();
        authority
    }

    /// Its own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A certificate and its key, PEM.
    fn issue(&self, whom: For) -> (String, String) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match whom {
            For::Server => ExtendedKeyUsagePurpose::ServerAuth,
            For::Client | For::ExpiredClient => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        if let For::ExpiredClient = whom {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A server's certificate and key.
    pub(crate) fn server(&self) -> Files {
        let (certificate, key) = self.issue(For::Server);
        let files = Files {
            certificate: self.folder.path().join("server.pem"),
            key: self.folder.path().join("server-key.pem"),
        };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }

    /// A folder as libnbd and QEMU take it: who is trusted, and, where this is said, who the client is and who vouches
    /// for that.
    pub(crate) fn client_folder(&self, is: Option<(&Authority, For)>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca-cert.pem", &self.certificate);
        if let Some((authority, whom)) = is {
            let (certificate, key) = authority.issue(whom);
            write("client-cert.pem", &certificate);
            write("client-key.pem", &key);
        }
        folder
    }

    /// What makes a door's TLS; with `clients`, only those are let in for whom this authority vouches.
    pub(crate) fn tls(
        &self,
        mode: TlsMode,
        clients: Option<&Authority>,
    ) -> impl FnOnce(&Env) -> Option<Tls> + Send + 'static {
        let files = self.server();
        let clients = clients.map(Authority::certificate);
        move |env| Some(tls(&files, clients.as_deref(), mode, env))
    }

    /// How a client of ours talks to a server that this authority vouches for.
    pub(crate) fn client_config(&self) -> Arc<rustls::ClientConfig> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn tls(files: &Files, clients: Option<&Path>, mode: TlsMode, env: &Env) -> Tls {
    Tls { acceptor: Acceptor::new(files, clients, env).unwrap(), mode }
}
