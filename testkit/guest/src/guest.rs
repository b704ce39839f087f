//! A running machine: wait for its words, run commands in its shell, look at its screen, stop it.

use std::{
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    console::{Console, TAIL_LINES},
    process,
    qmp::Qmp,
};

/// A machine that runs until it is stopped or goes out of scope.
pub struct Guest {
    name: String,
    child: Child,
    console: Console,
    control: PathBuf,
    qemu_log: PathBuf,
    commands_run: u32,
    /// Holds the control socket; goes when the guest goes.
    _run: TempDir,
}

/// What a command in the guest said, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Its exit status.
    pub status: u8,
    /// Its standard output and error as the console showed them, without the last newline.
    pub output: String,
    command: String,
}

impl CommandOutput {
    /// The output of a command that ended well.
    ///
    /// # Errors
    /// When its exit status is not 0; the error holds the command, the status and the output.
    pub fn success(self) -> Result<String> {
        if self.status == 0 {
            return Ok(self.output);
        }
        bail!("in the guest, `{}` ended with status {} and said:\n{}", self.command, self.status, self.output)
    }
}

impl Guest {
    pub(crate) fn new(
        name: String,
        child: Child,
        console: Console,
        control: PathBuf,
        qemu_log: PathBuf,
        run: TempDir,
    ) -> Self {
        Self { name, child, console, control, qemu_log, commands_run: 0, _run: run }
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether QEMU has ended, or does so this instant: its console closes a moment before its process is gone.
    pub fn has_ended(&mut self) -> bool {
        process::wait(&mut self.child, Duration::from_millis(500)).is_ok()
    }

    /// Waits until the console says `text`; gives back what it said before it since the last wait.
    ///
    /// # Errors
    /// When it does not in time, the guest ends first, or the process was asked to stop. The error shows the last lines.
    pub fn wait_for(&mut self, text: &str, allowed: Duration) -> Result<String> {
        self.wait_for_any(&[text], allowed).map(|(_, before)| before)
    }

    /// Waits until the console says one of `texts`; tells which, and what it said before.
    ///
    /// # Errors
    /// As [`Guest::wait_for`].
    pub fn wait_for_any(&mut self, texts: &[&str], allowed: Duration) -> Result<(usize, String)> {
        self.console.wait_for_any(texts, allowed).map_err(|error| self.explained(error))
    }

    /// Types a line on the console.
    ///
    /// # Errors
    /// When QEMU has gone.
    pub fn type_line(&mut self, line: &str) -> Result<()> {
        self.console.type_line(line).map_err(|error| self.explained(error))
    }

    /// Runs a command in the shell that sits on the console, and waits for its end.
    ///
    /// A shell prompt must be there, or come within `allowed`. The command is one line.
    ///
    /// # Errors
    /// When the shell does not answer in time. A command that fails is no error here: see [`CommandOutput::success`].
    pub fn run(&mut self, command: &str, allowed: Duration) -> Result<CommandOutput> {
        self.commands_run += 1;
        let marks = Marks::new(self.commands_run);
        self.type_line(&marks.wrapped(command))?;
        let asked = || format!("the guest did not finish `{command}`");
        self.wait_for(&marks.begin, allowed).with_context(asked)?;
        let output = self.wait_for(&marks.end, allowed).with_context(asked)?;
        let status = self.wait_for("\n", allowed).with_context(asked)?;
        let status = status
            .trim()
            .parse()
            .map_err(|_| anyhow!("the guest's shell told no exit status but {status:?}"))?;
        Ok(CommandOutput {
            status,
            output: output.trim_matches('\n').to_owned(),
            command: command.to_owned(),
        })
    }

    /// Shuts the guest down from its shell, and waits until it has. Not by its power button: nobody looks at that before udev has found
    /// it, which comes long after the login prompt where a guest is emulated.
    ///
    /// # Errors
    /// When it has not in time; it is then still running.
    pub fn shut_down(&mut self, allowed: Duration) -> Result<ExitStatus> {
        // Behind the shell's back, which is to answer before it goes.
        self.run("(sleep 1; systemctl poweroff) >/dev/null 2>&1 & true", allowed)?.success()?;
        self.wait_for_end(allowed)
    }

    /// Pulls the plug: the guest gets no chance to write anything more, what it wrote is flushed by QEMU.
    ///
    /// # Errors
    /// When QEMU does not end in time; it is then killed when the guest goes out of scope.
    pub fn quit(&mut self, allowed: Duration) -> Result<ExitStatus> {
        Qmp::connect(&self.control)?.execute("quit", &json!({}))?;
        self.wait_for_end(allowed)
    }

    /// Waits until the guest has ended by itself.
    ///
    /// # Errors
    /// When it has not in time, or QEMU failed.
    pub fn wait_for_end(&mut self, allowed: Duration) -> Result<ExitStatus> {
        let status = process::wait(&mut self.child, allowed)
            .with_context(|| format!("waiting for the guest {} to end", self.name))
            .map_err(|error| self.explained(error))?;
        if status.success() {
            return Ok(status);
        }
        Err(self.explained(anyhow!("QEMU of the guest {} ended with {status}", self.name)))
    }

    /// Saves what the guest's screen shows: as PNG, or as PPM where QEMU is older than 7.1. Tells the file's name.
    ///
    /// # Errors
    /// When the guest has no screen or the file cannot be written.
    pub fn screenshot(&mut self, without_suffix: &Path) -> Result<PathBuf> {
        let mut control = Qmp::connect(&self.control)?;
        let png = without_suffix.with_extension("png");
        if control.execute("screendump", &json!({ "filename": png, "format": "png" })).is_ok() {
            return Ok(png);
        }
        let ppm = without_suffix.with_extension("ppm");
        control.execute("screendump", &json!({ "filename": ppm }))?;
        Ok(ppm)
    }

    /// The console's last lines.
    pub fn console_tail(&self) -> String {
        self.console.tail()
    }

    /// Adds what QEMU itself said: a guest that is silent because its disk could not be opened explains itself there.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let Ok(said) = std::fs::read_to_string(&self.qemu_log) else { return error };
        let lines: Vec<&str> = said.lines().collect();
        if lines.is_empty() || error.is::<crate::cancel::Cancelled>() {
            return error;
        }
        let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    ");
        anyhow!("{error:#}\nQEMU said:\n    {last}")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Killed, not asked: whoever wanted a clean end has already asked for it, and here nobody could wait for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the shell prints around a command's output. The typed line, which the console echoes, holds them only with two
/// quotation marks inside, so that no search finds the echo.
struct Marks {
    begin: String,
    end: String,
    number: u32,
}

impl Marks {
    fn new(number: u32) -> Self {
        Self { begin: format!("stonefold-begin-{number}\n"), end: format!("stonefold-end-{number}:"), number }
    }

    /// The newline before the end mark gives it a line of its own after output that ends without one.
    fn wrapped(&self, command: &str) -> String {
        let number = self.number;
        format!(
            r#"echo "stonefold-""begin-{number}"; {{ {command}; }} 2>&1; printf "\nstonefold-""end-{number}:%s\n" "$?""#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, process::Stdio};

    const SOON: Duration = Duration::from_secs(10);

    /// A shell on a pipe that echoes what is typed, in place of a machine: what is tested here is what is said over a console.
    fn shell() -> (Guest, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let script =
            r#"echo "guest login: root"; while IFS= read -r line; do echo "> $line"; eval "$line"; done"#;
        let mut child = std::process::Command::new("bash")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let console = Console::open(
            child.stdout.take().unwrap(),
            child.stdin.take().unwrap(),
            &folder.path().join("console.log"),
        )
        .unwrap();
        let log = folder.path().join("qemu.log");
        File::create(&log).unwrap();
        let guest = Guest::new(
            "shell".into(),
            child,
            console,
            folder.path().join("qmp.sock"),
            log,
            tempfile::tempdir().unwrap(),
        );
        (guest, folder)
    }

    #[test]
    fn commands_give_their_output_and_their_status() {
        let (mut guest, _folder) = shell();
        guest.wait_for("login:", SOON).unwrap();
        assert_eq!(guest.run("echo one; printf two", SOON).unwrap().success().unwrap(), "one\ntwo");
        assert_eq!(guest.run("true", SOON).unwrap().success().unwrap(), "");
        let failed = guest.run("echo no such thing >&2; (exit 7)", SOON).unwrap();
        assert_eq!((failed.status, failed.output.as_str()), (7, "no such thing"));
        let error = failed.success().unwrap_err().to_string();
        assert!(
            error.contains("(exit 7)") && error.contains("status 7") && error.contains("no such thing"),
            "{error}"
        );
    }

    #[test]
    fn a_command_that_hangs_is_named() {
        let (mut guest, _folder) = shell();
        let error = format!("{:#}", guest.run("sleep 30", Duration::from_millis(300)).unwrap_err());
        assert!(error.contains("did not finish `sleep 30`"), "{error}");
    }

    #[test]
    fn what_qemu_said_is_part_of_the_error() {
        let (mut guest, folder) = shell();
        std::fs::write(folder.path().join("qemu.log"), "qemu: Failed to connect to 'nbd.sock'\n").unwrap();
        let error = format!("{:#}", guest.wait_for("never", Duration::from_millis(50)).unwrap_err());
        assert!(error.contains("Failed to connect") && error.contains("\"never\""), "{error}");
    }

    #[test]
    fn a_guest_that_goes_out_of_scope_is_gone() {
        let (guest, _folder) = shell();
        let pid = guest.pid();
        drop(guest);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
