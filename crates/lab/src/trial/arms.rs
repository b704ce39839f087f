//! What is held against one another: targets, and what makes each ready.

use crate::shell;
use crate::system::{System, SystemWords, quoted};
use crate::target::TargetSpec;
use serde::Deserialize;
use stonefold_types::{Error, Kind, Result};

/// One configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// By which it is told.
    pub name: String,
    /// As a run takes them: one for each volume of the profile, or one for all.
    pub targets: Vec<TargetSpec>,
    /// The same as they were written.
    pub words: Vec<String>,
    /// A shell command before each of its runs: makes a file system, sets a switch.
    pub before: Option<String>,
    /// And one after each, whether the run failed or not.
    pub after: Option<String>,
    /// What is behind it, as it was declared.
    pub system: Option<System>,
}

impl Arm {
    pub(super) fn prepare(&self) -> Result<()> {
        self.command("before", self.before.as_deref())
    }

    pub(super) fn put_away(&self) -> Result<()> {
        self.command("after", self.after.as_deref())
    }

    fn command(&self, when: &str, command: Option<&str>) -> Result<()> {
        let Some(command) = command else { return Ok(()) };
        let told = || format!("the command {when} arm '{}', \"{command}\",", self.name);
        shell::run(told, command, ("STONEFOLD_LAB_ARM", &self.name)).map(drop)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmsFile {
    arm: Vec<ArmWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmWords {
    name: String,
    target: OneOrMany,
    before: Option<String>,
    after: Option<String>,
    system: Option<SystemWords>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The arms that a file lists: TOML, a table `[[arm]]` for each, with `name`, `target` (one, or a list with one for each volume),
/// and, if wanted, `before`, `after` and a table `system`. `resolve` makes a target of its text.
///
/// # Errors
/// [`Kind::Invalid`] with the line where the file is no TOML or has a word that is not known; what `resolve` says.
pub fn arms_of_file(text: &str, resolve: impl Fn(&str) -> Result<TargetSpec>) -> Result<Vec<Arm>> {
    let file: ArmsFile = toml::from_str(text)
        .map_err(|e| Error::new(Kind::Invalid, format!("the list of arms: {}", e.to_string().trim_end())))?;
    let arm = |words: ArmWords| {
        let written = match words.target {
            OneOrMany::One(target) => vec![target],
            OneOrMany::Many(targets) => targets,
        };
        let targets = written.iter().map(|target| resolve(target)).collect::<Result<_>>();
        let targets = targets.map_err(|e: Error| e.context(format!("arm '{}'", words.name)))?;
        let system = words.system.map(|system| system.check(&words.name)).transpose()?;
        let ArmWords { name, before, after, .. } = words;
        Ok(Arm { name, targets, words: written, before, after, system })
    };
    file.arm.into_iter().map(arm).collect()
}

/// A file that lists these arms, for [`arms_of_file`]: what was named by a path says which from any folder.
pub fn file_of_arms(arms: &[Arm], by_workers: bool) -> String {
    let mut text = String::new();
    for arm in arms {
        // What workers name hangs on their folders.
        let told = |target: &String| if by_workers { target.clone() } else { from_anywhere(target) };
        let targets: Vec<String> = arm.words.iter().map(|target| quoted(&told(target))).collect();
        text.push_str(&format!("[[arm]]\nname = {}\ntarget = [{}]\n", quoted(&arm.name), targets.join(", ")));
        for (when, command) in [("before", &arm.before), ("after", &arm.after)] {
            text.extend(command.iter().map(|command| format!("{when} = {}\n", quoted(command))));
        }
        text.extend(arm.system.iter().map(|system| format!("[arm.system]\n{}", system.file())));
        text.push('\n');
    }
    text
}

/// A target whose path does not hang on the folder that it was written in.
fn from_anywhere(target: &str) -> String {
    let (kind, path) = match target.parse::<TargetSpec>() {
        Ok(TargetSpec::File(path)) => ("file", path),
        Ok(TargetSpec::Directory(path)) => ("dir", path),
        Ok(TargetSpec::Device(path)) => ("dev", path),
        _ => return target.to_owned(),
    };
    // Only an empty path has none.
    let path = std::path::absolute(&path).unwrap_or(path);
    format!("{kind}:{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Arm>> {
        arms_of_file(text, |target| target.parse())
    }

    #[test]
    fn arms_are_read_and_what_is_wrong_is_named() {
        let arms = read(
            "[[arm]]\nname = 'ext4'\ntarget = 'file:/a'\nbefore = 'true'\n[[arm]]\nname = 'xfs'\ntarget = ['null:', 'null:']\n",
        )
        .unwrap();
        assert_eq!((arms[0].name.as_str(), arms[1].targets.len()), ("ext4", 2));
        assert_eq!(arms[0].before.as_deref(), Some("true"));
        let told =
            read("[[arm]]\nname = 'a'\ntarget = 'null:'\n[arm.system]\nhardware = 'one disk'\ncache = '1G'")
                .unwrap();
        assert_eq!(told[0].system.as_ref().and_then(|system| system.cache), Some(1 << 30));
        assert!(
            read("[[arm]]\nname = 'a'\ntarget = 'nonsense'").unwrap_err().to_string().contains("arm 'a'")
        );
        assert!(
            read("[[arm]]\nname = 'a'\ntarget = 'null:'\nbefor = 'x'")
                .unwrap_err()
                .to_string()
                .contains("befor")
        );
    }

    /// Goal: what was given on the command line can be given again as a file, from another folder.
    #[test]
    fn a_list_of_arms_that_is_kept_is_read_as_the_same() {
        let text = "[[arm]]\nname = 'as \"it\" comes'\ntarget = 'file:/a b'\nbefore = '''one\ntwo \\ three'''\n\
            [arm.system]\nhardware = 'a \"disk\"'\nnodes = 2\ncache = '1G'\nmemory = '3000'\n\
            price = { total = 12.5, currency = 'EUR', date = '2026-05-01' }\n\
            [[arm]]\nname = 'b'\ntarget = ['null:', 'dev:/dev/x']\nafter = 'true'\n";
        let arms = read(text).unwrap();
        assert_eq!(read(&file_of_arms(&arms, false)).unwrap(), arms);
        let near = read("[[arm]]\nname = 'a'\ntarget = 'file:t.img'").unwrap();
        let kept = read(&file_of_arms(&near, false)).unwrap();
        let TargetSpec::File(path) = &kept[0].targets[0] else { panic!("{kept:?}") };
        assert!(path.is_absolute() && path.ends_with("t.img"), "{}", path.display());
    }

    #[test]
    fn a_command_that_fails_says_what_it_said() {
        let arm = |before: &str| Arm {
            name: "a".into(),
            targets: vec![TargetSpec::Null],
            words: vec!["null:".into()],
            before: Some(before.into()),
            after: None,
            system: None,
        };
        arm("test \"$STONEFOLD_LAB_ARM\" = a").prepare().unwrap();
        let error = arm("echo no such disk >&2; exit 3").prepare().unwrap_err().to_string();
        assert!(error.contains("no such disk") && error.contains("arm 'a'"), "{error}");
    }
}
