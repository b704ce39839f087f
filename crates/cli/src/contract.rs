//! The contract of the command line: what scripts write today is read tomorrow.
//!
//! A line that was here once is never taken out or changed; a new command or a new form of one gets a line of its own.

use crate::Cli;
use clap::{CommandFactory, Parser};

/// Every command, in every form that its help shows.
const LINES: &[&str] = &[
    "stonefold serve --pool file:///p",
    "stonefold serve --pool file:///p --nbd tcp://127.0.0.1:10809 --nbd unix:///s --api 127.0.0.1:7770 \
     --cache 1G --durability ack --config f",
    "stonefold serve --pool file:///p --durability flush",
    "stonefold serve --pool file:///p --nbd tcp://0.0.0.0:10809 --tls-cert c --tls-key k --tls-client-ca a \
     --tls allow",
    "stonefold serve --pool file:///p --key-file f --recovery-key g --recovery-key h",
    "stonefold serve --pool file:///p --passphrase-file f",
    "stonefold serve --pool file:///p --key-command c",
    "stonefold serve --pool file:///p --notify-command /usr/local/bin/tell",
    "stonefold disk create web --size 20G",
    "stonefold disk create web --size 20G --durability flush --compression zstd:3",
    "stonefold disk create web --size 512M --durability ack --compression lz4",
    "stonefold disk create web --size 1T --compression zstd",
    "stonefold disk create web --size 20G --compression none --dedupe off --reserve",
    "stonefold disk create web --size 20G --dedupe on",
    "stonefold disk create web --size 20G --domain bank",
    "stonefold disk create web --size 20G --qos critical",
    "stonefold disk create web --size 20G --domain bank --qos test --durability ack --compression zstd:9 \
     --dedupe on --reserve",
    "stonefold disk ls --json",
    "stonefold --json disk show web",
    "stonefold disk set web --compression none",
    "stonefold disk set web --durability ack",
    "stonefold disk set web --dedupe off",
    "stonefold disk set web --reserve on",
    "stonefold disk set web --qos test",
    "stonefold disk resize web 40G",
    "stonefold disk rm web",
    "stonefold disk import web image.qcow2",
    "stonefold disk import web nbd://host/x",
    "stonefold disk import web nbd+unix:///x?socket=/s",
    "stonefold disk import web image.qcow2 --domain bank",
    "stonefold disk export web out.img",
    "stonefold disk export web out.img --format raw",
    "stonefold disk export web out.qcow2 --format qcow2",
    "stonefold disk export web@monday out.vmdk --format vmdk",
    "stonefold snapshot create web",
    "stonefold snapshot create web --name monday",
    "stonefold snapshot create web,db,log",
    "stonefold snapshot create web,db --name monday",
    "stonefold snapshot ls",
    "stonefold snapshot ls web",
    "stonefold snapshot rm web@monday",
    "stonefold snapshot diff web@monday",
    "stonefold snapshot diff web@monday web@tuesday",
    "stonefold snapshot diff web@monday test",
    "stonefold snapshot lock web@monday --until 2027-01-31",
    "stonefold snapshot lock web@monday --until 30d",
    "stonefold clone web@monday test",
    "stonefold rollback web@monday",
    "stonefold qos ls --json",
    "stonefold qos create gold --min-iops 500 --max-iops 2000 --max-bytes 50M --share 300",
    "stonefold qos set gold --max-bytes none --min-bytes 1M",
    "stonefold qos rm gold",
    "stonefold domain create bank --encrypt",
    "stonefold domain create bank --encrypt --compression zstd --dedupe off",
    "stonefold domain ls",
    "stonefold domain set bank --compression none",
    "stonefold domain set bank --dedupe on",
    "stonefold domain rotate bank",
    "stonefold domain shred bank --yes bank",
    "stonefold domain rewrap --new-key-file f",
    "stonefold domain export-key bank",
    "stonefold domain rm bank",
    "stonefold machine add web --disk web-root",
    "stonefold machine add web --disk web-root,web-data --xml web.xml",
    "stonefold machine add web --disk web-root --disk web-data --qemu-args web.args",
    "stonefold machine ls",
    "stonefold machine show web",
    "stonefold machine rm web",
    "stonefold machine snapshot web",
    "stonefold machine snapshot web --name monday",
    "stonefold machine clone web test",
    "stonefold machine clone web@monday test",
    "stonefold machine clone web@monday desk --count 100",
    "stonefold machine set web --qos test",
    "stonefold machine sync desk-1 --from golden",
    "stonefold machine sync desk-1 --from golden@v4 --keep vdb,vdc",
    "stonefold machine template golden",
    "stonefold machine template golden --off",
    "stonefold machine stats web",
    "stonefold machine stats web --exact --json",
    "stonefold source add nightly --machine web",
    "stonefold source ls",
    "stonefold source show nightly",
    "stonefold source rm nightly",
    "stonefold policy create nightly --every 2h",
    "stonefold policy create nightly --every 1d --at 02:00 --zone Europe/Berlin --window 22:00-06:00 \
     --keep hourly=24,daily=30,weekly=8,monthly=12,yearly=7 --lock 14d --consistent crash",
    "stonefold policy create nightly --every 1d --on-failure-webhook https://hooks.example/T0/B1",
    "stonefold policy apply nightly web",
    "stonefold policy apply nightly web db --remove",
    "stonefold policy plan nightly",
    "stonefold policy plan nightly --dry-run",
    "stonefold policy pause nightly",
    "stonefold policy resume nightly",
    "stonefold policy ls",
    "stonefold policy show nightly",
    "stonefold policy rm nightly",
    "stonefold backup run nightly",
    "stonefold backup run nightly --full",
    "stonefold backup ls",
    "stonefold backup show nightly@20261123T184005Z",
    "stonefold point ls",
    "stonefold point ls nightly",
    "stonefold point show nightly@20261123T184005Z",
    "stonefold point rm nightly@20261123T184005Z",
    "stonefold point lock nightly@20261123T184005Z --until 30d",
    "stonefold point diff nightly@20261123T184005Z nightly@20261124T184005Z",
    "stonefold recover nightly@20261123T184005Z --as again",
    "stonefold recover nightly@20261123T184005Z --as again --to export --qos critical --dry-run",
    "stonefold recover ls",
    "stonefold recover stop again",
    "stonefold recover stop again --discard",
    "stonefold cache status --api http://127.0.0.1:1",
    "stonefold cache warm web",
    "stonefold cache warm web@monday",
    "stonefold cache drop",
    "stonefold cache resize 2G",
    "stonefold token create --role admin",
    "stonefold token create --role operator --name backup-host",
    "stonefold token create --role viewer",
    "stonefold token ls",
    "stonefold token ls --token-file t --api https://host:7770 --api-ca ca.pem",
    "stonefold token rm backup-host",
    "stonefold pool status",
    "stonefold pool status --pool file:///p",
    "stonefold pool check",
    "stonefold pool check --pool file:///p",
    "stonefold pool check --pool file:///p --key-file f",
    "stonefold pool check --salvage",
    "stonefold pool check --salvage --pool file:///p",
    "stonefold pool scrub",
    "stonefold pool scrub --pool file:///p",
    "stonefold pool reclaim",
    "stonefold pool add /srv/d2",
    "stonefold pool drain /srv/d1",
    "stonefold pool replace /srv/d1 /srv/d3",
    "stonefold pool cancel",
    "stonefold pool confirm-time",
    "stonefold lab ls",
    "stonefold lab show poltp",
    "stonefold lab run poltp --target file:/srv/x --quick --require iops>=216,read.mean<=20ms --out runs/a",
    "stonefold lab run mine.toml --target nbd://h/a --target nbd://h/b --size 1G --payload 1.2:2 --threads 1 --seed 5",
    "stonefold lab run poltp --target null: --no-verify --destroy-data",
    "stonefold lab run poltp --target dev:/dev/vdb --worker vm-1 --worker vm-2:7771 --token-file t --quick",
    "stonefold lab run chaos --target nbd://h/a --outages outages.toml --quick",
    "stonefold lab run vm-tile --target nbd://h/a --quick --tiles 2..6 --scale 0.01 --price p.toml --out runs/t",
    "stonefold lab run vm-ops --target nbd://h/a --quick --ops ops.toml --tiles 1",
    "stonefold lab run migrate-live --target nbd://h/a --to file:/srv/home.img --quick --warehouses 2 --out runs/m",
    "stonefold lab run chain-recover --target stonefold:db --quick --warehouses 2 --out runs/c",
    "stonefold lab run chain-recover --target file:/srv/db.img --recovery recovery.toml --beside nbd://h/a --beside nbd://h/b --require tpm>=1000",
    "stonefold lab worker --listen 0.0.0.0:7771 --token-file t",
    "stonefold lab compare ab --a file:/srv/x --b nbd://h/b --pairs 7 --quick --out runs/ab",
    "stonefold lab compare ladder --arms arms.toml --size 1G --within 3% --most 12",
    "stonefold lab compare oltp --a dir:/srv/a --b dir:/srv/b --quick --warehouses 2 --postgres /opt/pg/bin",
    "stonefold lab study",
    "stonefold lab study corners --target file:/srv/x --size 256M --quick --out runs/corners --cores 4",
    "stonefold lab study filesystems --a file:/srv/x --b file:/srv/y --pairs 7",
    "stonefold lab study ladder --arms arms.toml",
    "stonefold lab study corners --from runs/corners",
    "stonefold lab study recovery --target stonefold:db --to file:/srv/home.img --recovery r.toml --quick --out runs/r",
    "stonefold lab study recovery --from runs/ours --from runs/theirs",
    "stonefold lab trace start web --out web.sftrace --duration 10m --room 4096",
    "stonefold lab trace stop web",
    "stonefold lab trace ls",
    "stonefold lab trace show web.sftrace",
    "stonefold lab trace import sda.blktrace.0 sda.blktrace.1 --out sda.sftrace --event issue --device 8,0",
    "stonefold lab replay web.sftrace --target file:/srv/x --tiles 4 --speed 2 --duration 1h --out runs/web",
    "stonefold lab replay web.sftrace --target null: --size 1G --remap wrap --require p99<=20ms --partial",
    "stonefold lab report runs/a runs/b --html report.html",
    "stonefold lab report runs/a --json report.json",
    "stonefold lab verify runs/a",
    "stonefold lab lint article.md",
    "stonefold lab lint -",
    "stonefold lab import job.fio --out mine.toml",
    "stonefold lab certify runs/a --sponsor A --auditor B --available 2026-12-01 --price p.toml --key k --out c --identifier x --stamped",
    "stonefold lab certify --verify c/certificate.json runs/a --public-key ab",
    "stonefold lab certify --new-key auditor.key",
    "stonefold top",
    "stonefold completions bash",
    "stonefold version",
];

#[test]
fn the_contracts_lines_are_read() {
    for line in LINES {
        // Each takes what is said of the server, and can be asked for JSON, wherever it is written.
        let json = if line.contains("--json") { "" } else { " --json" };
        for line in [line.to_string(), format!("{line}{json}"), line.replacen(' ', " --api unix:///s ", 1)] {
            // Nothing is given twice.
            if line.matches("--api ").count() < 2 {
                let read = Cli::try_parse_from(line.split_whitespace());
                read.map(drop).unwrap_or_else(|error| panic!("'{line}': {error}"));
            }
        }
    }
}

/// *Past bug*: seven commands, of which three are the contract's, were in no line, so that they could have gone unseen.
#[test]
fn every_command_is_in_the_contract() {
    fn look(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
        if command.has_subcommands() {
            let below = |sub: &clap::Command| format!("{path} {}", sub.get_name());
            return command.get_subcommands().for_each(|sub| look(sub, &below(sub), missing));
        }
        let words: Vec<&str> = path.split(' ').collect();
        let is_of_it = |line: &&str| {
            let bare = line.split_whitespace().filter(|word| *word != "--json");
            bare.take(words.len()).eq(words.iter().copied())
        };
        if !LINES.iter().any(is_of_it) {
            missing.push(path.to_owned());
        }
    }
    let mut missing = Vec::new();
    look(&Cli::command(), "stonefold", &mut missing);
    assert!(missing.is_empty(), "no line has: {missing:?}");
}
