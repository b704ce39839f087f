//! What a recovered machine may take of its host: memory and processors, by the kernel's control groups.
//!
//! *Promises*: a QEMU is in its group before it runs, and its group goes with it; what cannot be limited here is refused before anything is started. Of
//! a machine of libvirt's libvirt sees to it.
//!
//! Sources: the kernel's `admin-guide/cgroup-v2.rst` (`memory.max`, `cpu.max`), `admin-guide/cgroup-v1/memory.rst` (`memory.limit_in_bytes`) and
//! `scheduler/sched-bwc.rst` (`cpu.cfs_quota_us`).

use super::qemu::Folder;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result, Size};

/// Where the kernel has its groups.
const ROOT: &str = "/sys/fs/cgroup";
/// Groups of machines are made below this one.
const OURS: &str = "stonefold";
/// Over how long processors' time is counted, in microseconds: the kernel's own choice.
const PERIOD_US: u64 = 100_000;
/// A group is in use until the last of its processes has gone, which is a moment after it is seen to have.
const GONE_MAX: Duration = Duration::from_secs(2);
/// What the shell says that could not enter one.
pub(super) const NOT_ENTERED: i32 = 125;
/// The least of each that a machine can be said to run with.
const MEMORY_MIN: u64 = 64 << 20;
const PROCESSORS_MIN_PERCENT: u32 = 5;

/// What a machine may take at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// In bytes, QEMU's own and the page cache of its files among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// In hundredths of a processor's time, the emulator's among them: 150 is one and a half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors_percent: Option<u32>,
}

impl Limits {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    /// Fails where no machine could run with them; `memory_bytes` is what the guest itself is given, where that is known.
    pub(crate) fn check(&self, memory_bytes: Option<u64>) -> Result<()> {
        let wrong = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        match (self.memory_bytes, memory_bytes) {
            (Some(most), Some(guest)) if most < guest => wrong(
                format!(
                    "a limit of {} of memory is less than the {} that the guest is given",
                    Size(most),
                    Size(guest)
                ),
                "give it that and what QEMU itself needs, 200 MiB and more, or change the machine's description",
            ),
            (Some(most), _) if most < MEMORY_MIN => wrong(
                format!("a limit of {} of memory is less than any machine needs", Size(most)),
                "give it what its guest has and what QEMU itself needs, 200 MiB and more",
            ),
            _ if self.processors_percent.is_some_and(|most| most < PROCESSORS_MIN_PERCENT) => {
                wrong("a machine needs a twentieth of a processor at least".to_owned(), "write 0.5 or 2, say")
            }
            _ => Ok(()),
        }
    }

    /// Of the newer groups' `cpu.max`, and of libvirt: microseconds in each period.
    pub(crate) fn quota_us(&self) -> Option<(u64, u64)> {
        self.processors_percent.map(|percent| (u64::from(percent) * PERIOD_US / 100, PERIOD_US))
    }
}

/// The groups of one machine: one of the newer kind, or one for each kind of limit of the older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups(Vec<Group>);

/// A group, and what is written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    path: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl Groups {
    /// Where those of a machine are to be.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where this kernel has none of a kind that is needed.
    pub(crate) fn of(folder: &Folder, limits: &Limits) -> Result<Groups> {
        let own = fs::read_to_string("/proc/self/cgroup");
        let own = own.map_err(|e| Error::io("looking for the server's own control group", e))?;
        Groups::below(Path::new(ROOT), &own, folder, limits)
    }

    /// `own`: as `/proc/self/cgroup` has it.
    fn below(root: &Path, own: &str, folder: &Folder, limits: &Limits) -> Result<Groups> {
        let name = folder.0.file_name().map(Path::new).unwrap_or(Path::new("machine"));
        let quota = limits.quota_us();
        if root.join("cgroup.controllers").exists() {
            let mut settings = Vec::new();
            settings.extend(limits.memory_bytes.map(|most| ("memory.max", most.to_string())));
            settings.extend(quota.map(|(quota, period)| ("cpu.max", format!("{quota} {period}"))));
            return Ok(Groups(vec![Group { path: root.join(OURS).join(name), settings }]));
        }
        let mut groups = Vec::new();
        if let Some(most) = limits.memory_bytes {
            let settings = vec![("memory.limit_in_bytes", most.to_string())];
            groups.push(Group { path: of_controller(root, own, "memory")?.join(name), settings });
        }
        if let Some((quota, period)) = quota {
            let settings =
                vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
            groups.push(Group { path: of_controller(root, own, "cpu")?.join(name), settings });
        }
        Ok(Groups(groups))
    }

    /// Makes them. Where they are stands in the machine's folder before, for whoever takes them away: a server of another group, perhaps.
    pub(crate) fn make(&self, folder: &Folder) -> Result<()> {
        let listed: String = self.0.iter().map(|group| format!("{}\n", group.path.display())).collect();
        fs::write(folder.groups(), listed)
            .map_err(|e| Error::io("keeping where a machine's groups are", e))?;
        self.0.iter().try_for_each(Group::make)
    }

    /// The command that runs another within them.
    pub(crate) fn entered(&self, program: &str) -> Vec<String> {
        let enter = format!(
            r#"while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit {NOT_ENTERED}; shift; done; shift; exec "$@""#
        );
        let mut words: Vec<String> = ["sh", "-c", &enter, "sh"].map(str::to_owned).into();
        words.extend(self.0.iter().map(|group| group.path.to_string_lossy().into_owned()));
        words.extend(["--".to_owned(), program.to_owned()]);
        words
    }

    /// Takes those of a machine away, once nothing is in them.
    pub(crate) async fn remove(env: &Env, folder: &Folder) {
        let Ok(listed) = fs::read_to_string(folder.groups()) else { return };
        let until = env.monotonic() + GONE_MAX;
        for at in listed.lines() {
            loop {
                match fs::remove_dir(at) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) if env.monotonic() > until => {
                        tracing::warn!("the control group '{at}' of a machine that has gone stays: {error}");
                        break;
                    }
                    Err(_) => env.sleep(Duration::from_millis(10)).await,
                }
            }
        }
    }
}

/// Where machines' groups of a kind are, of the older ones: within the server's own, so that what holds for the server holds for its machines; where
/// a container hides that, at the top.
fn of_controller(root: &Path, own: &str, controller: &str) -> Result<PathBuf> {
    let of_line = |line: &'_ str| -> Option<String> {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/').to_owned();
        names.split(',').any(|name| name == controller).then_some(path)
    };
    let Some(path) = own.lines().find_map(of_line) else {
        let what = format!("this kernel has no control groups for {controller}");
        return Err(Error::new(Kind::Unsupported, what).remedy("start the machine without that limit"));
    };
    let at = root.join(controller);
    let hidden = path.split('/').any(|part| part == "..") || !at.join(&path).is_dir();
    Ok(if hidden { at.join(OURS) } else { at.join(path).join(OURS) })
}

impl Group {
    fn make(&self) -> Result<()> {
        let made = self.enable().and_then(|()| {
            fs::create_dir_all(&self.path)?;
            self.settings.iter().try_for_each(|(file, value)| set(&self.path.join(file), value))
        });
        made.map_err(|e| {
            let remedy = match e.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "limits of a QEMU need a server that runs as root; libvirt keeps those of its own machines"
                }
                _ => "look at what the kernel has there; libvirt keeps limits of its own machines",
            };
            Error::io(format!("making the control group '{}'", self.path.display()), e).remedy(remedy)
        })
    }

    /// Of the newer kind, a group's children have what it lets them have.
    fn enable(&self) -> io::Result<()> {
        let (Some(ours), true) = (self.path.parent(), self.is_newer()) else { return Ok(()) };
        fs::create_dir_all(ours)?;
        for above in [ours.parent(), Some(ours)].into_iter().flatten() {
            let control = above.join("cgroup.subtree_control");
            let has = fs::read_to_string(&control)?;
            let missing = ["cpu", "memory"]
                .into_iter()
                .filter(|name| !has.split_whitespace().any(|one| one == *name))
                .filter(|name| self.settings.iter().any(|(file, _)| file.starts_with(name)));
            for name in missing {
                set(&control, &format!("+{name}"))?;
            }
        }
        Ok(())
    }

    fn is_newer(&self) -> bool {
        self.settings.iter().any(|(file, _)| file.ends_with(".max"))
    }
}

/// What is no file of the kernel's is not made: nothing would be limited by it.
fn set(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).truncate(true).open(file)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory_bytes: Some(1 << 30), processors_percent: Some(150) };

    fn folder() -> Folder {
        Folder("/run/stonefold/machines/web-1f".into())
    }

    #[test]
    fn the_newer_kind_has_one_group_of_all_limits() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
        let of_machine = Folder(root.path().join("machines/web-1f"));
        for folder in ["stonefold/web-1f", "machines/web-1f"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        write("cgroup.controllers", "cpu memory");
        write("cgroup.subtree_control", "memory");
        write("stonefold/cgroup.subtree_control", "");
        write("stonefold/web-1f/cpu.max", "max 100000");
        let groups = Groups::below(root.path(), "0::/system.slice/x", &of_machine, &LIMITS).unwrap();
        let error = groups.make(&of_machine).unwrap_err().to_string();
        assert!(error.contains("stonefold/web-1f"), "a file that the kernel does not have is none: {error}");
        write("cgroup.subtree_control", "memory");
        write("stonefold/cgroup.subtree_control", "");
        write("stonefold/web-1f/memory.max", "max");
        groups.make(&of_machine).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        // Only what is not there yet is asked for.
        assert_eq!(read("cgroup.subtree_control"), "+cpu");
        assert_eq!(read("stonefold/cgroup.subtree_control"), "+memory");
        assert_eq!(read("stonefold/web-1f/memory.max"), (1u64 << 30).to_string());
        assert_eq!(read("stonefold/web-1f/cpu.max"), "150000 100000");
        assert!(read("machines/web-1f/groups").ends_with("stonefold/web-1f\n"));
    }

    #[test]
    fn the_older_kind_has_one_for_each_within_the_server_s_own() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("memory/box")).unwrap();
        fs::create_dir(root.path().join("cpu")).unwrap();
        let own = "5:cpu,cpuacct:/hidden\n4:memory:/box\n0::/";
        let groups = Groups::below(root.path(), own, &folder(), &LIMITS).unwrap();
        let at: Vec<_> = groups.0.iter().map(|group| group.path.strip_prefix(root.path()).unwrap()).collect();
        assert_eq!(at, [Path::new("memory/box/stonefold/web-1f"), Path::new("cpu/stonefold/web-1f")]);
        let settings: Vec<_> = groups.0.iter().flat_map(|group| group.settings.clone()).collect();
        let expected = [
            ("memory.limit_in_bytes", (1u64 << 30).to_string()),
            ("cpu.cfs_period_us", "100000".to_owned()),
            ("cpu.cfs_quota_us", "150000".to_owned()),
        ];
        assert_eq!(settings, expected);
        let memory_alone = Limits { processors_percent: None, ..LIMITS };
        assert_eq!(Groups::below(root.path(), own, &folder(), &memory_alone).unwrap().0.len(), 1);
        let error = Groups::below(root.path(), "5:cpu:/\n0::/", &folder(), &memory_alone).unwrap_err();
        assert!(error.to_string().contains("no control groups for memory"), "{error}");
    }

    #[test]
    fn what_no_machine_runs_with_is_refused() {
        let memory = |bytes: u64| Limits { memory_bytes: Some(bytes), processors_percent: None };
        assert!(memory(1 << 20).check(None).is_err());
        assert!(memory(1 << 30).check(Some(2 << 30)).is_err());
        assert!(memory(3 << 30).check(Some(2 << 30)).is_ok());
        assert!(Limits { memory_bytes: None, processors_percent: Some(1) }.check(None).is_err());
        assert!(LIMITS.check(None).is_ok());
    }
}
