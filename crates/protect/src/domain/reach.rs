//! Where a hypervisor finds a disk.

use super::escaped;
use stonefold_types::ExportName;

/// How long QEMU keeps a guest's requests while the server is away: longer than an upgrade or a restart of its machine's services takes.
pub(crate) const RECONNECT_DELAY_S: u32 = 300;

/// Where a hypervisor reaches the exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By a Unix socket at this path.
    Socket(String),
    /// By TCP.
    Tcp {
        /// A name or an address.
        host: String,
        /// Its port.
        port: u16,
        /// Whether it must use TLS.
        secret: bool,
    },
}

impl Reach {
    /// A disk's source, as libvirt writes it. One older than 9.1 does not know how to wait for a server, and leaves that out.
    pub(super) fn source_of(&self, export: &ExportName) -> String {
        let name = escaped(&export.to_string());
        let (tls, host) = match self {
            Reach::Socket(path) => ("", format!("transport='unix' socket='{}'", escaped(path))),
            Reach::Tcp { host, port, secret } => {
                let tls = if *secret { " tls='yes'" } else { "" };
                (tls, format!("name='{}' port='{port}'", escaped(host)))
            }
        };
        let wait = format!("<reconnect delay='{RECONNECT_DELAY_S}'/>");
        format!("<source protocol='nbd' name='{name}'{tls}><host {host}/>{wait}</source>")
    }
}
