//! Targets as QEMU's block layer names them (QEMU, qapi/block-core.json, `BlockdevOptions`).

use crate::target::TargetSpec;
use crate::target::nbd::Place;
use serde_json::{Value, json};
use stonefold_types::{Error, Kind, Result};

/// Seconds that QEMU waits for a server that hung up, before what was asked of it fails.
const RECONNECT_SECONDS: u32 = 10;

/// A node of this name over a target, around the page cache.
///
/// # Errors
/// [`Kind::Unsupported`] where QEMU has no driver for it.
pub(super) fn node(name: &str, target: &TargetSpec) -> Result<Value> {
    let cache = json!({ "direct": true, "no-flush": false });
    let below = match target {
        TargetSpec::File(path) => {
            json!({ "driver": "file", "filename": text(path)?, "cache": cache, "discard": "unmap", "locking": "off" })
        }
        TargetSpec::Device(path) => {
            json!({ "driver": "host_device", "filename": text(path)?, "cache": cache, "discard": "unmap", "locking": "off" })
        }
        TargetSpec::Nbd(address) => {
            let server = match address.place() {
                Place::Tcp(host, port) => json!({ "type": "inet", "host": host, "port": port.to_string() }),
                Place::Unix(path) => json!({ "type": "unix", "path": text(path)? }),
            };
            json!({ "driver": "nbd", "server": server, "export": address.export(), "reconnect-delay": RECONNECT_SECONDS })
        }
        TargetSpec::Directory(_) | TargetSpec::Stonefold(_) | TargetSpec::Null => {
            return Err(Error::new(Kind::Unsupported, format!("{target} cannot be moved")).remedy(
                "name a file, a block device or an export: file:PATH, dev:PATH, nbd:// or nbd+unix://",
            ));
        }
    };
    Ok(json!({ "driver": "raw", "node-name": name, "cache": cache, "discard": "unmap", "file": below }))
}

fn text(path: &std::path::Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::new(Kind::Invalid, format!("'{}' is not UTF-8, as QEMU wants it", path.display()))
            .remedy("give it a name that is")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_target_has_its_driver() {
        let of = |text: &str| node("n", &text.parse().unwrap());
        assert_eq!(of("file:/srv/x").unwrap()["file"]["driver"], "file");
        assert_eq!(of("dev:/dev/sdb").unwrap()["file"]["driver"], "host_device");
        let tcp = of("nbd://host:99/web").unwrap();
        assert_eq!(tcp["file"]["server"]["port"], "99");
        assert_eq!(tcp["file"]["export"], "web");
        assert_eq!(of("nbd+unix:///?socket=/run/s").unwrap()["file"]["server"]["path"], "/run/s");
        for none in ["null:", "dir:/srv", "stonefold:web"] {
            assert_eq!(of(none).unwrap_err().kind(), Kind::Unsupported, "{none}");
        }
    }
}
