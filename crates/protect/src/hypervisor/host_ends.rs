//! What of a machine's arguments leads to its host: files that it writes, sockets, ports, devices, memory that others share.
//!
//! *Promise*: a copy that runs beside its original takes nothing of it, and somebody who would miss what is left out is told. *Never*: is an option
//! kept of which it is not known what it does ([`KEPT`]); a device of the guest's is kept where its other end can be nothing.

use super::words::{Word, Words};
use std::collections::HashSet;

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
/// Devices that have a part of the host behind them, by a part of their names.
const HOST_DEVICES: &[&str] = &[
    "input-host",
    "ivshmem",
    "scsi-block",
    "scsi-generic",
    "u2f-",
    "usb-host",
    "usb-mtp",
    "vfio-",
    "vhost-",
    "virtio-9p",
];
/// Objects of the same kind.
const HOST_OBJECTS: &[&str] = &[
    "can-host",
    "cryptodev-vhost",
    "filter-dump",
    "qtest",
    "input-",
    "vfio-user",
    "x-remote",
    "x-vfio-user",
];
/// By what a device names that of which it is the guest's end.
const BACKS: &[&str] = &["cryptodev", "drive", "fsdev", "netdev", "tpmdev"];
/// By what a block node names those that it is built on.
const BELOW: &[&str] = &["backing", "data-file", "file"];
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

/// Takes out of a copy's arguments what leads to the original's host, or gives it another end; returns what somebody would miss, in words. Of taps only
/// whoever `makes_taps` may have one of its own.
pub(super) fn take(words: &mut Words, makes_taps: bool) -> Vec<String> {
    take_agent(words);
    let mut notes = Vec::new();
    words.each(|word| match word.option.as_str() {
        "machine" | "M" => word.drop_property("accel"),
        "icount" => ["rr", "rrfile", "rrsnapshot"].iter().for_each(|name| word.drop_property(name)),
        "chardev" => notes.extend(own_chardev(word)),
        "audiodev" | "audio" => own_sound(word),
        "object" => notes.extend(own_memory(word)),
        "net" | "netdev" | "nic" => notes.extend(own_network(word, makes_taps)),
        _ => {}
    });
    let read = read_nodes(words);
    let gone = words.take(|word| !is_kept(word, &read));
    notes.extend(gone.iter().filter(|word| !UNMISSED.contains(&word.option.as_str())).map(left_out));
    take_what_refers_to(words, gone);
    notes
}

fn left_out(word: &Word) -> String {
    format!("left out: -{} {}", word.option, word.value).trim_end().to_owned()
}

fn is_kept(word: &Word, read: &HashSet<String>) -> bool {
    let of_kind =
        |name, kinds: &[&str]| word.kind(name).is_some_and(|kind| kinds.iter().any(|one| kind.contains(one)));
    match word.option.as_str() {
        "device" => !of_kind("driver", HOST_DEVICES),
        "object" => !of_kind("qom-type", HOST_OBJECTS),
        "chardev" | "audiodev" | "audio" => true,
        "drive" => is_read(word) || word.property("media") == Some("cdrom"),
        "blockdev" => is_read(word) || word.names().any(|name| read.contains(name)),
        option => KEPT.contains(&option),
    }
}

/// Of what is only read two machines may have one.
fn is_read(word: &Word) -> bool {
    ["readonly", "read-only"].iter().any(|name| word.property(name) == Some("on"))
}

/// The nodes that are only read, and those that they are built on.
fn read_nodes(words: &Words) -> HashSet<String> {
    let nodes = || words.iter().filter(|word| word.option == "blockdev");
    let named = |word: &Word| word.names().map(str::to_owned).collect::<Vec<_>>();
    let mut read: HashSet<String> = nodes().filter(|word| is_read(word)).flat_map(named).collect();
    loop {
        let of_read = nodes().filter(|word| word.names().any(|name| read.contains(name)));
        let below = |word: &Word| {
            BELOW.iter().filter_map(|name| word.property(name)).map(str::to_owned).collect::<Vec<_>>()
        };
        let more: Vec<String> = of_read.flat_map(below).filter(|name| !read.contains(name)).collect();
        if more.is_empty() {
            return read;
        }
        read.extend(more);
    }
}

/// What names something that has gone does not start, and goes with it.
pub(super) fn take_what_refers_to(words: &mut Words, mut gone: Vec<Word>) {
    while !gone.is_empty() {
        let names: Vec<String> = gone.iter().flat_map(Word::names).map(str::to_owned).collect();
        let is_gone = |name: Option<&str>| name.is_some_and(|name| names.iter().any(|gone| gone == name));
        let is_machine = |word: &Word| ["machine", "M"].contains(&word.option.as_str());
        words.each(|word| {
            for flash in ["pflash0", "pflash1"] {
                if is_machine(word) && is_gone(word.property(flash)) {
                    word.drop_property(flash);
                }
            }
        });
        gone = words.take(|word| {
            !is_machine(word) && BACKS.iter().chain(BELOW).any(|name| is_gone(word.property(name)))
        });
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
    let is_own = word.kind("backend").is_some_and(|kind| OWN_CHARDEVS.contains(&kind));
    if is_own && ["logfile", "path"].iter().all(|name| word.property(name).is_none()) {
        return None;
    }
    let note = left_out(word);
    let several = if word.property("mux") == Some("on") { ",mux=on" } else { "" };
    word.value = format!("null,id={}{several}", word.property("id").unwrap_or_default());
    Some(note)
}

fn own_sound(word: &mut Word) {
    word.value = kept_of(word, "none", &["id", "model"]);
}

/// Another kind with these of the word's properties.
fn kept_of(word: &Word, kind: &str, names: &[&str]) -> String {
    let kept = names.iter().filter_map(|name| Some(format!(",{name}={}", word.property(name)?)));
    kind.to_owned() + &kept.collect::<String>()
}

/// Memory of the copy's own, as large; and chance of its own, where the original asked a socket for it.
fn own_memory(word: &mut Word) -> Option<String> {
    let note = left_out(word);
    match word.kind("qom-type") {
        Some("memory-backend-file") => {
            WHERE_MEMORY_IS.iter().for_each(|name| word.drop_property(name));
            word.value = word.value.replacen("memory-backend-file", "memory-backend-ram", 1);
        }
        Some("rng-egd") => word.value = kept_of(word, "rng-builtin", &["id"]),
        _ => return None,
    }
    Some(note)
}

/// A network that two machines can be on.
fn own_network(word: &mut Word, makes_taps: bool) -> Option<String> {
    let before = word.clone();
    let has = |names: &[&str]| names.iter().any(|name| word.property(name).is_some());
    match word.kind("type").unwrap_or_default() {
        "none" | "nic" | "hubport" | "bridge" => return None,
        "user" if !has(FORWARDS) => return None,
        "tap" if makes_taps && !has(OWN_TAP) && !has(OPEN_TAP) => return None,
        "user" => FORWARDS.iter().for_each(|name| word.drop_property(name)),
        "tap" if makes_taps && !has(OPEN_TAP) => OWN_TAP.iter().for_each(|name| word.drop_property(name)),
        _ => word.value = kept_of(word, "user", &["id", "model", "mac", "macaddr"]),
    }
    Some(format!("{}; it has -{} {} in its place", left_out(&before), word.option, word.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (String, Vec<String>) {
        let mut words = Words::parse(text).unwrap();
        let notes = take(&mut words, true);
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
            (
                "-chardev pty,id=p,path=/run/p -chardev stdio,id=c,mux=on",
                "-chardev null,id=p -chardev null,id=c,mux=on",
                2,
            ),
            (
                "-icount shift=3,rr=record,rrfile=/f -object rng-egd,id=r,chardev=c",
                "-icount shift=3 -object rng-builtin,id=r",
                1,
            ),
            ("-set netdev.n.ifname=tap7 -device u2f-emulated,dir=/d -object qtest,id=q,log=/l", "", 3),
            (
                "-device qemu-xhci,id=usb-host -device virtio-net-pci,id=vhost-net0,netdev=n",
                "-device qemu-xhci,id=usb-host -device virtio-net-pci,id=vhost-net0,netdev=n",
                0,
            ),
            ("-drive file=/a,,readonly=on,if=none,id=x", "", 1),
            (
                "-object memory-backend-file,id=m,size=1G,mem-path=/a,,b",
                "-object memory-backend-ram,id=m,size=1G",
                1,
            ),
            // What is left names nothing that has gone; and of what is only read all is left.
            (
                "-machine q35,pflash0=c,pflash1=v -blockdev file,node-name=c,filename=/c,read-only=on -blockdev file,node-name=v,filename=/v",
                "-machine q35,pflash0=c -blockdev file,node-name=c,filename=/c,read-only=on",
                1,
            ),
            (
                "-blockdev file,node-name=f,filename=/iso -blockdev raw,node-name=r,read-only=on,file=f -device scsi-cd,drive=r",
                "-blockdev file,node-name=f,filename=/iso -blockdev raw,node-name=r,read-only=on,file=f -device scsi-cd,drive=r",
                0,
            ),
            (
                "-blockdev file,node-name=f,filename=/a -blockdev qcow2,node-name=q,file=f -device virtio-blk-pci,drive=q",
                "",
                2,
            ),
            ("-drive id=d,node-name=n,if=none,file=/a -device virtio-blk-pci,drive=n", "", 1),
            ("-object cryptodev-vhost-user,id=c -device virtio-crypto-pci,cryptodev=c", "", 1),
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
        assert!(is.contains("memory-backend-ram,id=m,size=1024") && is.contains("-netdev tap,id=n "), "{is}");
        assert!(
            !is.contains("/ram") && !is.contains("tap7") && is.contains("user,id=u") && notes.len() == 2,
            "{is} {notes:?}"
        );
    }

    /// Goal: where a tap cannot be made the copy starts all the same.
    #[test]
    fn a_tap_is_for_whoever_may_make_one() {
        let mut words =
            Words::parse("-netdev tap,id=n,ifname=tap7 -nic tap,mac=52:54:00:00:00:01 -netdev bridge,id=b")
                .unwrap();
        assert_eq!(take(&mut words, false).len(), 2);
        assert_eq!(
            words.arguments().join(" "),
            "-netdev user,id=n -nic user,mac=52:54:00:00:00:01 -netdev bridge,id=b"
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
