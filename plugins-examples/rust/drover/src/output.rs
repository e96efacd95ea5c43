//! The answer, and the calls that the host makes.

use crate::{
    filled,
    memory::List,
    reader::{Reader, ARRAY, FALSE, MAP, NULL, TEXT, TRUE, UINT},
    say,
    snapshot::{Config, Snapshot},
    Error, Strategy, Value,
};

#[derive(Clone, Copy)]
pub struct Move {
    pub shard: u32,
    /// None: allocate is asked once the shard is free.
    pub target: Option<u32>,
    pub reason: Option<&'static str>,
}

/// The moves of a rebalance.
pub struct Plan {
    moves: List<Move>,
    limit: u64,
    /// Of the whole plan.
    pub reason: Option<&'static str>,
}

impl Plan {
    /// Adds a move. It returns false, and adds nothing, where the host would take no more.
    pub fn push(&mut self, m: Move) -> bool {
        let room = (self.moves.len() as u64) < self.limit;
        if room {
            self.moves.push(m);
        }
        room
    }

    pub fn moves(&self) -> &[Move] {
        &self.moves
    }
}

struct Writer(List<u8>);

impl Writer {
    fn map(entries: u64) -> Self {
        let mut w = Writer(List::new());
        w.head(MAP, entries);
        w
    }

    fn head(&mut self, major: u8, n: u64) {
        let bytes = n.to_be_bytes();
        let (info, from) = match n {
            0..=23 => (n as u8, 8),
            24..=0xff => (24, 7),
            0x100..=0xffff => (25, 6),
            0x1_0000..=0xffff_ffff => (26, 4),
            _ => (27, 0),
        };
        self.0.push(major << 5 | info);
        self.0.extend(&bytes[from..]);
    }

    fn text(&mut self, s: &str) {
        self.head(TEXT, s.len() as u64);
        self.0.extend(s.as_bytes());
    }

    fn node(&mut self, node: Option<u32>) {
        match node {
            Some(n) => self.head(UINT, n as u64),
            None => self.0.push(NULL),
        }
    }

    fn answer(self) -> u64 {
        let out = self.0.into_slice();
        (out.as_ptr() as u64) << 32 | out.len() as u64
    }
}

fn answer(result: Result<Writer, Error>) -> u64 {
    let w = result.unwrap_or_else(|error| {
        let mut w = Writer::map(1);
        w.text("error");
        w.text(error);
        w
    });
    w.answer()
}

pub fn answer_allocate<S: Strategy>(input: &[u8]) -> u64 {
    let decide = || {
        let s = Snapshot::read(input, "allocate")?;
        let homes = filled(s.shards.len(), None);
        S::allocate(&s, homes)?;
        let mut w = Writer::map(1);
        w.text("homes");
        w.head(ARRAY, homes.len() as u64);
        for home in homes {
            w.node(*home);
        }
        Ok(w)
    };
    answer(decide())
}

pub fn answer_rebalance<S: Strategy>(input: &[u8]) -> u64 {
    let decide = || {
        let s = Snapshot::read(input, "rebalance")?;
        let mut plan = Plan { moves: List::new(), limit: s.max_moves, reason: None };
        S::rebalance(&s, &mut plan)?;
        let mut w = Writer::map(1 + plan.reason.is_some() as u64);
        w.text("moves");
        w.head(ARRAY, plan.moves.len() as u64);
        for m in plan.moves() {
            w.head(ARRAY, 2 + m.reason.is_some() as u64);
            w.head(UINT, m.shard as u64);
            w.node(m.target);
            if let Some(reason) = m.reason {
                w.text(reason);
            }
        }
        if let Some(reason) = plan.reason {
            w.text("reason");
            w.text(reason);
        }
        Ok(w)
    };
    answer(decide())
}

pub fn answer_configure<S: Strategy>(input: &[u8]) -> u64 {
    let mut r = Reader::new(input);
    let config = r.skip().and_then(|raw| r.end().map(|()| Config(raw))).map_err(|e| say(&["config: ", e]));
    answer(config.and_then(S::configure).map(|()| Writer::map(0)))
}

pub fn answer_describe<S: Strategy>() -> u64 {
    crate::memory::reset();
    let d = S::DESCRIPTION;
    let mut w = Writer::map(4);
    for (key, value) in [("name", d.name), ("summary", d.summary), ("version", d.version)] {
        w.text(key);
        w.text(value);
    }
    w.text("config");
    w.head(MAP, d.config.len() as u64);
    for k in d.config {
        w.text(k.key);
        w.head(MAP, 3);
        w.text("help");
        w.text(k.help);
        w.text("type");
        w.text(match k.default {
            Value::Uint(_) => "uint",
            Value::Bool(_) => "bool",
            Value::Text(_) => "string",
        });
        w.text("default");
        match k.default {
            Value::Uint(n) => w.head(UINT, n),
            Value::Bool(b) => w.0.push(if b { TRUE } else { FALSE }),
            Value::Text(s) => w.text(s),
        }
    }
    w.answer()
}
