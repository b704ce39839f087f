//! Machines started from recoveries, and ended.
//!
//! *Order of a start*: the recovery's document says where the machine will be; the hypervisor starts it; the document says how long that took. *Order
//! of an end*: the machine goes, then the document says so. So after a crash at any moment whatever may run is known, and can be ended. *Never*:
//! a machine is started twice of the same disks; disks go that a machine has; an end comes between a start and what is said of it.

mod beforehand;

use crate::catalog;
use crate::domain::Reach;
use crate::hypervisor::{Folder, Forward, Host, Limits, Sign, Start, Virsh, Watched, Where};
use crate::qmp::Qmp;
use crate::recoveries::Recovery;
use crate::runs::key;
use crate::{Hypervisors, Point, Protection};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, Result};
use tokio::sync::watch;

/// How long a machine may take until it reads from its disks: firmware that counts its memory takes seconds.
const FIRST_BLOCK_MAX: Duration = Duration::from_secs(30);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a guest may take to shut down.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(90);
/// How long a machine's clients may be seen after it has gone.
const CLIENTS_GONE_MAX: Duration = Duration::from_secs(5);

/// A machine that was started with a recovery's disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedMachine {
    /// Where it is.
    pub host: Host,
    /// When it was asked for, by trusted time, nanoseconds since 1970.
    pub asked: WallNanos,
    /// From then until it had read the first block from its disks, in microseconds; nothing where it had not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_block_us: Option<u64>,
    /// From then until the sign of life that was waited for, in microseconds; nothing where none was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive_us: Option<u64>,
    /// Where its disks are since it was moved; nothing while they are the recovery's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home: Vec<String>,
    /// What it may take of its host.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
}

/// A machine that is to be started with a recovery's disks.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The recovery.
    pub name: Name,
    /// Where it is to run.
    pub to: Where,
    /// Where it finds its disks.
    pub reach: Reach,
    /// A sign of life to wait for, and how long.
    pub wait: Option<(Sign, Duration)>,
    /// What it may take of its host.
    pub limits: Limits,
}

/// How a recovery is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopRequest {
    /// Its disks go.
    pub discard: bool,
    /// Its machine is not asked, and its plug pulled. With `discard` that is so anyway.
    pub power_off: bool,
}

/// A machine that has been started.
pub(crate) struct Begun {
    pub(crate) recovery: Recovery,
    pub(crate) qmp: Option<Qmp>,
    pub(crate) notes: Vec<String>,
    /// When it was asked for, by the monotonic clock.
    pub(crate) asked: Duration,
    /// A port of this host that leads to the guest's.
    pub(crate) forwarded: Option<u16>,
    /// Told when it is seen to be up.
    up: watch::Sender<bool>,
}

impl Protection {
    /// Starts a machine with a recovery's disks; it runs on return, and has read from them, or that is noted. One that does not start is not
    /// there, and the recovery stays as it was.
    pub async fn start_recovery(&self, asked: StartRequest) -> Result<(Recovery, Vec<String>)> {
        if let (Where::Libvirt(_), Some((sign, _))) = (&asked.to, &asked.wait) {
            sign.check_of_domain()?;
        }
        let port = match &asked.wait {
            Some((Sign::Port(port), _)) => Some((*port, false)),
            _ => None,
        };
        let mut begun = self.begin_machine(&asked, port).await?;
        if begun.recovery.started.as_ref().is_some_and(|started| started.first_block_us.is_none()) {
            begun.notes.push(format!(
                "it has read nothing from its disks within {} s: look at its screen",
                FIRST_BLOCK_MAX.as_secs()
            ));
        }
        if let Some((sign, patience)) = &asked.wait {
            match self.watch(&begun, sign, *patience).await {
                Ok(said) => {
                    let alive = self.since(begun.asked);
                    begun.recovery =
                        self.say_started(&asked.name, |started| started.alive_us = Some(alive)).await?;
                    begun.notes.push(format!("{sign}: {said}"));
                }
                // It runs, and may need more time than was given.
                Err(error) => begun.notes.push(error.to_string()),
            }
        }
        Ok((begun.recovery, begun.notes))
    }

    /// Starts it, with a port of the guest's that is to be reached where one is, and whether that is all of its network.
    pub(crate) async fn begin_machine(
        &self,
        asked: &StartRequest,
        guest_port: Option<(u16, bool)>,
    ) -> Result<Begun> {
        let asked_at = self.env.monotonic();
        let held = self.hold_recovery(&asked.name)?;
        let recovery = self.say_starting(asked).await?;
        let (Some(started), before) = (&recovery.started, self.blocks_read(&recovery)) else {
            return Err(Error::new(Kind::Conflict, format!("recovery '{}' was stopped", asked.name)));
        };
        let forward = |(guest, alone)| free_port().map(|host| Forward { host, guest, alone });
        let forward = guest_port.map(forward).transpose()?;
        let start = Start {
            name: &recovery.name,
            disks: &recovery.disks,
            hardware: recovery.hardware.as_ref(),
            reach: &asked.reach,
            forward,
            limits: asked.limits,
        };
        let ahead = self.fetch_ahead(&recovery).await;
        let traced = self.trace_boot(&recovery);
        let kvm = *self.kvm.get_or_init(|| self.hypervisors.accelerator.is_kvm(&self.env)).await;
        match started.host.start(&self.env, &start, kvm).await {
            Ok(running) => {
                drop(held);
                let first = self.first_block(&recovery, before, asked_at).await;
                let recovery =
                    self.say_started(&asked.name, |started| started.first_block_us = first).await?;
                let crate::hypervisor::Started { qmp, mut notes } = running;
                let told = |bytes| format!("{bytes} that its last boot read are fetched ahead");
                notes.extend(ahead.map(told));
                let up = self.learn_boot(traced);
                let forwarded = forward.map(|forward| forward.host);
                Ok(Begun { recovery, qmp, notes, asked: asked_at, forwarded, up })
            }
            Err(error) => {
                self.stop_fetching(&asked.name).await;
                let error = error.context(format!("starting '{}'", asked.name));
                if self.may_run(&started.host).await {
                    return Err(error
                        .remedy(format!("end what there is of it: stonefold recover stop {}", asked.name)));
                }
                self.say_ended(&asked.name, &started.host).await?;
                Err(error)
            }
        }
    }

    /// Whether a machine whose start failed is there all the same; so it is, where nobody tells.
    async fn may_run(&self, host: &Host) -> bool {
        match host.is_running(&self.env).await {
            Ok(runs) => runs,
            // There is no libvirt.
            Err(error) => error.kind() != Kind::NotFound,
        }
    }

    /// Puts into the document where the machine will be.
    async fn say_starting(&self, asked: &StartRequest) -> Result<Recovery> {
        let trusted = self.store.time().trusted;
        self.change(async {
            let recovery = self.recovery(&asked.name).await?;
            self.check_made(recovery.making.as_ref(), &format!("recovery '{}'", asked.name)).await?;
            self.check_not_started(&recovery)?;
            // Where its point has gone, what does not boot is seen on its screen.
            let point = self.readable::<Point>(&key(&recovery.point)).await?;
            if let Some(point) = &point {
                self.check_boots(point).await?;
            }
            if recovery.discarding {
                let what = format!("recovery '{}' is being discarded", asked.name);
                return Err(Error::new(Kind::Busy, what).remedy("recover the point again"));
            }
            for disk in &recovery.disks {
                self.store.check_no_clients(&disk.disk)?;
            }
            let of = (&recovery.name, recovery.hardware.as_ref());
            let host = Host::draw(&asked.to, &self.env, of, &self.hypervisors)?;
            let say = |recovery: &mut Recovery| {
                let host = host.clone();
                recovery.started = Some(StartedMachine {
                    host,
                    asked: trusted,
                    first_block_us: None,
                    alive_us: None,
                    home: Vec::new(),
                    limits: asked.limits,
                });
                Ok(())
            };
            catalog::change::<Recovery>(&self.store, asked.name.as_str(), say).await
        })
        .await
    }

    async fn say_started(&self, name: &Name, change: impl Fn(&mut StartedMachine)) -> Result<Recovery> {
        let say = |recovery: &mut Recovery| {
            recovery.started.iter_mut().for_each(&change);
            Ok(())
        };
        catalog::change::<Recovery>(&self.store, name.as_str(), say).await
    }

    /// That machine has gone; another that was started meanwhile has not.
    async fn say_ended(&self, name: &Name, host: &Host) -> Result<Recovery> {
        let say = |recovery: &mut Recovery| {
            recovery.started.take_if(|started| started.host == *host);
            Ok(())
        };
        catalog::change::<Recovery>(&self.store, name.as_str(), say).await
    }

    /// Fails while a machine may have its disks.
    pub(crate) fn check_not_started(&self, recovery: &Recovery) -> Result<()> {
        let Some(started) = &recovery.started else { return Ok(()) };
        let what = format!("recovery '{}' has been started ({})", recovery.name, started.host);
        Err(Error::new(Kind::Busy, what)
            .remedy(format!("end it first: stonefold recover stop {}", recovery.name)))
    }

    /// Waits for a sign of life of a machine.
    pub(crate) async fn watch(&self, begun: &Begun, sign: &Sign, patience: Duration) -> Result<String> {
        let said = match begun.recovery.started.as_ref().map(|started| &started.host) {
            Some(Host::Qemu { folder }) => {
                let folder = Folder(folder.clone());
                let watched = Watched { env: &self.env, folder: &folder, forwarded: begun.forwarded };
                watched.wait_for(sign, patience).await?
            }
            Some(Host::Libvirt { uri, domain }) => {
                Virsh { env: &self.env, uri }.wait_for(domain, sign, patience).await?
            }
            None => {
                let what = format!("recovery '{}' was stopped", begun.recovery.name);
                return Err(Error::new(Kind::Conflict, what));
            }
        };
        begun.up.send_replace(true);
        Ok(said)
    }

    /// Whether the machine of a recovery runs; nothing where none was started, or where that cannot be found out.
    pub async fn is_recovery_running(&self, recovery: &Recovery) -> Option<bool> {
        let started = recovery.started.as_ref()?;
        started.host.is_running(&self.env).await.ok()
    }

    /// Ends a recovery, and its machine: it is asked to shut down, and on return it has. Its disks stay, as disks like any other; or go,
    /// when they are to be discarded, which is refused while anybody else needs them. Returns what it was.
    pub async fn stop_recovery(&self, name: &Name, asked: StopRequest) -> Result<Recovery> {
        // Not for as long as it takes: whoever has waited for the guest long enough may pull its plug.
        drop(self.hold_recovery(name)?);
        let recovery = self.recovery(name).await?;
        self.stop_fetching(name).await;
        if let Some(started) = &recovery.started {
            self.check_not_moving(name).await?;
            if !asked.power_off {
                self.check_not_half_moved(name).await?;
            }
            if asked.discard {
                self.check_nobody_s_else(&recovery).await?;
            }
            // One that was moved has disks of its own, and goes on.
            if started.home.is_empty() || asked.power_off {
                let ended = match asked.discard || asked.power_off {
                    true => started.host.end(&self.env).await,
                    false => started.host.shut_down(&self.env, SHUT_DOWN_MAX).await,
                };
                ended.map_err(|e| e.context(format!("ending the machine of recovery '{name}'")))?;
            }
            self.say_ended(name, &started.host).await?;
            self.clients_gone(&recovery).await;
        }
        let ended = self.give_back(name, asked.discard).await?;
        self.forget_migration(name).await?;
        Ok(ended)
    }

    /// The machine has other disks now.
    pub(crate) async fn say_home(&self, name: &Name) -> Result<()> {
        let migration = self.migration(name).await?;
        let home: Vec<String> = migration.disks.iter().map(|disk| disk.home.to_string()).collect();
        self.say_started(name, |started| started.home.clone_from(&home)).await.map(drop)
    }

    /// A machine that has gone is seen to have by and by.
    pub(crate) async fn clients_gone(&self, recovery: &Recovery) {
        let until = self.env.monotonic() + CLIENTS_GONE_MAX;
        let has = |disk: &Name| self.store.disk(disk).is_ok_and(|disk| disk.clients > 0);
        while recovery.disks.iter().any(|disk| has(&disk.disk)) && self.env.monotonic() < until {
            self.env.sleep(LOOK_EVERY * 5).await;
        }
    }

    /// How long it took until more was read from the disks than `before`.
    async fn first_block(&self, recovery: &Recovery, before: u64, asked: Duration) -> Option<u64> {
        let until = self.env.monotonic() + FIRST_BLOCK_MAX;
        while self.blocks_read(recovery) <= before {
            if self.env.monotonic() > until {
                return None;
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        Some(self.since(asked))
    }

    fn blocks_read(&self, recovery: &Recovery) -> u64 {
        let reads = |disk: &Name| self.store.disk(disk).map_or(0, |disk| disk.traffic[0]);
        recovery.disks.iter().map(|disk| reads(&disk.disk)).sum()
    }

    pub(crate) fn since(&self, instant: Duration) -> u64 {
        self.env.monotonic().saturating_sub(instant).as_micros() as u64
    }

    /// What machines may be started with here.
    pub fn hypervisors(&self) -> &Hypervisors {
        &self.hypervisors
    }
}

/// A port of this host that nobody has now.
fn free_port() -> Result<u16> {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|e| Error::io("looking for a free port", e))
}
