//! Every bound of the door, with its reason. A client can be slow, broken or hostile: what it can cost is written here.

use std::time::Duration;

/// The longest read or write, in bytes: what the protocol suggests and every client keeps to.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The smallest request, in bytes: the store takes any alignment.
pub const REQUEST_BYTES_MIN: u32 = 1;
/// What clients should prefer, in bytes: the store's block.
pub const REQUEST_BYTES_PREFERRED: u32 = stonefold_types::BLOCK_BYTES as u32;

/// A refused payload up to this size is drained so that the connection can go on; a longer one ends it, because reading it
/// to its end would take longer than connecting again.
pub(crate) const DISCARD_BYTES_MAX: u64 = 2 * REQUEST_BYTES_MAX as u64;

/// From the greeting to the last option: enough for a slow link that lists everything, too little to collect connections.
/// TLS is part of it.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// An option's data: two names, and room for hundreds of queries.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Options before transmission. `qemu-nbd --list` sends two for each export it was told of.
pub(crate) const OPTIONS_MAX: usize = 3 * LIST_MAX;
/// Exports in a list: what people and tools look through; every other one can still be opened by name.
pub(crate) const LIST_MAX: usize = 10_000;
/// Meta contexts on one connection. Each costs a lookup for every status request.
pub(crate) const CONTEXTS_MAX: usize = 16;

/// Connections of one server: a host full of machines with several disks and several connections each, while the memory
/// of all their buffers stays bounded.
pub(crate) const CONNECTIONS_MAX: usize = 4096;

/// Requests waiting for the store on one connection; beyond, input is left in the socket. Four times the deepest
/// queue a guest's driver uses (256).
pub(crate) const JOBS_MAX: usize = 1024;
/// Bytes of payload in flight on all connections together. Beyond, each connection proceeds with one part at a time, so
/// nobody starves and the process stays within what it may use beside its cache.
pub(crate) const SERVER_BYTES_MAX: usize = 128 << 20;
/// A connection may have as much in flight as one part in this many of what is free then: 25 MiB when it is alone. So clients whose requests
/// stay long, because their disk is limited, never use it up: after ten of them, each as greedy as it can be, an eleventh still gets 2 MiB, and
/// what they give back is shared anew.
pub(crate) const CONNECTION_PART: usize = 4;
/// Free buffers kept for the next large request, of all connections together.
pub(crate) const POOL_BYTES_MAX: usize = 16 << 20;

/// Larger reads and writes are handled in parts of this size, cut at multiples of it, so that a request of 32 MiB needs no
/// buffer of 32 MiB and each part is still in the processor's cache when it is copied again.
pub(crate) const PART_BYTES: usize = 256 << 10;
/// Reads up to this size are answered within the output buffer when they are cached.
pub(crate) const INLINE_READ_BYTES_MAX: usize = 64 << 10;
/// Write payloads up to this size are taken from the input buffer without a copy.
pub(crate) const INLINE_WRITE_BYTES_MAX: usize = 64 << 10;
/// What a CACHE request holds while it is carried out, in bytes, however long it is: the store reads so much at a time.
pub(crate) const PREFETCH_BYTES: usize = stonefold_store::PREFETCH_BYTES;
/// A finished read up to this size is copied into the output buffer: cheaper than a vector of its own.
pub(crate) const COPY_BYTES_MAX: usize = 16 << 10;
/// Data from this size on is searched for zeros, which need not be sent.
pub(crate) const SPARSE_BYTES_MIN: usize = 64 << 10;
/// A run of zeros worth a chunk of its own, in bytes.
pub(crate) const HOLE_BYTES_MIN: usize = 32 << 10;

/// One read from the socket: 32 writes of 4 KiB with room to spare.
pub(crate) const INPUT_BYTES: usize = 256 << 10;
/// Replies are written when this much has gathered, though more requests wait: the client can begin with the first.
pub(crate) const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Requests handled before other tasks of the same thread get their turn: some 200 µs.
pub(crate) const TURN_REQUESTS_MAX: usize = 64;
/// Bytes moved before other tasks of the same thread get their turn.
pub(crate) const TURN_BYTES_MAX: usize = 1 << 20;

/// Extents in one status reply. A client that wants more asks again from where the reply ended.
pub(crate) const EXTENTS_MAX: usize = 8192;

/// How long a client may leave a request half sent or a reply unread. A host under memory pressure or a debugger can stop
/// one for minutes; what it holds meanwhile is bounded by the numbers above.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(300);
/// How long a client that has been told everything may take to read that this was all: it need not be told.
pub(crate) const FAREWELL_MAX: Duration = Duration::from_millis(300);
/// How often a connection with nothing to do looks at itself: often enough that the buffers of idle machines do not add up.
pub(crate) const PULSE: Duration = Duration::from_secs(10);
/// How long a shutdown waits for requests in flight. An upgrade should cost clients at most 2 s.
pub(crate) const SHUTDOWN_MAX: Duration = Duration::from_millis(1500);
