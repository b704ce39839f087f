//! Pages, as a real browser shows them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use stonefold_needs::{Need, is_there};

/// Debian's name for it, and others'.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// What the page's own script cannot: which error ended it, and how wide it became. It stands before it.
const WITNESS: &str = "<script>addEventListener('error', (e) => document.documentElement.setAttribute('data-error', `${e.message} at ${e.lineno}`));
addEventListener('load', () => { const d = document.documentElement; d.setAttribute('data-over', d.scrollWidth - d.clientWidth); });</script>";

/// A browser that this machine has.
pub(crate) struct Browser(&'static str);

/// A page, as it was drawn.
pub(crate) struct Drawn {
    /// All elements, written out; the scripts among them hold every word that a page may have.
    dom: String,
}

impl Browser {
    /// Nothing where this machine is said to have none.
    pub(crate) fn find(what: &str) -> Option<Browser> {
        let runs = |name: &&&str| {
            let asked =
                Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        };
        let found = NAMES.iter().find(runs);
        let lacking = found.is_none().then(|| format!("none of {} runs", NAMES.join(", ")));
        is_there(Need::Browser, what, lacking).then(|| Browser(found.expect("it is there")))
    }

    /// Draws a page in a window so many pixels wide.
    pub(crate) fn draw(&self, page: &Path, width: u32) -> Drawn {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let watched = folder.path().join("page.html");
        let text = std::fs::read_to_string(page).unwrap();
        let (before, after) = text.split_once("<head>").expect("a page has a head");
        let mut file = std::fs::File::create(&watched).unwrap();
        write!(file, "{before}<head>{WITNESS}{after}").unwrap();
        let done = Command::new(self.0)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", "--dump-dom"])
            .arg(format!("--window-size={width},900"))
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", watched.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            dom.contains("data-over="),
            "{page:?} was not loaded: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        Drawn { dom }
    }
}

impl Drawn {
    fn attribute(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.dom.split_once(&format!("{name}=\""))?;
        rest.split('"').next()
    }

    /// What ended its script.
    pub(crate) fn error(&self) -> Option<&str> {
        self.attribute("data-error")
    }

    /// By how many pixels it is wider than its window.
    pub(crate) fn over(&self) -> i32 {
        self.attribute("data-over").unwrap().parse().unwrap()
    }

    /// What its scripts made of it, without themselves.
    pub(crate) fn without_scripts(&self) -> String {
        let mut pieces = self.dom.split("<script");
        let before = pieces.next().unwrap_or_default().to_owned();
        let behind = pieces.filter_map(|piece| piece.split_once("</script>"));
        behind.fold(before, |page, (_, behind)| page + behind)
    }

    /// Its title.
    pub(crate) fn title(&self) -> &str {
        self.dom.split_once("<title>").and_then(|(_, rest)| rest.split("</title>").next()).unwrap_or("")
    }
}
