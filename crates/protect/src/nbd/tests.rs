//! Against servers that are played: who is silent, who speaks nonsense, who tells too much or too little. The real ones are read by the tests of whole runs.

use super::*;
use proptest::prelude::*;
use stonefold_env::SystemWorld;
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Handle};

const PATIENCE: Duration = Duration::from_secs(20);
const SIZE: u64 = 1 << 20;

fn env() -> Env {
    Env::new(SystemWorld::new(Handle::current(), 1).unwrap())
}

/// A server that greets, answers options as `replies` says, then reads one request and sends `answer` of its cookie.
fn played(
    env: &Env,
    replies: fn(u32) -> Vec<(u32, Vec<u8>)>,
    answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static,
) -> Wire {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    env.spawn("played", async move {
        let serving = async {
            theirs.write_all(b"NBDMAGICIHAVEOPT\0\x03").await?;
            theirs.read_u32().await?;
            loop {
                theirs.read_u64().await?;
                let (option, len) = (theirs.read_u32().await?, theirs.read_u32().await?);
                theirs.read_exact(&mut vec![0; len as usize]).await?;
                for (kind, data) in replies(option) {
                    let head = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
                    theirs.write_all(&0x0003_e889_0455_65a9u64.to_be_bytes()).await?;
                    theirs.write_all(&[head, data].concat()).await?;
                }
                if option == 7 {
                    break;
                }
            }
            let mut request = [0; 28];
            theirs.read_exact(&mut request).await?;
            let cookie = u64::from_be_bytes(request[8..16].try_into().unwrap());
            theirs.write_all(&answer(cookie)).await?;
            // Until the client goes.
            theirs.read_to_end(&mut Vec::new()).await
        };
        let _: std::io::Result<usize> = serving.await;
    });
    Wire::unix(ours)
}

/// Goal: what comes before TLS has begun is nobody's word: whoever lies between could have said it.
#[tokio::test]
async fn what_is_said_before_tls_is_not_taken() {
    let env = env();
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("ca-cert.pem"), made.cert.pem()).unwrap();
    for (said, wanted) in [
        (&b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\0\0\0\x01\0\0\0\0more"[..], "says more before TLS"),
        (b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\x80\0\0\x02\0\0\0\0", "does not begin TLS"),
        (b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\0\0\0\x01\0\0\0\0", "beginning TLS"),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        env.spawn("played", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").await.unwrap();
            // Our flags, and the option.
            stream.read_exact(&mut [0; 20]).await.unwrap();
            // In one piece, and then it goes.
            stream.write_all(said).await.unwrap();
        });
        let uri = format!("nbds://127.0.0.1:{port}/x?tls-certificates={}", folder.path().display());
        let refused = Client::connect(&env, &uri.parse().unwrap(), None, PATIENCE).await.err().unwrap();
        assert!(refused.to_string().contains(wanted) && refused.remedy_text().is_some(), "{refused}");
    }
}

fn size() -> Vec<u8> {
    [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 1]].concat()
}

/// All that a server may have.
fn able(option: u32) -> Vec<(u32, Vec<u8>)> {
    match option {
        7 => vec![(3, size()), (1, Vec::new())],
        10 => vec![(4, b"\0\0\0\x07base:allocation".to_vec()), (1, Vec::new())],
        _ => vec![(1, Vec::new())],
    }
}

fn chunk(cookie: u64, flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    let (head, len) = ((u32::from(flags) << 16) | u32::from(kind), data.len() as u32);
    [&0x668e_33efu32.to_be_bytes()[..], &head.to_be_bytes(), &cookie.to_be_bytes(), &len.to_be_bytes(), data]
        .concat()
}

fn part(cookie: u64, flags: u16, offset: u64, data: &[u8]) -> Vec<u8> {
    chunk(cookie, flags, 1, &[&offset.to_be_bytes()[..], data].concat())
}

fn hole(cookie: u64, flags: u16, offset: u64, bytes: u32) -> Vec<u8> {
    chunk(cookie, flags, 2, &[&offset.to_be_bytes()[..], &bytes.to_be_bytes()].concat())
}

fn runs(cookie: u64, context: u32, runs: &[(u32, u32)]) -> Vec<u8> {
    let told = runs.iter().flat_map(|run| [run.0, run.1]);
    chunk(cookie, 1, 5, &std::iter::once(context).chain(told).flat_map(u32::to_be_bytes).collect::<Vec<u8>>())
}

async fn answered(answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static) -> (Env, Client) {
    answered_within(PATIENCE, answer).await
}

async fn answered_within(
    patience: Duration,
    answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static,
) -> (Env, Client) {
    let env = env();
    let wire = played(&env, able, answer);
    let client = Client::over(&env, wire, ("x", None), patience).await.unwrap();
    (env, client)
}

#[tokio::test]
async fn an_answer_in_parts_is_put_together() {
    let (_, client) = answered(|cookie| {
        let parts = [part(cookie, 0, 10_240, &[2; 2048]), hole(cookie, 0, 8192, 2048)];
        [parts.concat(), part(cookie, 1, 12_288, &[3; 4096])].concat()
    })
    .await;
    assert_eq!((client.export().bytes, client.export().allocation), (SIZE, Some(7)));
    let read = client.read(8192, 8192).await.unwrap();
    let wanted = [vec![0; 2048], vec![2; 2048], vec![3; 4096]].concat();
    assert!(read.bytes == wanted && read.sent == 6144);
    let (_, client) = answered(|cookie| runs(cookie, 7, &[(512, 0), (512, 3), (1 << 20, 1), (9, 3)])).await;
    let told = client.runs(0, 4096).await.unwrap();
    let run = |bytes, zero| Run { bytes, zero, changed: true };
    // Cut off where the question ends; a hole alone may read as anything.
    assert_eq!(told, [run(512, false), run(512, true), run(3072, false)]);
}

/// All that a QEMU may have.
fn with_bitmap(option: u32) -> Vec<(u32, Vec<u8>)> {
    match option {
        10 => {
            let context = |number: u32, name: &str| [&number.to_be_bytes()[..], name.as_bytes()].concat();
            let both = [context(7, "base:allocation"), context(8, "qemu:dirty-bitmap:b")];
            both.into_iter().map(|said| (4, said)).chain([(1, Vec::new())]).collect()
        }
        option => able(option),
    }
}

#[tokio::test]
async fn a_bitmap_says_what_has_changed() {
    let env = env();
    let told = |cookie| {
        let mut allocation = runs(cookie, 7, &[(4096, 0), (8192, 3), (4096, 0)]);
        // The answer goes on after it.
        allocation[5] = 0;
        [allocation, runs(cookie, 8, &[(6144, 1), (8192, 0)])].concat()
    };
    let client =
        Client::over(&env, played(&env, with_bitmap, told), ("x", Some("b")), PATIENCE).await.unwrap();
    let run = |bytes, zero, changed| Run { bytes, zero, changed };
    // As far as both go.
    let wanted =
        [run(4096, false, true), run(2048, true, true), run(6144, true, false), run(2048, false, false)];
    assert_eq!(client.runs(0, 16_384).await.unwrap(), wanted);
    let half = played(&env, with_bitmap, |cookie| runs(cookie, 8, &[(4096, 1)]));
    let half = Client::over(&env, half, ("x", Some("b")), PATIENCE).await.unwrap();
    assert_eq!(half.runs(0, 4096).await.unwrap_err().kind(), Kind::Io, "what holds nothing was not told");
    let without = Client::over(&env, played(&env, able, |_| Vec::new()), ("x", Some("b")), PATIENCE).await;
    let error = without.unwrap().with_its_bitmap().err().unwrap();
    assert!(error.kind() == Kind::NotFound && error.to_string().contains("qemu:dirty-bitmap:b"), "{error}");
}

/// Goal: what a server has no reason to say ends in an error, and never in bytes that it did not tell.
#[tokio::test]
async fn nonsense_is_no_answer() {
    type Answers = fn(u64) -> Vec<u8>;
    let of_reads: [(&str, Answers); 11] = [
        ("too little", |c| part(c, 1, 0, &[1; 4095])),
        ("too much", |c| part(c, 1, 0, &[1; 4097])),
        ("another place", |c| part(c, 1, 4096, &[1; 4096])),
        ("before it", |c| part(c, 1, u64::MAX, &[1; 4096])),
        ("twice the same", |c| [part(c, 0, 0, &[1; 2048]), part(c, 1, 0, &[1; 2048])].concat()),
        ("an empty hole", |c| hole(c, 0, 0, 0)),
        ("nothing", |c| chunk(c, 1, 0, &[])),
        ("for nobody", |c| part(c + 1, 1, 0, &[1; 4096])),
        ("another kind", |c| runs(c, 7, &[(4096, 0)])),
        ("a simple reply", |c| {
            [&0x6744_6698u32.to_be_bytes()[..], &[0; 4], &c.to_be_bytes(), &[1; 4096]].concat()
        }),
        ("an error without a text", |c| chunk(c, 1, (1 << 15) | 1, &[0, 0, 0, 5, 0, 9])),
    ];
    for (what, answer) in of_reads {
        let (_, client) = answered(answer).await;
        let error = client.read(0, 4096).await.err().unwrap_or_else(|| panic!("{what} is an answer"));
        assert!(error.kind() == Kind::Io && error.to_string().contains("keep to the NBD"), "{what}: {error}");
        assert_eq!(client.read(0, 4096).await.err().unwrap().kind(), Kind::Io, "{what}");
    }
    let of_runs: [Answers; 4] = [
        |c| runs(c, 8, &[(4096, 0)]),
        |c| runs(c, 7, &[(0, 0), (4096, 0)]),
        |c| runs(c, 7, &[]),
        |c| part(c, 1, 0, &[1; 4096]),
    ];
    for answer in of_runs {
        let (_, client) = answered(answer).await;
        assert!(client.runs(0, 4096).await.is_err());
    }
    let long = |c: u64| [&chunk(c, 1, 5, &[])[..16], &u32::MAX.to_be_bytes(), &[0; 64]].concat();
    let (_, client) = answered(long).await;
    assert!(client.runs(0, 4096).await.is_err());
}

/// Goal: a server that cannot, one that goes and one that is silent keep nobody waiting, and each is told for what it is.
#[tokio::test]
async fn errors_are_told_in_the_servers_words() {
    let (_, client) = answered(|c| chunk(c, 1, (1 << 15) | 1, b"\0\0\0\x1c\0\x04full")).await;
    let error = client.read(0, 4096).await.err().unwrap().to_string();
    assert!(error.contains("could not read 4096 bytes at 0: it has no space (28): full"), "{error}");
    let (env, client) = answered(|_| Vec::new()).await;
    drop(client);
    let wire = played(&env, able, |_| Vec::new());
    let silent = Client::over(&env, wire, ("x", None), Duration::from_millis(200)).await.unwrap();
    let error = silent.read(0, 4096).await.err().unwrap();
    assert!(error.to_string().contains("has said nothing"), "{error}");
    assert!(silent.read(0, 4096).await.is_err(), "it is not asked again");
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let gone = Client::over(&env, Wire::unix(ours), ("x", None), PATIENCE).await.err().unwrap();
    assert!(gone.to_string().contains("does not finish the NBD handshake"), "{gone}");
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let deaf =
        Client::over(&env, Wire::unix(ours), ("x", None), Duration::from_millis(100)).await.err().unwrap();
    assert!(deaf.to_string().contains("has said nothing"), "{deaf}");
}

#[tokio::test]
async fn a_server_that_refuses_is_told_of() {
    type Replies = fn(u32) -> Vec<(u32, Vec<u8>)>;
    let refusals: [(Replies, Kind, &str); 5] = [
        (|_| vec![((1 << 31) | 6, b"no such".to_vec())], Kind::NotFound, "has no export 'x': no such"),
        (|_| vec![((1 << 31) | 5, Vec::new())], Kind::Unsupported, "wants TLS"),
        (|_| vec![((1 << 31) | 1, Vec::new())], Kind::Unsupported, "too old"),
        (|_| vec![(1, Vec::new())], Kind::Invalid, "does not say how large"),
        (
            |_| vec![(3, size()), (3, [&[0, 3][..], &[0; 12]].concat()), (1, Vec::new())],
            Kind::Unsupported,
            "has blocks of 0 bytes",
        ),
    ];
    let env = env();
    for (replies, kind, words) in refusals {
        let wire = played(&env, replies, |_| Vec::new());
        let error = Client::over(&env, wire, ("x", None), PATIENCE).await.err().unwrap();
        assert!(error.kind() == kind && error.to_string().contains(words), "{error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: whatever comes of a server, each request ends, and what is read is no longer than what was asked for.
    #[test]
    fn noise_is_survived(noise in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..40, at in 0usize..40) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answer = move |cookie| {
                let mut answer = part(cookie, 1, 0, &[1; 64]);
                let until = (at + cut).min(answer.len());
                answer.splice(at.min(until)..until, noise);
                answer
            };
            // What goes on for ever is given up.
            let (_, client) = answered_within(Duration::from_millis(100), answer).await;
            if let Ok(read) = client.read(0, 64).await {
                assert_eq!(read.bytes.len(), 64);
            }
        });
    }
}
