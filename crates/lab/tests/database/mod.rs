//! A world for runs of a database: an environment, and a folder that PostgreSQL's user may come through.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use stonefold_env::{Env, SystemWorld};
use stonefold_lab::TargetSpec;
use stonefold_lab::bundle::{Bundle, Run};
use stonefold_lab::oltp::{Outcome, Plan, Profile};
use stonefold_lab::stats::gates::State;
use stonefold_lab::verdict::{Summary, summarise};

/// The shipped profile, smaller.
pub(crate) fn profile(users: &str, sample: &str) -> Profile {
    let text = format!(
        "title = 't'\nabout = 'a'\n[database]\nwarehouses = 1\nbuffers = '32M'\nusers = {users}\nwarm_up = '1s'\n\
         sample = '{sample}'\n[settings]\nmax_wal_size = '256MB'\n"
    );
    Profile::parse("test", &text).unwrap()
}

pub(crate) struct World {
    _runtime: tokio::runtime::Runtime,
    pub(crate) env: Env,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        // PostgreSQL's user has to come through.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        World { _runtime: runtime, env, folder }
    }

    pub(crate) fn plan(&self, profile: Profile) -> Plan {
        let target = TargetSpec::Directory(self.folder.path().join("target"));
        Plan {
            profile,
            quick: false,
            target,
            seed: 7,
            destroy_data: false,
            programs: None,
            to: None,
            keeper: None,
            beside: Vec::new(),
        }
    }

    pub(crate) fn judged(&self, plan: &Plan, outcome: &Outcome, require: &str) -> Summary {
        let run = Run {
            format: Run::FORMAT,
            version: "0".into(),
            profile: plan.profile.name.clone(),
            locked: false,
            quick: false,
            targets: vec![plan.target.to_string()],
            seed: plan.seed,
            threads: 1,
            verified: true,
            bytes: outcome.bytes,
            require: require.into(),
            began: 0,
            reproduce: String::new(),
            machine: outcome.facts.clone(),
            cut_short: outcome.failure.is_some(),
            migration: outcome.migration.clone(),
            chain: outcome.chain.clone(),
            ..Run::default()
        };
        let kept = self.folder.path().join("bundle");
        stonefold_lab::bundle::save(&kept, &run, &plan.profile.text, &outcome.points).unwrap();
        let bundle: Bundle = stonefold_lab::bundle::load(&kept).unwrap();
        let told = |points| serde_json::to_string(points).unwrap();
        assert!(told(&bundle.points) == told(&outcome.points), "a bundle keeps all of it");
        summarise(&bundle).unwrap()
    }

    /// Neither a file nor a process of the run is left.
    pub(crate) fn is_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.folder.path().join("target")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        let processes =
            Command::new("pgrep").args(["-f", &*self.folder.path().to_string_lossy()]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&processes.stdout), "", "processes are left");
    }
}

pub(crate) fn against(summary: &Summary) -> Vec<&str> {
    let gates = summary.points.iter().flat_map(|point| &point.gates);
    gates.filter(|gate| gate.state == State::Void).map(|gate| gate.name.as_str()).collect()
}
