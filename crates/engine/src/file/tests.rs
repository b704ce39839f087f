use super::*;
use crate::conformance::{self, Place};
use stonefold_env::SystemWorld;

fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

/// A directory, opened in one way.
struct Dir {
    env: Env,
    options: Options,
}

#[async_trait]
impl Place for Dir {
    async fn open(&self) -> Arc<dyn Engine> {
        Arc::new(FileEngine::open(self.env.clone(), self.options.clone()).await.unwrap())
    }
}

/// Beside the sources rather than in /tmp, which may lie in memory.
fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_string() + "/../../target")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

#[tokio::test]
async fn conforms_by_threads() {
    let dir = tempdir();
    conformance::run(&Dir { env: env(), options: Options::new(dir.path()) }).await;
}

#[tokio::test]
async fn conforms_by_ring() {
    let dir = tempdir();
    if let Err(error) = uring::install() {
        println!("skipped: {error}");
        return;
    }
    conformance::run(&Dir { env: env(), options: Options::new(dir.path()) }).await;
    assert!(uring::installed());
}

#[tokio::test]
async fn conforms_through_the_page_cache() {
    let dir = tempdir();
    let options = Options { direct: Direct::Never, ..Options::new(dir.path()) };
    conformance::run(&Dir { env: env(), options }).await;
}
