//! Strategies for Drover in Rust, without std, alloc and other crates; contract version 1 (pluginapi/strategy.cddl).
//!
//! Implement [`Strategy`] and hand it to [`strategy!`], once, in a `cdylib`. What a [`Snapshot`] says is in range: an owner, candidate or target is an index
//! into the nodes, a shard is below [`Snapshot::shard_count`]. An input that is not of the contract is answered with an error that names the key; unknown
//! keys may hold any well-formed CBOR, in which at most 32 arrays, maps or strings of indefinite length are open at once.
//!
//! Memory comes from [`List`] and [`filled`], and is all free again at the next call: no state survives a call, so `'static` means this call's. A panic traps.
#![no_std]

use core::arch::wasm32;

mod memory;
mod output;
mod placement;
mod reader;
mod snapshot;

pub use memory::{filled, say, List};
pub use output::{answer_allocate, answer_configure, answer_describe, answer_rebalance, Move, Plan};
pub use placement::Placement;
pub use snapshot::{Column, Config, Node, NodeLoad, Pair, Snapshot, State};

/// Why something could not be done. [`say`] makes one of several texts.
pub type Error = &'static str;

/// A placement policy: a pure function of a snapshot.
pub trait Strategy {
    /// What it is, for people, and which keys its configuration may have.
    const DESCRIPTION: Description;
    /// Refuses a configuration that is no good, when the strategy is loaded.
    fn configure(config: Config) -> Result<(), Error>;
    /// Sets `homes[i]` for the i-th of `s.shards`. They come as `None`: left without a home.
    fn allocate(s: &Snapshot, homes: &mut [Option<u32>]) -> Result<(), Error>;
    /// Calls [`Plan::push`] for each move.
    fn rebalance(s: &Snapshot, plan: &mut Plan) -> Result<(), Error>;
}

/// What a strategy is.
pub struct Description {
    pub name: &'static str,
    pub version: &'static str,
    pub summary: &'static str,
    pub config: &'static [ConfigKey],
}

/// A key of the configuration.
pub struct ConfigKey {
    pub key: &'static str,
    pub default: Value,
    pub help: &'static str,
}

/// A default, and with it the kind of a key.
pub enum Value {
    Uint(u64),
    Bool(bool),
    Text(&'static str),
}

/// How much a line of the log matters.
#[derive(Clone, Copy)]
pub enum Level {
    Debug = -4,
    Info = 0,
    Warn = 4,
    Error = 8,
}

#[link(wasm_import_module = "drover")]
extern "C" {
    #[link_name = "log"]
    fn host_log(level: i32, text: *const u8, len: usize);
}

/// Writes to the node's log. It never changes a decision.
pub fn log(level: Level, text: &str) {
    unsafe { host_log(level as i32, text.as_ptr(), text.len()) }
}

/// Exports a [`Strategy`] as the contract has it.
#[macro_export]
macro_rules! strategy {
    ($strategy:ty) => {
        #[no_mangle]
        pub extern "C" fn drover_allocate(at: *const u8, len: usize) -> u64 {
            $crate::answer_allocate::<$strategy>(unsafe { core::slice::from_raw_parts(at, len) })
        }
        #[no_mangle]
        pub extern "C" fn drover_rebalance(at: *const u8, len: usize) -> u64 {
            $crate::answer_rebalance::<$strategy>(unsafe { core::slice::from_raw_parts(at, len) })
        }
        #[no_mangle]
        pub extern "C" fn drover_configure(at: *const u8, len: usize) -> u64 {
            $crate::answer_configure::<$strategy>(unsafe { core::slice::from_raw_parts(at, len) })
        }
        #[no_mangle]
        pub extern "C" fn drover_describe() -> u64 {
            $crate::answer_describe::<$strategy>()
        }
    };
}

#[no_mangle]
pub extern "C" fn drover_abi_v1() {}

#[no_mangle]
pub extern "C" fn drover_buffer(len: usize) -> *mut u8 {
    memory::reset();
    memory::bytes(len as u64, 1)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    log(Level::Error, "the strategy panicked");
    wasm32::unreachable()
}
