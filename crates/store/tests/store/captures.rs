//! Recording what is asked of a disk. Goal: what was told is recorded, in order, or counted as dropped; nothing of before, after or elsewhere.

use crate::pool::{self, name, options, run, snap};
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_store::trace::{Op, Reason};
use stonefold_store::{Attachment, CAPTURE_ROOM_MAX, Store};
use stonefold_types::{DiskSettings, ExportName, Kind};

async fn disks() -> (Arc<Store>, Attachment) {
    let store = pool::open(Arc::new(MemoryEngine::default()), options(1, 16)).await;
    for disk in ["web", "mail"] {
        store.create_disk(&name(disk), 1 << 30, DiskSettings::default()).await.unwrap();
    }
    let web = store.attach(&ExportName::Disk(name("web"))).unwrap();
    (store, web)
}

#[test]
fn records_and_drops_are_what_was_asked_to_the_last_request() {
    run(async {
        let (store, web) = disks().await;
        let other = store.attach(&ExportName::Disk(name("web"))).unwrap();
        web.note(Op::Write, 0, 4096, false);
        let capture = store.capture(&name("web"), 16).unwrap();
        assert_eq!(capture.device_bytes(), 1 << 30);
        for number in 0..10 {
            web.note(Op::Write, number << 12, 4096, number % 2 == 0);
        }
        other.note(Op::Flush, 0, 0, false);
        let taken = capture.take();
        let told: Vec<_> =
            taken.records.iter().map(|record| (record.op, record.offset, record.fua)).collect();
        let mut asked: Vec<_> = (0..10).map(|number| (Op::Write, number << 12, number % 2 == 0)).collect();
        asked.push((Op::Flush, 0, false));
        assert_eq!((told, taken.dropped, taken.ended), (asked, 0, None));
        assert!(taken.records.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert_ne!(taken.records[9].queue, taken.records[10].queue);
        // Nobody takes them: what has no room is counted.
        (0..1000).for_each(|_| web.note(Op::Read, 0, 4096, false));
        assert_eq!(capture.take_if(false, 4096).records.len(), 16, "half of the room is enough to be taken");
        (0..20).for_each(|_| web.note(Op::Trim, 0, 4096, false));
        let status = store.stop_capture(&name("web")).unwrap();
        assert_eq!((status.recorded, status.dropped, status.waiting), (11 + 16 + 16, 984 + 4, 16));
        web.note(Op::Write, 0, 4096, false);
        let last = capture.take();
        assert_eq!((last.records.len(), last.dropped, last.ended.unwrap().0), (16, 988, Reason::Stopped));
        store.close().await.unwrap();
    });
}

#[test]
fn one_records_a_disk_until_he_lets_go_and_nobody_else_is_touched() {
    run(async {
        let (store, web) = disks().await;
        let capture = store.capture(&name("web"), 64).unwrap();
        assert_eq!(store.capture(&name("web"), 64).err().unwrap().kind(), Kind::Busy);
        assert_eq!(store.capture(&name("none"), 64).err().unwrap().kind(), Kind::NotFound);
        for room in [0, CAPTURE_ROOM_MAX + 1] {
            assert_eq!(store.capture(&name("mail"), room).err().unwrap().kind(), Kind::Invalid);
        }
        let mail = store.attach(&ExportName::Disk(name("mail"))).unwrap();
        mail.note(Op::Write, 0, 4096, false);
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        let past = store.attach(&ExportName::Snapshot(snap("web@s"))).unwrap();
        past.note(Op::Read, 0, 4096, false);
        assert_eq!(store.captures().len(), 1);
        assert_eq!(capture.take().records, [], "another disk, and what was");
        drop(capture);
        assert_eq!(store.captures(), []);
        assert_eq!(store.stop_capture(&name("web")).unwrap_err().kind(), Kind::NotFound);
        // What ended does not end what came after it.
        let second = store.capture(&name("web"), 64).unwrap();
        web.note(Op::Write, 0, 4096, false);
        assert_eq!(second.take().records.len(), 1);
        drop((web, mail, past));
        let third = store.capture(&name("mail"), 64).unwrap();
        store.remove_disk(&name("mail")).await.unwrap();
        assert_eq!(third.take().ended.unwrap().0, Reason::DiskGone);
        store.close().await.unwrap();
    });
}
