//! What libvirt is asked for and what it tells, of backups and checkpoints.
//!
//! <https://libvirt.org/formatbackup.html>, <https://libvirt.org/formatcheckpoint.html>. One incremental and the next of each disk by itself
//! (`backupmode`) is known to libvirt since 7.4.

use crate::domain::escaped;
use roxmltree::Document;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The bitmap that is exported: a copy of what has changed since the last point.
pub(super) const LOOKED_UP: &str = "stonefold-look";

/// A disk of a domain that is backed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackedUp {
    /// As the guest sees it: `vda`.
    pub(super) target: String,
    /// Where libvirt keeps what the guest overwrites meanwhile.
    pub(super) scratch: PathBuf,
    /// Its image can have a bitmap.
    pub(super) keeps: bool,
    /// What has changed since the last point is told.
    pub(super) is_known: bool,
}

/// A backup that is pulled by NBD from `socket`, each disk by its target; since the checkpoint `last` where that tells.
pub(super) fn backup(socket: &Path, disks: &[BackedUp], last: Option<&str>) -> String {
    let socket = escaped(&socket.to_string_lossy());
    let mut xml =
        format!("<domainbackup mode='pull'>\n  <server transport='unix' socket='{socket}'/>\n  <disks>\n");
    for disk in disks {
        let (target, scratch) = (escaped(&disk.target), escaped(&disk.scratch.to_string_lossy()));
        let mode = match last.filter(|_| disk.is_known) {
            Some(last) => {
                format!("backupmode='incremental' incremental='{}' exportbitmap='{LOOKED_UP}'", escaped(last))
            }
            None => "backupmode='full'".to_owned(),
        };
        // A String takes everything.
        let _ = write!(
            xml,
            "    <disk name='{target}' backup='yes' type='file' exportname='{target}' {mode}>\n      \
            <driver type='qcow2'/>\n      <scratch file='{scratch}'/>\n    </disk>\n"
        );
    }
    xml + "  </disks>\n</domainbackup>\n"
}

/// A checkpoint of the disks that can have one; nothing where none can.
pub(super) fn checkpoint(name: &str, disks: &[BackedUp]) -> Option<String> {
    disks.iter().any(|disk| disk.keeps).then(|| {
        let of = |disk: &BackedUp| {
            let kind = if disk.keeps { "bitmap" } else { "no" };
            format!("    <disk name='{}' checkpoint='{kind}'/>\n", escaped(&disk.target))
        };
        let disks: String = disks.iter().map(of).collect();
        format!(
            "<domaincheckpoint>\n  <name>{}</name>\n  <disks>\n{disks}  </disks>\n</domaincheckpoint>\n",
            escaped(name)
        )
    })
}

/// The disks of which a checkpoint has bitmaps, by their targets.
pub(super) fn marked(checkpoint: &str) -> Vec<String> {
    let Ok(document) = Document::parse(checkpoint) else { return Vec::new() };
    let disks = document.descendants().filter(|node| node.has_tag_name("disk"));
    let marked = disks.filter(|disk| disk.attribute("checkpoint") == Some("bitmap"));
    marked.filter_map(|disk| disk.attribute("name").map(str::to_owned)).collect()
}

/// Whether a backup is served on this socket.
pub(super) fn is_served_on(backup: &str, socket: &Path) -> bool {
    Document::parse(backup).is_ok_and(|document| {
        let mut servers = document.descendants().filter(|node| node.has_tag_name("server"));
        servers.any(|server| server.attribute("socket").map(Path::new) == Some(socket))
    })
}

/// The user that a domain's QEMU runs as, where its description says so by number.
pub(super) fn user(description: &str) -> Option<u32> {
    let document = Document::parse(description).ok()?;
    let mut labels = document.root_element().children().filter(|node| node.has_tag_name("seclabel"));
    let label = labels.find(|label| label.attribute("model") == Some("dac"))?;
    let text = label.children().find(|child| child.has_tag_name("label"))?.text()?;
    text.trim().strip_prefix('+')?.split(':').next()?.parse().ok()
}

/// Whether libvirt complains that an image can have no bitmap, without a word of which: qcow2 of version 2 (compat=0.10).
pub(super) fn knows_no_bitmaps(complaint: &str) -> bool {
    complaint.contains("bitmaps in qcow2 v2")
}

/// The disk whose bitmap libvirt complains of.
pub(super) fn broken(complaint: &str) -> Option<&str> {
    let (before, of_disk) = complaint.split_once("disk '")?;
    let (disk, _) = of_disk.split_once('\'')?;
    (before.contains("bitmap") || before.contains("heckpoint")).then_some(disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(target: &str, keeps: bool, is_known: bool) -> BackedUp {
        BackedUp { target: target.into(), scratch: format!("/i/{target}<'&").into(), keeps, is_known }
    }

    #[test]
    fn what_libvirt_is_asked_for_is_what_it_understands() {
        let disks = [disk("vda", true, true), disk("vdb", false, false)];
        let socket = Path::new("/run/x & y/nbd.sock");
        let asked = backup(socket, &disks, Some("stonefold-1f-2"));
        assert!(is_served_on(&asked, socket) && !is_served_on(&asked, Path::new("/run/other")));
        let document = Document::parse(&asked).unwrap();
        let mut told = document.descendants().filter(|node| node.has_tag_name("disk"));
        let (vda, vdb) = (told.next().unwrap(), told.next().unwrap());
        assert_eq!(vda.attribute("incremental"), Some("stonefold-1f-2"));
        assert_eq!((vdb.attribute("backupmode"), vdb.attribute("incremental")), (Some("full"), None));
        let scratch = document.descendants().find(|node| node.has_tag_name("scratch")).unwrap();
        assert_eq!(scratch.attribute("file"), Some("/i/vda<'&"));
        assert_eq!(marked(&checkpoint("c", &disks).unwrap()), ["vda"]);
        assert_eq!(checkpoint("c", &disks[1..]), None);
        assert!(marked("<no").is_empty());
        let domain = "<domain><seclabel type='dynamic' model='apparmor'><label>libvirt-1</label></seclabel>\
            <seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+109</label></seclabel></domain>";
        assert_eq!((user(domain), user("<domain/>")), (Some(64055), None));
    }

    #[test]
    fn the_disk_that_is_complained_of_is_found() {
        let missing = "libvirt at 'qemu:///system' refuses 'backup-begin': checkpoint inconsistent: missing or broken bitmap \
            'stonefold-1-2' for disk 'vda'";
        assert_eq!(broken(missing), Some("vda"));
        let no_point =
            "Domain checkpoint not found: Checkpoint 'x' for incremental backup of disk 'vdb' not found";
        assert_eq!(broken(no_point), Some("vdb"));
        assert_eq!(broken("unable to open '/x' of disk 'vda': no room"), None);
        assert_eq!(broken("disk '"), None);
        assert!(knows_no_bitmaps("error: Cannot store dirty bitmaps in qcow2 v2 files"));
    }
}
