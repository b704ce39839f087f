//! QEMU's arguments as a list of options, to be looked through and changed.

mod json;

use std::ops::{Index, IndexMut};
use stonefold_types::{Error, Kind, Result};

/// Options of QEMU's that have no value; every other one takes the word that follows it.
const ALONE: &[&str] = &[
    "alt-grab",
    "ctrl-grab",
    "daemonize",
    "enable-fips",
    "enable-kvm",
    "enable-sync-profile",
    "full-screen",
    "jitdump",
    "mem-prealloc",
    "nodefaults",
    "no-acpi",
    "no-fd-bootchk",
    "no-hpet",
    "no-kvm",
    "no-quit",
    "no-reboot",
    "no-shutdown",
    "no-user-config",
    "nographic",
    "old-param",
    "one-insn-per-tb",
    "only-migratable",
    "perfmap",
    "portrait",
    "preconfig",
    "S",
    "s",
    "sdl",
    "semihosting",
    "singlestep",
    "snapshot",
    "usb",
    "win2k-hack",
    "xen-attach",
    "xen-domid-restrict",
];

/// What QEMU gives a guest of which nothing is said, in bytes.
const MEMORY_USUAL: u64 = 128 << 20;

/// An option, without its dashes, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) option: String,
    pub(super) value: String,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(Vec<Word>);

impl Words {
    /// Reads them as a shell does; a `\` at a line's end goes on with the next.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where a quote has no end, an option no value, or a word belongs to none: an image, say.
    pub(super) fn parse(text: &str) -> Result<Words> {
        let wrong = |what: String| {
            Error::new(Kind::Invalid, format!("QEMU's arguments cannot be read: {what}"))
                .remedy("write what the machine is started with, disks left out, as in: -m 2G -smp 2")
        };
        if text.contains('\0') {
            return Err(wrong("they have a zero byte".to_owned()));
        }
        // Of a line that goes on shlex makes an empty word.
        let words =
            shlex::split(&text.replace("\\\n", " ")).ok_or_else(|| wrong("a quote has no end".to_owned()))?;
        let mut words = words.into_iter().peekable();
        // The program itself may stand in front.
        words.next_if(|first| first.rsplit('/').next().is_some_and(|name| name.starts_with("qemu-system-")));
        let mut list = Vec::new();
        while let Some(word) = words.next() {
            let option =
                word.strip_prefix("--").or(word.strip_prefix('-')).filter(|option| !option.is_empty());
            let option = option.ok_or_else(|| wrong(format!("'{word}' is no option")))?.to_owned();
            let value = match ALONE.contains(&option.as_str()) {
                true => String::new(),
                false => words.next().ok_or_else(|| wrong(format!("'-{option}' has no value")))?,
            };
            list.push(Word { option, value });
        }
        Ok(Words::of_one_form(list))
    }

    /// All in the form `kind,name=value`, whichever they were written in. QEMU makes devices that were written as JSON behind the others.
    fn of_one_form(list: Vec<Word>) -> Words {
        let (mut words, mut behind) = (Vec::new(), Vec::new());
        for word in list {
            match json::flat(&word.option, &word.value) {
                Some(value) if word.option == "device" => behind.push(Word { value, ..word }),
                Some(value) => words.push(Word { value, ..word }),
                None => words.push(word),
            }
        }
        words.append(&mut behind);
        Words(words)
    }

    /// As a shell reads them.
    pub(super) fn text(&self) -> String {
        let words = self.arguments();
        // A zero byte, which has no way to be written, was refused.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }

    /// As a program takes them.
    pub(super) fn arguments(&self) -> Vec<String> {
        let words = self.0.iter().flat_map(|word| {
            let value = (!ALONE.contains(&word.option.as_str())).then(|| word.value.clone());
            std::iter::once(format!("-{}", word.option)).chain(value)
        });
        words.collect()
    }

    pub(super) fn push(&mut self, option: &str, value: impl Into<String>) {
        self.0.push(Word { option: option.to_owned(), value: value.into() });
    }

    pub(super) fn has(&self, options: &[&str]) -> bool {
        self.0.iter().any(|word| options.contains(&word.option.as_str()))
    }

    /// What the guest is given, in bytes; nothing where that is not understood.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let Some(word) = self.0.iter().rev().find(|word| word.option == "m") else {
            return Some(MEMORY_USUAL);
        };
        let amount = word.property("size").or(word.value.split(',').next())?;
        let (digits, unit) =
            amount.split_at(amount.find(|c: char| !c.is_ascii_digit()).unwrap_or(amount.len()));
        let shift = match unit {
            "" | "M" | "m" => 20,
            "K" | "k" => 10,
            "G" | "g" => 30,
            "T" | "t" => 40,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)
    }

    /// Takes out what `is_it` finds.
    pub(super) fn take(&mut self, is_it: impl Fn(&Word) -> bool) -> Vec<Word> {
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(|word| is_it(word));
        self.0 = left;
        taken
    }

    /// The same of options by their names.
    pub(super) fn take_all(&mut self, options: &[&str]) -> Vec<Word> {
        self.take(|word| options.contains(&word.option.as_str()))
    }

    pub(super) fn each(&mut self, change: impl FnMut(&mut Word)) {
        self.0.iter_mut().for_each(change);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Word> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Index<usize> for Words {
    type Output = Word;

    fn index(&self, at: usize) -> &Word {
        &self.0[at]
    }
}

impl IndexMut<usize> for Words {
    fn index_mut(&mut self, at: usize) -> &mut Word {
        &mut self.0[at]
    }
}

impl Word {
    /// The value's parts; a comma that is doubled is one of a part's own.
    fn parts(&self) -> Vec<&str> {
        let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
        while let Some(comma) = self.value[at..].find(',').map(|found| at + found) {
            let is_doubled = self.value[comma + 1..].starts_with(',');
            if !is_doubled {
                parts.push(&self.value[from..comma]);
                from = comma + 1;
            }
            at = comma + 1 + usize::from(is_doubled);
        }
        parts.push(&self.value[from..]);
        parts
    }

    /// A property of the value, as in `virtio-net-pci,netdev=n0,mac=…`, as it is written there.
    pub(super) fn property(&self, name: &str) -> Option<&str> {
        self.parts().into_iter().find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    }

    /// What kind it is: what goes by this name, or the value's first part.
    pub(super) fn kind(&self, name: &str) -> Option<&str> {
        self.property(name).or_else(|| self.parts().first().copied())
    }

    /// Sets a property.
    pub(super) fn set_property(&mut self, name: &str, value: &str) {
        let own = format!("{name}={value}");
        let is_it = |part: &str| part.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        let mut parts: Vec<String> = self.parts().into_iter().map(str::to_owned).collect();
        match parts.iter_mut().find(|part| is_it(part)) {
            Some(part) => *part = own,
            None => parts.push(own),
        }
        self.value = parts.join(",");
    }

    /// Takes a property out, as often as it is there.
    pub(super) fn drop_property(&mut self, name: &str) {
        let is_it = |part: &&str| part.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        self.value = self.parts().into_iter().filter(|part| !is_it(part)).collect::<Vec<_>>().join(",");
    }

    /// By what others name it.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        ["id", "node-name"].into_iter().filter_map(|name| self.property(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_written_as_a_shell_does() {
        let text = "qemu-system-x86_64 -m 2G \\\n  -nographic --device 'virtio-net-pci,mac=52:54:00:00:00:01,netdev=a b' -S";
        let words = Words::parse(text).unwrap();
        assert_eq!(
            words.arguments(),
            ["-m", "2G", "-nographic", "-device", "virtio-net-pci,mac=52:54:00:00:00:01,netdev=a b", "-S"]
        );
        assert_eq!(Words::parse(&words.text()).unwrap(), words);
    }

    #[test]
    fn a_property_is_found_in_either_form() {
        for value in [
            "virtio-blk-pci,drive=d,id=drive,n=1",
            r#"'{"n": 1, "driver":"virtio-blk-pci", "id":"drive", "drive": "d"}'"#,
        ] {
            let words = Words::parse(&format!("-device {value}")).unwrap();
            let property = |name| words[0].property(name);
            assert_eq!(
                (words[0].kind("driver"), property("drive"), property("id"), property("n"), property("x")),
                (Some("virtio-blk-pci"), Some("d"), Some("drive"), Some("1"), None)
            );
        }
        let word = Word { option: "drive".into(), value: "file=/a,,readonly=on,id=x".into() };
        assert_eq!(
            (word.property("readonly"), word.property("file"), word.property("id")),
            (None, Some("/a,,readonly=on"), Some("x"))
        );
    }

    #[test]
    fn a_guest_s_memory_is_read_as_qemu_reads_it() {
        for (text, mib) in [
            ("-m 512", Some(512)),
            ("-m 2G,slots=4", Some(2048)),
            ("-m size=1024M", Some(1024)),
            ("-smp 2", Some(128)),
            ("-m 1X", None),
        ] {
            assert_eq!(Words::parse(text).unwrap().memory_bytes(), mib.map(|mib: u64| mib << 20), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_of_options_is_refused() {
        for (text, says) in [
            ("-m 'x", "quote"),
            ("disk.img", "disk.img"),
            ("-smp 2 -m", "'-m' has no value"),
            ("--", "'--'"),
            ("-S \0", "zero"),
        ] {
            let error = Words::parse(text).unwrap_err();
            assert!(error.kind() == Kind::Invalid && error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_property_is_changed_at_its_place() {
        let mut word = Word { option: "device".into(), value: "e1000,mac=1,netdev=n,xmac=2".into() };
        word.set_property("mac", "9");
        assert_eq!(word.value, "e1000,mac=9,netdev=n,xmac=2");
        assert_eq!(word.property("netdev"), Some("n"));
        word.drop_property("netdev");
        assert_eq!(word.value, "e1000,mac=9,xmac=2");
        word.set_property("romfile", "");
        assert_eq!(word.value, "e1000,mac=9,xmac=2,romfile=");
    }
}
