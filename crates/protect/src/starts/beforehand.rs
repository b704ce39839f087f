//! What can be seen of a machine before anything of it is made.

use crate::Protection;
use crate::domain::Network;
use crate::hypervisor::{Host, Limits, Virsh, Where, memory_bytes};
use crate::recoveries::Recovery;
use stonefold_types::{Error, Kind, Result};

impl Protection {
    /// Whether a machine could be started with a recovery, as far as that can be seen without one: with its description, its limits, and the libvirt
    /// that is to have it.
    ///
    /// # Errors
    /// Whatever is in the way; [`Kind::AlreadyExists`] where that libvirt has a domain of its name.
    pub async fn check_start(
        &self,
        recovery: &Recovery,
        to: &Where,
        limits: &Limits,
        network: &Network,
    ) -> Result<()> {
        let of = (&recovery.name, recovery.hardware.as_ref());
        Host::draw(to, &self.env, of, &self.hypervisors)?;
        limits.check(memory_bytes(&recovery.name, recovery.hardware.as_ref())?)?;
        let Where::Libvirt(uri) = to else {
            let Network::Named(network) = network else { return Ok(()) };
            let what = format!("'{network}' is a network of libvirt's, which a QEMU by itself does not know");
            return Err(Error::new(Kind::Invalid, what).remedy(
                "say isolated, or leave the network out: then it is as the machine's description has it",
            ));
        };
        let virsh = Virsh { env: &self.env, uri };
        if virsh.state(recovery.name.as_str()).await?.is_some() {
            let what = format!("libvirt at '{uri}' has a domain '{}' already", recovery.name);
            return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name: --as NAME"));
        }
        match network {
            Network::Named(network) => virsh.check_network(network).await,
            Network::Same | Network::Isolated => Ok(()),
        }
    }
}
