//! What machines are started with.

use super::*;

fn start<'a>(
    name: &'a Name,
    disks: &'a [MachineDisk],
    hardware: Option<&'a Hardware>,
    reach: &'a Reach,
) -> Start<'a> {
    Start { name, disks, hardware, reach, forward: None, limits: Limits::default() }
}

fn disk(target: &str) -> MachineDisk {
    MachineDisk { target: Name::new(target).unwrap(), disk: Name::new(&format!("again.{target}")).unwrap() }
}

#[test]
fn every_disk_hangs_where_the_guest_looks_for_it() {
    let xml = "<domain><name>w</name><memory>1048576</memory><devices><disk><target dev='vda' bus='virtio'/></disk>\
        <disk><target dev='sda' bus='sata'/></disk></devices></domain>";
    let (name, reach) = (Name::new("again").unwrap(), Reach::Socket("/run/a,b".into()));
    let (hardware, disks) = (Hardware::Libvirt(xml.into()), [disk("vda"), disk("sda")]);
    let start = start(&name, &disks, Some(&hardware), &reach);
    let text = start.arguments(&Folder("/f".into()), false).unwrap().0.join(" ");
    for words in [
        "virtio-blk-pci,id=stonefold-vd0,drive=stonefold-disk0,bootindex=1",
        "ide-hd,drive=stonefold-disk1,bootindex=2",
        "\"path\":\"/run/a,b\"",
        "\"export\":\"again.sda\"",
        "\"reconnect-delay\":300",
        "-accel tcg,thread=multi -cpu max",
        "-daemonize",
    ] {
        assert!(text.contains(words), "no {words} in {text}");
    }
}

#[test]
fn a_disk_whose_arguments_say_how_it_hangs_hangs_so() {
    let (name, reach) = (Name::new("again").unwrap(), Reach::Socket("/s".into()));
    let hardware = Hardware::QemuArgs("-device ide-hd,drive=stonefold-disk1,serial=S,bootindex=1".into());
    let disks = [disk("vda"), disk("vdb")];
    let text = start(&name, &disks, Some(&hardware), &reach)
        .arguments(&Folder("/f".into()), false)
        .unwrap()
        .0
        .join(" ");
    assert_eq!(text.matches("drive=stonefold-disk1").count(), 1, "{text}");
    assert!(
        text.contains("serial=S")
            && text.contains("virtio-blk-pci,id=stonefold-vd0,drive=stonefold-disk0,bootindex=2"),
        "{text}"
    );
}

#[test]
fn where_only_a_port_of_the_guest_is_wanted_it_reaches_nothing_else() {
    let (name, reach) =
        (Name::new("again").unwrap(), Reach::Tcp { host: "h".into(), port: 1, secret: false });
    let hardware = Hardware::QemuArgs("-m 1G -nic user,hostfwd=tcp::22-:22".into());
    let disks = [disk("vda")];
    let start = Start {
        forward: Some(Forward { host: 5000, guest: 22, alone: true }),
        ..start(&name, &disks, Some(&hardware), &reach)
    };
    let text = start.arguments(&Folder("/f".into()), false).unwrap().0.join(" ");
    assert!(text.contains("restrict=on") && text.contains("hostfwd=tcp:127.0.0.1:5000-:22"), "{text}");
    assert!(!text.contains("tcp::22"), "{text}");
}

/// Goal: of a machine that is brought back its port is reached whatever network it has, or that is told; and its network stays.
#[test]
fn a_port_is_reached_by_the_network_that_there_is() {
    let (name, reach) =
        (Name::new("again").unwrap(), Reach::Tcp { host: "h".into(), port: 1, secret: false });
    let disks = [disk("vda")];
    let started = |hardware: &str| {
        let hardware = Hardware::QemuArgs(hardware.to_owned());
        let forward = Some(Forward { host: 5000, guest: 22, alone: false });
        let start = Start { forward, ..start(&name, &disks, Some(&hardware), &reach) };
        start.arguments(&Folder("/f".into()), false).map(|(arguments, _)| arguments.join(" "))
    };
    for (network, has) in [
        ("-nic none", "-nic user,restrict=on,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:5000-:22"),
        ("", "-nic user,restrict=on,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:5000-:22"),
        ("-nic user,mac=52:54:00:1:2:3", "-nic user,mac=52:54:00:1:2:3,hostfwd=tcp:127.0.0.1:5000-:22"),
        (
            "-netdev tap,id=a -netdev type=user,id=b -device e1000,netdev=b",
            "-netdev tap,id=a -netdev type=user,id=b,hostfwd=tcp:127.0.0.1:5000-:22 -device e1000,netdev=b",
        ),
    ] {
        let text = started(&format!("-m 1G {network}")).unwrap();
        assert!(text.contains(has), "{network}: {text}");
    }
    let refused = started("-m 1G -nic tap").unwrap_err();
    assert!(refused.to_string().contains("port 22 of the guest"), "{refused}");
}

#[test]
fn a_machine_without_a_certificate_is_not_sent_to_a_door_that_wants_one() {
    let (name, reach) = (Name::new("again").unwrap(), Reach::Tcp { host: "h".into(), port: 1, secret: true });
    let disks = [disk("vda")];
    let refused = start(&name, &disks, None, &reach).arguments(&Folder("/f".into()), false).unwrap_err();
    assert!(refused.remedy_text().unwrap().contains("unix://"), "{refused}");
}

#[test]
fn places_are_read_as_they_are_written() {
    for text in ["qemu", "libvirt:qemu:///system", "libvirt:qemu+ssh://host/system"] {
        assert_eq!(text.parse::<Where>().unwrap().to_string(), text);
    }
    for wrong in ["", "export", "libvirt", "libvirt:", "libvirt:system", "qemu:///system"] {
        assert!(wrong.parse::<Where>().is_err(), "{wrong}");
    }
}
