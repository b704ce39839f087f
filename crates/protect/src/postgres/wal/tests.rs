//! Places, gaps, and the folder from run to run.

use super::*;

const MIB_16: u64 = 16 << 20;

fn segment(name: &str) -> Segment {
    Segment::try_from(name.to_owned()).unwrap()
}

#[test]
fn places_are_read_and_written() {
    for (text, place) in [("0/0", 0), ("0/3000000", 0x300_0000), ("16/B374D848", 0x16_B374_D848)] {
        let read = Lsn::try_from(text.to_owned()).unwrap();
        assert_eq!((read, read.to_string().as_str()), (Lsn(place), text));
    }
    for bad in ["", "16", "16/", "1/2/3", "0/100000000"] {
        assert!(Lsn::try_from(bad.to_owned()).is_err(), "{bad}");
    }
    assert!(Segment::try_from("00000001000000000000000g".to_owned()).is_err());
    assert!(Segment::try_from("00000002.history".to_owned()).is_err());
}

#[test]
fn segments_follow_one_another_across_the_parts_of_their_names() {
    let of = |name: &str| segment(name).number(MIB_16);
    assert_eq!(of("000000010000000100000000"), of("0000000100000000000000FF") + 1);
    assert_eq!(of("000000020000000000000003"), of("000000010000000000000003"));
    // Of 64 MiB each, a first part has 64.
    let of = |name: &str| segment(name).number(64 << 20);
    assert_eq!(of("000000010000000100000000"), of("00000001000000000000003F") + 1);
}

#[test]
fn a_gap_is_found_where_it_matters() {
    let of = |numbers: &[u64], from| goes_on(&numbers.iter().copied().collect(), from);
    assert!(of(&[3, 4, 5], 3) && of(&[3, 4, 5], 5) && of(&[1, 3, 4], 3));
    assert!(!of(&[3, 5], 3) && !of(&[4, 5], 3) && !of(&[], 3) && !of(&[3], 4));
}

#[tokio::test]
async fn what_no_point_needs_goes_and_the_last_is_staged_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let archive = Archive { folder: scratch.path().join("stonefold-wal-1") };
    archive.begin(None).await.unwrap();
    let names = [
        "000000010000000000000002",
        "000000010000000000000003",
        "00000002.history",
        "000000020000000000000004.partial",
    ];
    for name in names {
        std::fs::write(archive.folder.join(name), [1; 100]).unwrap();
    }
    let third = segment("000000010000000000000003");
    archive.begin(Some(&third)).await.unwrap();
    assert!(archive.reaches(&third, MIB_16).await.unwrap());
    assert!(!archive.reaches(&segment(names[0]), MIB_16).await.unwrap());
    assert_eq!(archive.bytes().await.unwrap(), 200);
    let staged = archive.staged().await.unwrap();
    let mut found: Vec<String> = std::fs::read_dir(staged.path().join("root"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, ["000000010000000000000003", "00000002.history", "000000020000000000000004"]);
    archive.clear().await.unwrap();
    archive.clear().await.unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "what was staged alone");
}

#[test]
fn the_last_segment_is_to_be_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("000000010000000000000004.partial");
    std::fs::write(&path, [1, 2, 3, 0, 0, 0, 0, 0]).unwrap();
    let before = last_partial(folder.path(), 8).unwrap().unwrap();
    std::fs::write(&path, [1, 2, 3, 4, 0, 0, 0, 0]).unwrap();
    assert!(before.is_still().unwrap());
    std::fs::rename(&path, path.with_extension("")).unwrap();
    assert!(before.is_still().unwrap());
    std::fs::write(path.with_extension(""), [1, 2, 4, 4, 0, 0, 0, 0]).unwrap();
    assert!(!before.is_still().unwrap());
    // One that was cut off goes.
    std::fs::write(&path, [1, 2, 3]).unwrap();
    assert!(last_partial(folder.path(), 8).unwrap().is_none() && !path.exists());
}

#[tokio::test]
async fn a_folder_of_somebody_else_s_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let archive = Archive { folder: scratch.path().join("wal") };
    std::fs::create_dir(&archive.folder).unwrap();
    std::fs::set_permissions(&archive.folder, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(archive.begin(None).await.unwrap_err().kind(), Kind::Denied);
    let nowhere = Archive { folder: scratch.path().join("no/wal") };
    assert!(nowhere.begin(None).await.unwrap_err().to_string().contains("--scratch"));
}
