//! What of a machine's arguments leads to its host: files that it writes, sockets, ports, devices, memory that others share.
//!
//! *Promise*: a copy that runs beside its original takes nothing of it, and somebody who would miss what is left out is told. *Never*: is an option
//! kept of which it is not known what it does ([`KEPT`]); a device of the guest's is kept where its other end can be nothing.

use super::words::{Word, Words};
use serde_json::Value;

/// What says how the guest is made, and at most names files that are read.
const KEPT: &[&str] = &[
    "M",
    "L",
    "acpitable",
    "action",
    "append",
    "bios",
    "boot",
    "cdrom",
    "compat",
    "cpu",
    "device",
    "dtb",
    "fw_cfg",
    "g",
    "global",
    "icount",
    "initrd",
    "k",
    "kernel",
    "m",
    "machine",
    "mem-prealloc",
    "msg",
    "name",
    "net",
    "netdev",
    "nic",
    "no-acpi",
    "no-fd-bootchk",
    "no-hpet",
    "no-reboot",
    "no-shutdown",
    "no-user-config",
    "nodefaults",
    "numa",
    "object",
    "only-migratable",
    "overcommit",
    "rtc",
    "seed",
    "set",
    "shim",
    "smbios",
    "smp",
    "usb",
    "uuid",
    "vga",
    "watchdog",
    "watchdog-action",
];
/// What the host of a machine sees to by itself: nobody misses the original's.
const UNMISSED: &[&str] = &[
    "D",
    "S",
    "accel",
    "chroot",
    "d",
    "daemonize",
    "display",
    "dfilter",
    "enable-kvm",
    "gdb",
    "incoming",
    "loadvm",
    "mon",
    "monitor",
    "nographic",
    "pidfile",
    "qmp",
    "qmp-pretty",
    "qtest",
    "qtest-log",
    "run-with",
    "runas",
    "s",
    "sandbox",
    "trace",
    "writeconfig",
];
/// Drives and file systems; of one that is only read two machines may have it.
const DRIVES: &[&str] = &["blockdev", "drive"];
/// Devices that have a part of the host behind them, by a part of their names.
const HOST_DEVICES: &[&str] = &[
    "input-host",
    "ivshmem",
    "scsi-block",
    "scsi-generic",
    "u2f-passthru",
    "usb-host",
    "usb-mtp",
    "vfio-",
    "vhost-",
    "virtio-9p",
];
/// Objects of the same kind.
const HOST_OBJECTS: &[&str] =
    &["can-host", "cryptodev-vhost", "filter-dump", "input-", "vfio-user", "x-remote", "x-vfio-user"];
/// By what a device names that of which it is the guest's end.
const BACKS: &[&str] = &["drive", "fsdev", "tpmdev"];
/// Ends of a character device that are the QEMU's own.
const OWN_CHARDEVS: &[&str] =
    &["msmouse", "null", "pty", "qemu-vdagent", "ringbuf", "testdev", "vc", "wctablet"];
/// What a network of QEMU's own may do with its host.
const FORWARDS: &[&str] = &["guestfwd", "hostfwd", "smb", "smbserver"];
/// What only one machine can have of its host's network.
const OWN_TAP: &[&str] = &["ifname"];
const OPEN_TAP: &[&str] = &["fd", "fds", "queues", "vhostfd", "vhostfds"];
/// What says where memory lies, and that others have it, too.
const WHERE_MEMORY_IS: &[&str] =
    &["align", "discard-data", "mem-path", "offset", "pmem", "readonly", "rom", "share"];
/// The guest agent's channel, as every guest knows it.
pub(super) const AGENT: &str = "org.qemu.guest_agent.0";

/// Takes out of a copy's arguments what leads to the original's host, or gives it another end; returns what somebody would miss, in words.
pub(super) fn take(words: &mut Words) -> Vec<String> {
    take_agent(words);
    let mut notes = Vec::new();
    words.each(|word| match word.option.as_str() {
        "machine" | "M" => word.drop_property("accel"),
        "chardev" => notes.extend(own_chardev(word)),
        "audiodev" | "audio" => own_sound(word),
        "object" => notes.extend(own_memory(word)),
        "net" | "netdev" | "nic" => notes.extend(own_network(word)),
        _ => {}
    });
    let gone = words.take(|word| !is_kept(word));
    let named =
        |word: &Word| ["id", "node-name"].iter().find_map(|name| word.property(name)).map(str::to_owned);
    let ids: Vec<String> = gone.iter().filter_map(named).collect();
    // What is left of a pair does not start.
    words.take(|word| {
        let back = || BACKS.iter().find_map(|name| word.property(name));
        word.option == "device" && back().is_some_and(|back| ids.iter().any(|id| id == back))
    });
    let missed = gone.iter().filter(|word| !UNMISSED.contains(&word.option.as_str()));
    notes.extend(missed.map(left_out));
    notes
}

fn left_out(word: &Word) -> String {
    format!("left out: -{} {}", word.option, word.value).trim_end().to_owned()
}

fn is_kept(word: &Word) -> bool {
    let is_read = || {
        ["readonly", "read-only"].iter().any(|name| word.property(name) == Some("on"))
            || word.value.replace(' ', "").contains("\"read-only\":true")
    };
    match word.option.as_str() {
        "device" => !HOST_DEVICES.iter().any(|name| word.value.contains(name)),
        "object" => {
            !word.kind("qom-type").is_some_and(|kind| HOST_OBJECTS.iter().any(|name| kind.starts_with(name)))
        }
        "chardev" | "audiodev" | "audio" => true,
        option if DRIVES.contains(&option) => is_read() || word.property("media") == Some("cdrom"),
        option => KEPT.contains(&option),
    }
}

/// The original's channel to the guest agent leads to its own host's socket; the copy gets one of its own.
fn take_agent(words: &mut Words) {
    let of_agent = |word: &Word| word.option == "device" && word.property("name") == Some(AGENT);
    for port in words.take(of_agent) {
        let id = port.property("chardev").unwrap_or_default().to_owned();
        words.take(|word| word.option == "chardev" && word.property("id") == Some(&id));
    }
}

/// The guest keeps its port, and nothing is behind it.
fn own_chardev(word: &mut Word) -> Option<String> {
    let is_own = word.kind("backend").is_some_and(|kind| OWN_CHARDEVS.contains(&kind))
        && word.property("logfile").is_none();
    if is_own {
        return None;
    }
    let note = left_out(word);
    word.value = format!("null,id={}", word.property("id").unwrap_or_default());
    Some(note)
}

fn own_sound(word: &mut Word) {
    let kept: Vec<String> =
        ["id", "model"].iter().filter_map(|name| Some(format!(",{name}={}", word.property(name)?))).collect();
    word.value = format!("none{}", kept.concat());
}

/// Memory of the copy's own, as large.
fn own_memory(word: &mut Word) -> Option<String> {
    if word.kind("qom-type") != Some("memory-backend-file") {
        return None;
    }
    let note = left_out(word);
    match serde_json::from_str::<Value>(&word.value) {
        Ok(Value::Object(mut told)) => {
            WHERE_MEMORY_IS.iter().for_each(|name| drop(told.remove(*name)));
            told.insert("qom-type".to_owned(), "memory-backend-ram".into());
            word.value = Value::Object(told).to_string();
        }
        _ => {
            WHERE_MEMORY_IS.iter().for_each(|name| word.drop_property(name));
            word.value = word.value.replacen("memory-backend-file", "memory-backend-ram", 1);
        }
    }
    Some(note)
}

/// A network that two machines can be on.
fn own_network(word: &mut Word) -> Option<String> {
    let before = word.clone();
    let is_json = word.value.trim_start().starts_with('{');
    let has = |names: &[&str]| {
        names.iter().any(|name| word.value.contains(&format!("{name}{}", if is_json { "\"" } else { "=" })))
    };
    match word.kind("type").unwrap_or_default() {
        "none" | "nic" | "hubport" | "bridge" => return None,
        "user" if !has(FORWARDS) => return None,
        "tap" if !has(OWN_TAP) && !has(OPEN_TAP) => return None,
        "user" if !is_json => FORWARDS.iter().for_each(|name| word.drop_property(name)),
        "tap" if !is_json && !has(OPEN_TAP) => OWN_TAP.iter().for_each(|name| word.drop_property(name)),
        _ => {
            let kept = ["id", "model", "mac", "macaddr"]
                .iter()
                .filter_map(|name| Some(format!(",{name}={}", word.property(name)?)));
            word.value = format!("user{}", kept.collect::<String>());
        }
    }
    Some(format!("{}; it has -{} {} in its place", left_out(&before), word.option, word.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (String, Vec<String>) {
        let mut words = Words::parse(text).unwrap();
        let notes = take(&mut words);
        (words.arguments().join(" "), notes)
    }

    /// Goal: nothing of the original's host is touched by a copy beside it, whichever way it is named; and the guest keeps its devices.
    /// *Past bug*: QEMU emptied the original's log, and took its sockets' places.
    #[test]
    fn a_copy_touches_nothing_of_its_original() {
        for (text, kept, notes) in [
            (
                "-chardev file,id=l,path=/run/o.log -device isa-serial,chardev=l",
                "-chardev null,id=l -device isa-serial,chardev=l",
                1,
            ),
            (
                "-chardev socket,id=o,server=on,path=/o.sock -device virtserialport,chardev=o,name=x",
                "-chardev null,id=o -device virtserialport,chardev=o,name=x",
                1,
            ),
            (
                "-chardev ringbuf,id=r,size=64K -chardev pty,id=p,logfile=/log",
                "-chardev ringbuf,id=r,size=64K -chardev null,id=p",
                1,
            ),
            (
                "-object memory-backend-file,id=m,size=1G,mem-path=/srv/ram,share=on -numa node,memdev=m",
                "-object memory-backend-ram,id=m,size=1G -numa node,memdev=m",
                1,
            ),
            (
                "-object iothread,id=t -object filter-dump,id=d,netdev=n,file=/dump",
                "-object iothread,id=t",
                1,
            ),
            ("-mem-path /dev/hugepages/x -m 1G", "-m 1G", 1),
            (
                "-netdev user,id=n,hostfwd=tcp::2222-:22,hostfwd=tcp::80-:80,net=10.0.0.0/24",
                "-netdev user,id=n,net=10.0.0.0/24",
                1,
            ),
            (
                "-netdev tap,id=n,ifname=tap7,script=no -device e1000,netdev=n",
                "-netdev tap,id=n,script=no -device e1000,netdev=n",
                1,
            ),
            ("-netdev tap,id=n,fd=23,vhost=on", "-netdev user,id=n", 1),
            (
                "-netdev socket,id=n,listen=:5555 -nic bridge,br=br0 -nic none",
                "-netdev user,id=n -nic bridge,br=br0 -nic none",
                1,
            ),
            (
                "-chardev socket,id=t,path=/run/swtpm.sock -tpmdev emulator,id=tpm,chardev=t -device tpm-crb,tpmdev=tpm",
                "-chardev null,id=t",
                2,
            ),
            ("-debugcon file:/d -parallel file:/p -fda /f -readconfig /x -snapshot -plugin /p.so", "", 6),
            ("-trace file=/t -gdb tcp::1234 -s -qtest unix:/q -d int -D /log -sandbox on", "", 0),
            (
                "-audiodev wav,id=a,path=/o.wav -device hda-duplex,audiodev=a",
                "-audiodev none,id=a -device hda-duplex,audiodev=a",
                0,
            ),
            (
                "-object input-linux,id=k,evdev=/dev/input/event3 -device virtio-input-host-pci,evdev=/dev/input/event4",
                "",
                2,
            ),
            ("-what-is-to-come /x", "", 1),
        ] {
            let (is, told) = taken(text);
            assert_eq!((is.as_str(), told.len()), (kept, notes), "{text}: {told:?}");
        }
    }

    #[test]
    fn what_is_written_as_json_is_no_better() {
        let (is, notes) = taken(
            "-object '{\"qom-type\":\"memory-backend-file\",\"id\":\"m\",\"size\":1024,\"mem-path\":\"/ram\",\"share\":true}' \
             -netdev '{\"type\":\"tap\",\"id\":\"n\",\"ifname\":\"tap7\"}' -netdev '{\"type\":\"user\",\"id\":\"u\"}'",
        );
        assert!(is.contains("memory-backend-ram") && is.contains("-netdev user,id=n"), "{is}");
        assert!(
            !is.contains("/ram") && !is.contains("tap7") && is.contains("\"id\":\"u\"") && notes.len() == 2,
            "{is} {notes:?}"
        );
    }

    #[test]
    fn what_makes_the_guest_is_kept() {
        let text = "-nodefaults -M q35 -cpu host -smp 2 -m 1G -boot order=c -smbios type=1,serial=S -rtc base=localtime -device pcie-root-port,id=p \
            -kernel /k -initrd /i -append quiet -fw_cfg name=opt/x,file=/x -cdrom /iso -drive file=/iso,media=cdrom -drive if=pflash,file=/code,readonly=on \
            -no-reboot -usb -vga std -global ide-hd.x=1 -object rng-random,id=r,filename=/dev/urandom -device virtio-rng-pci,rng=r -overcommit mem-lock=off";
        let (is, notes) = taken(text);
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(is, Words::parse(text).unwrap().arguments().join(" "));
    }
}
