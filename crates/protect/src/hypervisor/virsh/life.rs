//! Signs of life of domains: by the guest agent, which libvirt speaks to.

use super::Virsh;
use crate::hypervisor::agent::{Ran, by_a_shell};
use crate::hypervisor::sign::{LOOK_EVERY, LOOK_MAX, Sign, shortened};
use serde_json::{Value, json};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

impl Virsh<'_> {
    /// Waits until the sign is there; returns what there was of it, in words.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] of signs that libvirt does not tell; [`Kind::Io`] where it is not there within `patience`, or the domain ends before.
    pub(crate) async fn wait_for(&self, domain: &str, sign: &Sign, patience: Duration) -> Result<String> {
        sign.check_of_domain()?;
        let until = self.env.monotonic() + patience;
        loop {
            let left = until.saturating_sub(self.env.monotonic());
            let error = match self.look_for(domain, sign, left).await {
                Ok(said) => return Ok(shortened(&said)),
                Err(error) => error,
            };
            let ended = self.state(domain).await? != Some(true);
            if left.is_zero() || ended {
                let why = match ended {
                    true => "the domain ended before".to_owned(),
                    false => format!("not within {} s", patience.as_secs()),
                };
                let what = format!("no sign of life ({sign}): {why}: {}", error.what());
                return Err(Error::new(Kind::Io, what)
                    .remedy("look at its console (virsh console); give it more time with --timeout"));
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    async fn look_for(&self, domain: &str, sign: &Sign, left: Duration) -> Result<String> {
        let Sign::Command(command) = sign else {
            self.ask_agent(domain, "guest-ping", &json!({})).await?;
            return Ok("the guest agent answers".to_owned());
        };
        let begun = self.ask_agent(domain, "guest-exec", &by_a_shell(command)).await?;
        let until = self.env.monotonic() + left.max(LOOK_MAX);
        loop {
            let state = self.ask_agent(domain, "guest-exec-status", &json!({ "pid": begun["pid"] })).await?;
            if let Some(ran) = Ran::of(&state) {
                return ran.said();
            }
            if self.env.monotonic() > until {
                return Err(Error::new(Kind::Io, format!("the guest's '{command}' did not end")));
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    async fn ask_agent(&self, domain: &str, command: &str, arguments: &Value) -> Result<Value> {
        let asked = json!({ "execute": command, "arguments": arguments }).to_string();
        let seconds = LOOK_MAX.as_secs().to_string();
        let answer = self.run(&["qemu-agent-command", domain, &asked, "--timeout", &seconds], "").await?;
        // A guest says what it likes.
        let mut answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        Ok(answer.get_mut("return").map(Value::take).unwrap_or_default())
    }
}
