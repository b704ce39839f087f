//! Documents as they are stored: each kind comes back, with what a later version added, and an older one's is read for ever.

use super::*;
use crate::{
    Machine, Migration, MigrationState, Point, Policy, Proof, ProofRecord, Recovery, Run, RunState, Source,
};
use proptest::prelude::*;

/// What version 1 wrote: read, written again, and not a field is lost.
fn is_kept<E: Entry>(stored: &str) -> E {
    let entry: E = read(stored).unwrap();
    let again: Value = serde_json::from_str(&written(&entry)).unwrap();
    assert_eq!(again, serde_json::from_str::<Value>(stored).unwrap());
    entry
}

#[test]
fn documents_of_version_1_are_read() {
    let machine: Machine = is_kept(include_str!("../../fixtures/1/machine.json"));
    assert_eq!((machine.name.as_str(), machine.disks.len()), ("web", 2));
    let note: crate::clones::Making = is_kept(include_str!("../../fixtures/1/making.json"));
    assert_eq!(note.disks[0].disk.as_str(), "lab.vda");
    let note: crate::syncs::Syncing = is_kept(include_str!("../../fixtures/1/syncing.json"));
    assert_eq!((note.disks.len(), note.disks[1].old), (2, None));
    let template: Machine = is_kept(include_str!("../../fixtures/1/machine-template.json"));
    assert!(template.template);
    let recovery: Recovery = is_kept(include_str!("../../fixtures/1/recovery.json"));
    assert!(recovery.discarding && recovery.ready_us == 4321);
    let recovery: Recovery = is_kept(include_str!("../../fixtures/1/recovery-started.json"));
    assert!(recovery.proof && recovery.started.unwrap().home == ["/srv/images/web.qcow2"]);
    let migration: Migration = is_kept(include_str!("../../fixtures/1/migration.json"));
    assert_eq!((migration.state, migration.disks.len()), (MigrationState::Failed, 2));
    let proof: Proof = is_kept(include_str!("../../fixtures/1/proof.json"));
    let record: ProofRecord = serde_json::from_str(&proof.record).unwrap();
    assert_eq!((record.boots, record.sign.to_string().as_str()), (true, "console:login:"));
    let source: Source = is_kept(include_str!("../../fixtures/1/source.json"));
    assert_eq!(source.of.machine().unwrap().as_str(), "web");
    let image: Source = is_kept(include_str!("../../fixtures/1/source-image.json"));
    assert_eq!(image.disks()[0].as_str(), "golden.vda");
    assert!(image.number_of(&crate::sources::only_disk()).is_some());
    let nbd: Source = is_kept(include_str!("../../fixtures/1/source-nbd.json"));
    assert!(nbd.number_of(&crate::sources::only_disk()).is_none() && nbd.of.machine().is_none());
    let guest: Source = is_kept(include_str!("../../fixtures/1/source-qmp.json"));
    assert_eq!(
        guest.disks().iter().map(|disk| disk.as_str()).collect::<Vec<_>>(),
        ["mail.data", "mail.root"]
    );
    let folder: Source = is_kept(include_str!("../../fixtures/1/source-dir.json"));
    assert_eq!(folder.disks()[0].as_str(), "files.vda");
    let with_agent: Source = is_kept(include_str!("../../fixtures/1/source-qmp-agent.json"));
    assert!(matches!(with_agent.of, crate::SourceOf::Qmp(guest) if guest.agent.is_some()));
    let fleece: crate::fleece::Fleece = is_kept(include_str!("../../fixtures/1/fleece.json"));
    assert!(fleece.halts && fleece.disks[0].scratch.as_str() == "mail.root.scratch");
    let domain: Source = is_kept(include_str!("../../fixtures/1/source-libvirt.json"));
    assert_eq!(domain.disks()[0].as_str(), "shop.vda");
    let backup: crate::domain_backup::DomainBackup =
        is_kept(include_str!("../../fixtures/1/domain-backup.json"));
    assert_eq!((backup.source.as_str(), backup.scratches.len()), ("shop", 1));
    let run: Run = is_kept(include_str!("../../fixtures/1/run.json"));
    assert!(run.copied.is_none());
    let copy: Run = is_kept(include_str!("../../fixtures/1/run-of-copy.json"));
    assert_eq!((copy.state, copy.copied.unwrap().written_bytes), (RunState::Cancelled, 4096));
    assert_eq!(run.state, RunState::Failed);
    let of_policy: Run = is_kept(include_str!("../../fixtures/1/run-of-policy.json"));
    assert_eq!(of_policy.slot.unwrap().policy.as_str(), "nightly");
    let policy: Policy = is_kept(include_str!("../../fixtures/1/policy.json"));
    assert_eq!(policy.keep.unwrap().to_string(), "hourly=24,daily=30,yearly=7");
    assert_eq!(policy.schedule.zone().name(), "Europe/Berlin");
    let paused: Policy = is_kept(include_str!("../../fixtures/1/policy-that-tells.json"));
    assert_eq!(paused.paused, Some(1_795_459_205_123_456_789));
    assert_eq!(paused.webhook.as_deref(), Some("https://hooks.example/T0/B1"));
    let point: Point = is_kept(include_str!("../../fixtures/1/point-of-policy.json"));
    assert_eq!(point.policy.unwrap().as_str(), "nightly");
    let agent: Machine = is_kept(include_str!("../../fixtures/1/machine-agent.json"));
    assert_eq!(agent.agent.unwrap().to_string(), "libvirt:qemu:///system");
    let boot: crate::boots::Boot = is_kept(include_str!("../../fixtures/1/boot.json"));
    assert_eq!(boot.disks[0].runs, [(80, 1), (16, 2)]);
    let still: crate::standstills::Standstill = is_kept(include_str!("../../fixtures/1/standstill.json"));
    assert_eq!((still.machine.as_str(), still.domain.as_str()), ("web", "web"));
    assert_eq!(still.key(), "web");
    let still: crate::standstills::Standstill =
        is_kept(include_str!("../../fixtures/1/standstill-source.json"));
    assert_eq!(still.key(), "shop/source");
    let sent: Policy = is_kept(include_str!("../../fixtures/1/policy-that-sends.json"));
    assert_eq!(sent.replicate.as_deref(), Some("file:///mnt/other/pool"));
    let replica: Source = is_kept(include_str!("../../fixtures/1/source-replica.json"));
    assert_eq!(replica.disks()[0].as_str(), "web.vda");
    let known: crate::replication::Replica = is_kept(include_str!("../../fixtures/1/replica.json"));
    assert_eq!(known.key(), "nightly/web");
    let kept: Policy = is_kept(include_str!("../../fixtures/1/policy-that-archives.json"));
    assert_eq!(kept.archive.unwrap().keep.to_string(), "monthly=12,yearly=7");
    let known: crate::replication::Archived = is_kept(include_str!("../../fixtures/1/archived.json"));
    assert_eq!(known.key(), "nightly/web");
    let run: Run = is_kept(include_str!("../../fixtures/1/run-of-replica.json"));
    assert_eq!(run.received.unwrap().consistency, crate::Consistency::App);
    let app: Point = is_kept(include_str!("../../fixtures/1/point-app.json"));
    assert_eq!(app.consistency, crate::Consistency::App);
    let point: Point = is_kept(include_str!("../../fixtures/1/point.json"));
    assert!(point.removing && point.disks[0].created == 1_795_459_205_123_456_789);
}

#[test]
fn later_versions_and_damage_are_told_apart() {
    let stored = include_str!("../../fixtures/1/machine.json");
    let later = stored.replace("\"version\": 1", "\"version\": 2");
    assert_eq!(read::<Machine>(&later).unwrap_err().kind(), Kind::Unsupported);
    for damaged in ["", "[]", "7", "{}", "{\"version\": 1}", &stored.replace("root", "ro/ot")] {
        assert_eq!(read::<Machine>(damaged).unwrap_err().kind(), Kind::Corrupt, "{damaged}");
    }
}

proptest! {
    /// Goal: whatever became of a document's text, it is read or refused.
    #[test]
    fn noise_is_survived(at in 0usize..400, with in "\\PC{0,4}", cut in 0usize..4) {
        for stored in [
            include_str!("../../fixtures/1/machine.json"),
            include_str!("../../fixtures/1/point.json"),
            include_str!("../../fixtures/1/policy.json"),
        ] {
            let mut text: Vec<char> = stored.chars().collect();
            let at = at.min(text.len());
            let until = (at + cut).min(text.len());
            text.splice(at..until, with.chars());
            let text: String = text.into_iter().collect();
            if let Ok(machine) = read::<Machine>(&text) {
                prop_assert_eq!(read::<Machine>(&written(&machine)).unwrap(), machine);
            }
            if let Ok(policy) = read::<Policy>(&text) {
                prop_assert_eq!(read::<Policy>(&written(&policy)).unwrap(), policy);
            }
            if let Ok(point) = read::<Point>(&text) {
                prop_assert_eq!(read::<Point>(&written(&point)).unwrap(), point);
            }
        }
    }
}
