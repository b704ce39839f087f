//! The commands that our pages show are commands that there are.
//!
//! *Past bug*: a page's example had `stonefold snapshot clone`, which nobody ever had.

use crate::Cli;
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};

/// All pages below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            pages(&entry, found);
        } else if entry.extension().is_some_and(|ends| ends == "md") {
            found.push(entry);
        }
    }
}

/// The lines between fences, those that go on in the next one made one.
fn shown(text: &str) -> Vec<String> {
    let (mut lines, mut fenced, mut begun) = (Vec::new(), false, String::new());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            match line.strip_suffix('\\') {
                Some(goes_on) => begun.push_str(goes_on),
                None => lines.push(std::mem::take(&mut begun) + line),
            }
        }
    }
    lines
}

/// The commands of ours in a line of a shell, word by word; what a shell puts in for itself stands as it is.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word, mut quote) = (Vec::new(), Vec::new(), String::new(), None);
    let mut end = |words: &mut Vec<String>| {
        let ours = words.iter().position(|word| word == "stonefold");
        let before = |at: usize| words[..at].iter().all(|word| word == "sudo" || word.contains('='));
        if let Some(at) = ours.filter(|at| before(*at)) {
            commands.push(words.split_off(at));
        }
        words.clear();
    };
    for letter in format!("{line}\n").chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some(letter),
            ('#', None) if word.is_empty() => break,
            _ if letter.is_whitespace() || "&;|<>()".contains(letter) => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if !letter.is_whitespace() {
                    end(&mut words);
                }
            }
            _ => word.push(letter),
        }
    }
    end(&mut words);
    commands
}

fn read(from: &str, line: &str, seen: &mut usize) {
    for words in commands(
        &line
            .replace("$HOME", "/home/me")
            .replace("$STONEFOLD_LAB_ROUND", "1")
            .replace("$(cat point-$STONEFOLD_LAB_POINT)", "shop@20261125T031749Z"),
    ) {
        // A form of a command, not one of them.
        if words.iter().any(|word| word.contains(['…', '['])) {
            continue;
        }
        *seen += 1;
        Cli::try_parse_from(&words).map(drop).unwrap_or_else(|error| match error.kind() {
            clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion => {}
            _ => panic!("{from} shows '{}': {error}", words.join(" ")),
        });
    }
}

#[test]
fn what_the_pages_show_can_be_typed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md"), root.join("bench/lab/tiles/README.md")];
    pages(&root.join("docs"), &mut found);
    let mut seen = 0;
    for page in &found {
        let from = page.strip_prefix(&root).unwrap().display().to_string();
        for line in shown(&std::fs::read_to_string(page).unwrap()) {
            read(&from, &line, &mut seen);
            // A command in a file of settings: `key = "stonefold …"`.
            if let Some((_, command)) =
                line.split_once("= \"").filter(|(_, rest)| rest.starts_with("stonefold "))
            {
                read(&from, command.rsplit_once('"').map_or(command, |(command, _)| command), &mut seen);
            }
        }
    }
    assert!(seen > 100, "only {seen} commands are seen");
}

#[test]
fn the_examples_of_the_help_can_be_typed() {
    fn look(command: &clap::Command, seen: &mut usize) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let goes_on = after.replace("\\\n", " ");
        for line in goes_on.lines() {
            read(&format!("the help of '{}'", command.get_name()), line, seen);
        }
        command.get_subcommands().for_each(|sub| look(sub, seen));
    }
    let mut seen = 0;
    look(&Cli::command(), &mut seen);
    assert!(seen > 50, "only {seen} examples are seen");
}

#[test]
fn a_line_of_a_shell_is_taken_apart() {
    let told = |line: &str| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        told("sudo stonefold disk ls | grep web && X=1 stonefold 'pool' status # now"),
        ["stonefold disk ls", "stonefold pool status"]
    );
    assert!(told("echo stonefold disk ls").is_empty());
}
