//! The command line.
//!
//! *Promises*: what it prints to stdout is the answer and nothing else, and with `--json` exactly one JSON
//! document, which of a command that failed before it had an answer is the error; errors go to stderr as text (what
//! failed, on what, what to do); exit status 0 done, 1 failed, 2 misuse. *Never*: touches a pool itself: it asks a server through the API, which
//! for `serve`, and for a command with `--pool`, runs in this process. *Owns*: words, tables, progress bars. *May be used by*: people and scripts.

/// As the standard library's, which panics when nobody reads stderr any more: a command goes on, and its exit status stays what it means.
macro_rules! eprintln {
    ($($said:tt)*) => { $crate::failure::tell(&format!("{}\n", format_args!($($said)*))) };
}

mod backup;
mod cache;
mod clone;
mod context;
#[cfg(test)]
mod contract;
mod directories;
mod disk;
mod domain;
mod environment;
mod failure;
mod files;
mod interrupt;
mod keys;
mod lab;
mod machine;
mod migrate;
mod offline;
#[cfg(test)]
mod pages;
mod point;
mod policy;
mod pool;
mod qemu;
mod qos;
mod recover;
mod salvage;
mod serve;
mod shell;
mod snapshot;
mod table;
mod token;
mod top;
mod verify;
mod version;
mod waiting;

use clap::{Parser, Subcommand};
use context::{Context, Global};
use failure::Failure;
use std::process::ExitCode;

/// Storage for virtual machines that remembers everything and gives it back at once.
#[derive(Parser)]
#[command(
    name = "stonefold",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Start:  stonefold serve --pool file:///srv/pool\n\
                  Then:   stonefold disk import web debian.qcow2\n        \
                  stonefold snapshot create web --name before-upgrade\n        \
                  stonefold clone web@before-upgrade web-test\n\n\
                  Sizes read 512M, 20G, 1T. Exit status: 0 done, 1 failed, 2 misuse."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// One a family; each says in its own file what it is for.
#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    #[command(subcommand)]
    Disk(disk::Disk),
    #[command(subcommand)]
    Snapshot(snapshot::Snapshot),
    Clone(clone::Clone),
    Rollback(clone::Rollback),
    #[command(subcommand)]
    Cache(cache::Cache),
    #[command(subcommand)]
    Pool(pool::Pool),
    #[command(subcommand)]
    Domain(domain::Domain),
    #[command(subcommand)]
    Qos(qos::Qos),
    #[command(subcommand)]
    Machine(machine::Machine),
    #[command(subcommand)]
    Source(backup::Source),
    #[command(subcommand)]
    Policy(policy::Policy),
    #[command(subcommand)]
    Backup(backup::Backup),
    #[command(subcommand)]
    Point(point::Point),
    Recover(Box<recover::Recover>),
    Migrate(Box<migrate::Migrate>),
    Verify(verify::Verify),
    #[command(subcommand)]
    Token(token::Token),
    #[command(subcommand)]
    Lab(lab::Lab),
    Top(top::Top),
    Completions(shell::Completions),
    /// Print the version, and the server's where one answers
    Version,
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| failure::tell_misread(&error));
    let context = Context::new(cli.global);
    match run(cli.command, &context) {
        Ok(status) => status,
        // One document: a command that answered and then failed has said what it has to say.
        Err(failure) => failure.tell(context.json && !context.has_answered()),
    }
}

fn run(command: Command, context: &Context) -> Result<ExitCode, Failure> {
    let done = match command {
        // Its status is a verdict.
        Command::Lab(lab) => return lab.run(context),
        Command::Serve(serve) => serve.run(context),
        Command::Disk(disk) => disk.run(context),
        Command::Snapshot(snapshot) => snapshot.run(context),
        Command::Clone(clone) => clone.run(context),
        Command::Rollback(rollback) => rollback.run(context),
        Command::Cache(cache) => cache.run(context),
        Command::Pool(pool) => pool.run(context),
        Command::Domain(domain) => domain.run(context),
        Command::Qos(qos) => qos.run(context),
        Command::Machine(machine) => machine.run(context),
        Command::Source(source) => source.run(context),
        Command::Policy(policy) => policy.run(context),
        Command::Backup(backup) => backup.run(context),
        Command::Point(point) => point.run(context),
        Command::Recover(recover) => recover.run(context),
        Command::Migrate(migrate) => migrate.run(context),
        Command::Verify(verify) => verify.run(context),
        Command::Token(token) => token.run(context),
        Command::Top(top) => top.run(context),
        Command::Completions(completions) => completions.run(context),
        Command::Version => version::run(context),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn refused(line: &str) -> clap::Error {
        let words = line.split(' ').filter(|word| !word.is_empty());
        match Cli::try_parse_from(words) {
            Ok(_) => panic!("'{line}' is accepted"),
            Err(error) => error,
        }
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn misuse_is_refused_with_status_2() {
        for line in [
            "stonefold disk",
            "stonefold disk create web",
            "stonefold disk create we/b --size 1G",
            "stonefold disk create web --size big",
            "stonefold disk set web",
            "stonefold snapshot rm web",
            "stonefold snapshot diff web",
            "stonefold rollback web",
            "stonefold clone web test",
            "stonefold cache resize",
            "stonefold domain shred bank",
            "stonefold domain set bank",
            "stonefold domain rewrap",
            "stonefold serve --pool file:///p --key-file f --passphrase-file g",
            "stonefold qos set gold",
            "stonefold qos create gold --max-iops many",
            "stonefold machine add web",
            "stonefold machine add web --disk a --xml f --qemu-args g",
            "stonefold machine clone web",
            "stonefold machine set web",
            "stonefold machine sync web",
            "stonefold source add web",
            "stonefold policy create nightly",
            "stonefold policy create nightly --every 1d --lock forever",
            "stonefold policy create nightly --every 1d --consistent perhaps",
            "stonefold policy create nightly --every 7h",
            "stonefold policy create nightly --every 1d --window all",
            "stonefold policy create nightly --every 1d --keep daily",
            "stonefold policy create nightly --every 1d --archive file:///a --archive-keep all",
            "stonefold policy create nightly --every 1d --lock 4000d",
            "stonefold policy set nightly",
            "stonefold policy set nightly --verify none --keep bogus=1",
            "stonefold policy apply nightly",
            "stonefold recover",
            "stonefold recover nightly@20261123T184005Z",
            "stonefold recover --as web",
            "stonefold recover nightly@20261123T184005Z --as web --to nowhere",
            "stonefold recover stop",
            "stonefold recover --plan site.toml --as web",
            "stonefold recover --plan site.toml --to libvirt:here",
            "stonefold recover nightly@20261123T184005Z --as web --to libvirt:here",
            "stonefold verify",
            "stonefold policy create nightly --every 1d --wait agent",
            "stonefold policy create nightly --every 1d --verify look",
            "stonefold migrate",
            "stonefold migrate web",
            "stonefold migrate web --keep --to file:/x",
            "stonefold migrate web --to file:/x --floor 100%",
            "stonefold migrate web --to file:x",
            "stonefold migrate web --to file:/x --format vmdk",
            "stonefold verify nightly@20261123T184005Z --timeout soon",
            "stonefold point show web",
            "stonefold point lock web@20261123T184005Z",
            "stonefold point diff web@20261123T184005Z",
            "stonefold token create",
            "stonefold token create --role root",
            "stonefold serve --pool file:///p --durability maybe",
            "stonefold serve --pool file:///p --nbd udp://x",
            "stonefold serve --pool file:///p --tls perhaps",
            "stonefold nonsense",
        ] {
            assert_eq!(refused(line).exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        for (line, meant) in [
            ("stonefold dsik ls", "disk"),
            ("stonefold snapshot craete web", "create"),
            ("stonefold disk create web --sise 1G", "--size"),
            ("stonefold disk export web f --format qcow", "qcow2"),
        ] {
            let error = refused(line);
            assert!(error.to_string().contains(&format!("'{meant}'")), "{line}: {error}");
            assert!(!matches!(error.kind(), ErrorKind::DisplayHelp), "{line}");
        }
    }

    #[test]
    fn every_command_says_what_it_is_for() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path} has no description");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path} {} has no help", argument.get_id());
            }
            command.get_subcommands().for_each(|sub| look(sub, &path));
        }
        look(&Cli::command(), "");
    }
}
