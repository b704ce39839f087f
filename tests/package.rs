//! The Debian package: made, looked through, installed, served by its own unit's words, removed.
//!
//! *Promise*: what is installed belongs to root and is changed by nobody else; the service's user is made and the server runs as it, with no
//! privilege, by the line that the unit has; removing the package takes the program, purging it the configuration, and neither the
//! pool. *Method*: into a root that is this machine's own with all changes kept apart, in a network of its own; the folders that systemd
//! would make for the unit are made by what it says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::package::build;
use stonefold_e2e::root::Root;
use stonefold_e2e::tools::{Beside, run};
use stonefold_needs::{Need, there_is};

/// Below what folders it has files.
const FOLDERS: [&str; 6] = [
    "./etc/stonefold/",
    "./lib/systemd/system/",
    "./usr/bin/",
    "./usr/share/bash-completion/completions/",
    "./usr/share/doc/stonefold/",
    "./usr/share/zsh/vendor-completions/",
];
/// What it has at least.
const FILES: [(&str, &str); 7] = [
    ("-rwxr-xr-x", "./usr/bin/stonefold"),
    ("-rw-r--r--", "./lib/systemd/system/stonefold.service"),
    ("-rw-r--r--", "./etc/stonefold/stonefold.toml"),
    ("-rw-r--r--", "./usr/share/doc/stonefold/copyright"),
    ("-rw-r--r--", "./usr/share/doc/stonefold/docs/operate/serve.md"),
    ("-rw-r--r--", "./usr/share/bash-completion/completions/stonefold"),
    ("-rw-r--r--", "./usr/share/zsh/vendor-completions/_stonefold"),
];
/// Which package has a library.
const LIBRARIES: [(&str, &str); 4] =
    [("libc.so.", "libc6"), ("libm.so.", "libc6"), ("ld-linux", "libc6"), ("libgcc_s.so.", "libgcc-s1")];
/// As the package's configuration has it.
const POOL: &str = "/var/lib/stonefold/pool";

#[test]
fn the_package_installs_serves_and_goes_without_the_pool() {
    in_a_place(|place| {
        let package = build(place)?;
        holds_what_it_should(&package)?;
        its_pages_lead_somewhere(place, &package)?;
        depends_on_what_it_needs(place, &package)?;
        if !there_is(Need::Loop, "installing the Debian package in a root of its own") {
            return Ok(());
        }
        let root = Root::new(&place.path("machine"))?;
        as_if_never_installed(&root)?;
        fs::copy(&package, root.path("tmp/stonefold.deb"))?;
        let data = noise(1, 3 << 20);
        fs::write(root.path("tmp/web.raw"), &data)?;

        root.ok("dpkg", &["--install", "/tmp/stonefold.deb"])?;
        is_installed(&root)?;
        let unit = unit(&root)?;
        let server = serve(&root, &unit)?;
        root.ok("stonefold", &["disk", "import", "web", "/tmp/web.raw"])?;
        belongs_to_the_service(&root)?;
        stop(server)?;
        let kept = pool(&root)?;
        ensure!(kept.lines().count() > 3, "this is no pool: {kept}");

        fs::write(root.path("etc/stonefold/stonefold.toml"), "# changed by hand\n")?;
        root.ok("dpkg", &["--remove", "stonefold"])?;
        ensure!(!root.path("usr/bin/stonefold").exists(), "the program is still there");
        ensure!(
            root.path("etc/stonefold/stonefold.toml").exists(),
            "the configuration went with the program"
        );
        ensure!(pool(&root)? == kept, "removing the package changed the pool");
        let said = root.ok("dpkg", &["--purge", "stonefold"])?;
        ensure!(said.contains(POOL) && said.contains("kept"), "nobody is told of the pool: {said}");
        ensure!(!root.path("etc/stonefold").exists(), "the configuration is still there");
        ensure!(pool(&root)? == kept, "purging the package changed the pool");

        root.ok("dpkg", &["--install", "/tmp/stonefold.deb"])?;
        let server = serve(&root, &unit)?;
        root.ok("stonefold", &["disk", "export", "web", "/tmp/back.raw"])?;
        ensure!(fs::read(root.path("tmp/back.raw"))? == data, "the disk came back as something else");
        stop(server)
    });
}

/// Every link of its pages that is none into the web.
fn its_pages_lead_somewhere(place: &Place, package: &Path) -> Result<()> {
    let folder = place.path("unpacked");
    run("dpkg-deb", &["--extract", &package.to_string_lossy(), &folder.to_string_lossy()])?;
    let mut folders = vec![folder.join("usr/share/doc/stonefold")];
    let mut links = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = if path.extension().is_some_and(|ends| ends == "md") {
                fs::read_to_string(&path)?
            } else {
                continue;
            };
            for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
                let leads = link.is_empty() || link.contains(':') || folder.join(link).exists();
                ensure!(leads, "{} leads to '{link}', which is not in the package", path.display());
                links += 1;
            }
        }
    }
    ensure!(links > 100, "only {links} links are seen");
    Ok(())
}

/// A field of its control file.
fn field(package: &Path, name: &str) -> Result<String> {
    Ok(run("dpkg-deb", &["--field", &package.to_string_lossy(), name])?.trim().to_owned())
}

fn holds_what_it_should(package: &Path) -> Result<()> {
    let told = run("dpkg-deb", &["--contents", &package.to_string_lossy()])?;
    let mut modes = BTreeMap::new();
    for line in told.lines() {
        // -rwxr-xr-x root/root   28233272 2026-11-23 00:40 ./usr/bin/stonefold
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, .., path] = words[..] else { anyhow::bail!("what is this: {line}") };
        ensure!(owner == "root/root", "{line}");
        ensure!(["drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"].contains(&mode), "{line}");
        let known = FOLDERS.iter().any(|folder| path.starts_with(folder) || folder.starts_with(path));
        ensure!(known, "nobody expects {path}");
        modes.insert(path.to_owned(), mode.to_owned());
    }
    for (mode, path) in FILES {
        ensure!(modes.get(path).is_some_and(|found| found == mode), "{path} is {:?}", modes.get(path));
    }
    let conffiles = run("dpkg-deb", &["--info", &package.to_string_lossy(), "conffiles"])?;
    ensure!(conffiles.trim() == "/etc/stonefold/stonefold.toml", "{conffiles}");
    let version = field(package, "Version")?;
    ensure!(version == env!("CARGO_PKG_VERSION"), "the package is of version {version}");
    Ok(())
}

/// Each library that the program is linked to comes with a package that is named.
fn depends_on_what_it_needs(place: &Place, package: &Path) -> Result<()> {
    let depends = field(package, "Depends")?;
    let named: Vec<&str> = depends.split(", ").filter_map(|one| one.split_whitespace().next()).collect();
    let unpacked = place.text("unpacked");
    run("dpkg-deb", &["--extract", &package.to_string_lossy(), &unpacked])?;
    let headers = run("objdump", &["-p", &format!("{unpacked}/usr/bin/stonefold")])?;
    let needed = headers.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    for library in needed.map(str::trim) {
        let has = LIBRARIES.iter().find(|(name, _)| library.starts_with(name));
        let (_, has) = has.with_context(|| format!("which package has {library}?"))?;
        ensure!(named.contains(has), "{library} comes with {has}, and the package depends on {depends}");
    }
    // By which the user is made.
    ensure!(named.contains(&"adduser"), "{depends}");
    Ok(())
}

/// The machine may have the package itself.
fn as_if_never_installed(root: &Root) -> Result<()> {
    root.attempt("dpkg", &["--purge", "stonefold"])?;
    root.attempt("deluser", &["--quiet", "stonefold"])?;
    root.ok("rm", &["-rf", "/etc/stonefold", "/var/lib/stonefold"])?;
    ensure!(!root.attempt("getent", &["passwd", "stonefold"])?.status.success(), "the user is there before");
    Ok(())
}

fn is_installed(root: &Root) -> Result<()> {
    let version = root.ok("stonefold", &["--version"])?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let user = root.ok("getent", &["passwd", "stonefold"])?;
    let parts: Vec<&str> = user.trim().split(':').collect();
    ensure!(parts[2].parse::<u32>()? < 1000, "this is a user for people: {user}");
    ensure!(parts[5] == "/var/lib/stonefold" && parts[6].ends_with("nologin"), "{user}");
    let groups = root.ok("id", &["--groups", "--name", "stonefold"])?;
    ensure!(groups.trim() == "stonefold", "it is in the groups {groups}");
    let verified = root.ok("systemd-analyze", &["verify", "stonefold.service"])?;
    ensure!(!verified.contains("stonefold"), "systemd-analyze verify: {verified}");
    Ok(())
}

/// The unit's section `[Service]`.
fn unit(root: &Root) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root.path("lib/systemd/system/stonefold.service"))?;
    let (_, rest) = text.split_once("[Service]").context("a section [Service]")?;
    let section = rest.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.filter_map(|line| line.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect())
}

/// Does what systemd does for the unit: makes its folders, becomes its user without a privilege, and runs its line.
fn serve(root: &Root, unit: &BTreeMap<String, String>) -> Result<Beside> {
    let word =
        |name: &str| unit.get(name).map(String::as_str).with_context(|| format!("the unit says no {name}"));
    let (user, group) = (word("User")?, word("Group")?);
    for (below, folder) in [("/var/lib", "StateDirectory"), ("/run", "RuntimeDirectory")] {
        let path = format!("{below}/{}", word(folder)?);
        let mode = word(&format!("{folder}Mode"))?;
        root.ok("install", &["-d", "-o", user, "-g", group, "-m", mode, &path])?;
    }
    ensure!(word("NoNewPrivileges")? == "yes" && word("CapabilityBoundingSet")?.is_empty());
    let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
    let mut line =
        vec![user.as_str(), &group, "--init-groups", "--no-new-privs", "--bounding-set=-all", "--"];
    line.extend(word("ExecStart")?.split_whitespace());
    root.beside("setpriv", &line, || is_healthy(root).is_ok())
}

/// Asks as a load balancer would, with nothing but what every Debian has.
fn is_healthy(root: &Root) -> Result<()> {
    const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/7770
        printf 'GET /healthz HTTP/1.1\\r\\nHost: 127.0.0.1:7770\\r\\nConnection: close\\r\\n\\r\\n' >&3
        cat <&3";
    let said = root.ok("bash", &["-c", ASK])?;
    ensure!(said.starts_with("HTTP/1.1 200 "), "{said}");
    Ok(())
}

fn stop(server: Beside) -> Result<()> {
    server.interrupt()?;
    server.ended()
}

fn belongs_to_the_service(root: &Root) -> Result<()> {
    for (path, expected) in [
        ("/var/lib/stonefold", "stonefold:stonefold 700"),
        (POOL, "stonefold:stonefold 700"),
        ("/run/stonefold", "stonefold:stonefold 750"),
        ("/etc/stonefold/stonefold.toml", "root:root 644"),
        ("/usr/bin/stonefold", "root:root 755"),
    ] {
        let found = root.ok("stat", &["--format=%U:%G %a", path])?;
        ensure!(found.trim() == expected, "{path} is {found}");
    }
    // The other door.
    let size = root.ok("nbdinfo", &["--size", "nbd+unix:///web?socket=/run/stonefold/nbd.sock"])?;
    ensure!(size.trim() == (3 << 20).to_string(), "{size}");
    Ok(())
}

/// Every file of the pool, with its sum and its owner.
fn pool(root: &Root) -> Result<String> {
    let sums =
        format!("find {POOL} -type f | sort | xargs sha256sum && find {POOL} -printf '%p %u %m\\n' | sort");
    root.ok("sh", &["-c", &sums])
}
