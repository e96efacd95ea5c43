//! What a strategy knows of the cluster.

use crate::{
    memory::{say, List},
    reader::{Reader, ARRAY, FALSE, MAP, NULL, TRUE},
    Error,
};

/// Numbers of 2, 4 or 8 bytes as they lie in the input: a typed array of RFC 8746. Empty where the input has none.
#[derive(Clone, Copy, Default)]
pub struct Column<'a> {
    bytes: &'a [u8],
    width: usize,
}

impl<'a> Column<'a> {
    pub fn len(&self) -> usize {
        if self.width == 0 { 0 } else { self.bytes.len() / self.width }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The i-th number of a column of 2 or 4 bytes; None for all bits set (no owner, not known), and where the column has no such number.
    pub fn at(&self, i: usize) -> Option<u32> {
        if self.width == 2 {
            let b = self.bytes.get(2 * i..2 * i + 2)?;
            return Some(u16::from_le_bytes([b[0], b[1]])).filter(|v| *v != u16::MAX).map(u32::from);
        }
        let b = self.bytes.get(4 * i..4 * i + 4)?;
        Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]])).filter(|v| *v != u32::MAX)
    }

    /// The i-th number of a column of 8 bytes, None as in at.
    pub fn wide(&self, i: usize) -> Option<u64> {
        let b = self.bytes.get(8 * i..8 * i + 8)?;
        let bits = (0..8).fold(0, |n, k| n | (b[k] as u64) << (8 * k));
        Some(bits).filter(|v| *v != u64::MAX)
    }

    /// The i-th number of a column of float64.
    pub fn float(&self, i: usize) -> f64 {
        f64::from_bits(self.wide(i).unwrap_or(u64::MAX))
    }

    fn read(r: &mut Reader<'a>, tags: &[u64]) -> Result<Self, Error> {
        let (width, bytes) = r.typed(tags)?;
        Ok(Column { bytes, width })
    }

    /// Fails unless all numbers are below limit; with or_none all bits set may be there too.
    fn check(&self, key: &str, limit: usize, or_none: bool) -> Result<(), Error> {
        for i in 0..self.len() {
            if !self.at(i).map_or(or_none, |v| (v as usize) < limit) {
                return Err(say(&["input: ", key, ": out of range"]));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    Up,
    Joining,
    Leaving,
    Draining,
    Unreachable,
    Away,
    /// A state that a later host may add.
    Other,
}

/// What a node reports of itself; None where not told.
#[derive(Clone, Copy, Default)]
pub struct NodeLoad {
    pub cpu: Option<u64>,
    pub mem: Option<u64>,
    pub entities: Option<u64>,
    pub rate: Option<u64>,
    pub depth: Option<u64>,
    pub disk: Option<u64>,
    pub diskfree: Option<u64>,
    pub read: Option<u64>,
    pub write: Option<u64>,
}

#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub name: &'a str,
    pub addr: &'a str,
    pub incarnation: &'a str,
    pub state: State,
    pub roles: &'a [&'a str],
    pub version: &'a str,
    /// Capacity, 100 = one unit.
    pub weight: u64,
    /// Empty where not told.
    pub zone: &'a str,
    pub tags: &'a [(&'a str, &'a str)],
    /// float64: vector, error, adjustment, height.
    pub coord: Column<'a>,
    pub load: NodeLoad,
}

/// A shard, and a node where it is known.
#[derive(Clone, Copy)]
pub struct Pair {
    pub shard: u32,
    pub node: Option<u32>,
}

/// All that a strategy knows.
pub struct Snapshot<'a> {
    pub type_name: &'a str,
    pub revision: u64,
    /// Milliseconds, logical.
    pub now: u64,
    pub seed: u64,
    /// Sorted by name, bytewise.
    pub nodes: &'a [Node<'a>],
    /// Nodes that may get shards, ascending.
    pub candidates: &'a [u32],
    /// One a shard.
    pub owners: Column<'a>,
    /// Shards in handoff, and their targets.
    pub busy: &'a [Pair],
    pub pinned: &'a [Pair],
    /// Shards whose state is on a node that is away.
    pub waiting: Column<'a>,
    /// As owners: who holds the in-sync copy.
    pub standby: Column<'a>,
    pub load_entities: Column<'a>,
    pub load_rate: Column<'a>,
    pub load_bytes: Column<'a>,
    /// Most moves that the host will take.
    pub max_moves: u64,
    pub config: Config<'a>,
    /// Of allocate: those that need a home.
    pub shards: Column<'a>,
}

/// A strategy's own table of node.toml.
#[derive(Clone, Copy, Default)]
pub struct Config<'a>(pub(crate) &'a [u8]);

impl<'a> Config<'a> {
    fn find(&self, key: &str) -> Result<Option<Reader<'a>>, Error> {
        let mut r = Reader::new(self.0);
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut items = r.open(MAP)?;
        while r.more(&mut items) {
            if r.text()? == key {
                return Ok(Some(r));
            }
            r.skip()?;
        }
        Ok(None)
    }

    pub fn uint(&self, key: &str, default: u64) -> Result<u64, Error> {
        match self.find(key)? {
            None => Ok(default),
            Some(mut r) => r.uint().map_err(|_| say(&["config.", key, ": want a whole number of at least 0"])),
        }
    }

    pub fn text(&self, key: &str, default: &'a str) -> Result<&'a str, Error> {
        match self.find(key)? {
            None => Ok(default),
            Some(mut r) => r.text().map_err(|_| say(&["config.", key, ": want text"])),
        }
    }

    pub fn bool(&self, key: &str, default: bool) -> Result<bool, Error> {
        match self.find(key)? {
            None => Ok(default),
            Some(mut r) => {
                let yes = r.take(TRUE);
                if yes || r.take(FALSE) { Ok(yes) } else { Err(say(&["config.", key, ": want true or false"])) }
            }
        }
    }
}

impl<'a> Node<'a> {
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.contains(&role)
    }

    pub fn tag(&self, key: &str) -> Option<&'a str> {
        self.tags.iter().find(|t| t.0 == key).map(|t| t.1)
    }
}

impl<'a> Snapshot<'a> {
    pub fn shard_count(&self) -> usize {
        self.owners.len()
    }

    pub fn is_candidate(&self, node: u32) -> bool {
        self.candidates.binary_search(&node).is_ok()
    }

    /// Tells whether candidates run different software versions: a rolling upgrade is under way, and nothing should move.
    pub fn mixed_versions(&self) -> bool {
        let version = |c: &u32| self.nodes[*c as usize].version;
        self.candidates.windows(2).any(|w| version(&w[0]) != version(&w[1]))
    }

    pub(crate) fn read(input: &'a [u8], op: &str) -> Result<Self, Error> {
        let mut key = "";
        let s = fields(input, op, &mut key).map_err(|e| say(&["input", if key.is_empty() { "" } else { ": " }, key, ": ", e]))?;
        s.check()?;
        Ok(s)
    }

    /// Everything is in range.
    fn check(&self) -> Result<(), Error> {
        let (nodes, shards) = (self.nodes.len(), self.shard_count());
        let fail = |key: &str, what: &str| -> Result<(), Error> { Err(say(&["input: ", key, ": ", what])) };
        if self.candidates.iter().any(|c| *c as usize >= nodes) || self.candidates.windows(2).any(|w| w[0] >= w[1]) {
            return fail("candidates", "out of range, not ascending, or there twice");
        }
        self.owners.check("owners", nodes, true)?;
        self.standby.check("standby", nodes, true)?;
        self.waiting.check("waiting", shards, false)?;
        self.shards.check("shards", shards, false)?;
        for (key, pairs) in [("busy", self.busy), ("pinned", self.pinned)] {
            if pairs.iter().any(|p| p.shard as usize >= shards || p.node.map_or(false, |n| n as usize >= nodes)) {
                return fail(key, "out of range");
            }
        }
        for (key, column) in
            [("standby", self.standby), ("load.entities", self.load_entities), ("load.rate", self.load_rate), ("load.bytes", self.load_bytes)]
        {
            if column.width > 0 && column.len() != shards {
                return fail(key, "want one a shard");
            }
        }
        Ok(())
    }
}

/// Which of some keys have come. A key may come once: which of two values counts would be up to the reader.
struct Keys {
    names: &'static [&'static str],
    got: u32,
}

impl Keys {
    /// Returns the name of a key that is known, None for any other.
    fn take(&mut self, key: &str) -> Result<Option<&'static str>, Error> {
        match self.names.iter().position(|k| *k == key) {
            None => Ok(None),
            Some(i) if self.got & 1 << i != 0 => Err(say(&[self.names[i], ": the key comes twice"])),
            Some(i) => {
                self.got |= 1 << i;
                Ok(Some(self.names[i]))
            }
        }
    }

    /// The first of the required keys that is missing.
    fn missing(&self, required: usize) -> Option<&'static str> {
        (0..required).find(|i| self.got & 1 << i == 0).map(|i| self.names[i])
    }
}

/// Reads all keys; at is the one that it is at.
fn fields<'a>(input: &'a [u8], op: &str, at: &mut &'static str) -> Result<Snapshot<'a>, Error> {
    let names = &[
        "v", "op", "now", "busy", "seed", "type", "nodes", "limits", "owners", "revision", "candidates", "shards", "waiting", "pinned", "standby", "load",
        "config",
    ];
    let mut keys = Keys { names, got: 0 };
    let none = Column::default();
    let mut s = Snapshot {
        type_name: "",
        revision: 0,
        now: 0,
        seed: 0,
        nodes: &[],
        candidates: &[],
        owners: none,
        busy: &[],
        pinned: &[],
        waiting: none,
        standby: none,
        load_entities: none,
        load_rate: none,
        load_bytes: none,
        max_moves: 0,
        config: Config(&[]),
        shards: none,
    };
    let r = &mut Reader::new(input);
    let mut items = r.open(MAP)?;
    while r.more(&mut items) {
        *at = "";
        let key = keys.take(r.text()?)?;
        *at = key.unwrap_or("");
        match *at {
            "v" => {
                if r.uint()? != 1 {
                    return Err("this contract version is not known here, only 1");
                }
            }
            "op" => {
                if r.text()? != op {
                    return Err("another operation than the one that was called");
                }
            }
            "now" => s.now = r.uint()?,
            "busy" => s.busy = pairs(r, true)?,
            "seed" => s.seed = r.uint()?,
            "type" => s.type_name = r.text()?,
            "nodes" => {
                let (mut list, mut nodes) = (r.open(ARRAY)?, List::new());
                while r.more(&mut list) {
                    nodes.push(node(r)?);
                }
                s.nodes = nodes.into_slice();
            }
            "limits" => {
                let mut keys = Keys { names: &["moves"], got: 0 };
                let mut list = r.open(MAP)?;
                while r.more(&mut list) {
                    match keys.take(r.text()?)? {
                        Some(_) => s.max_moves = r.uint()?,
                        None => drop(r.skip()?),
                    }
                }
                if keys.got == 0 {
                    return Err("moves: the key is missing");
                }
            }
            "owners" => s.owners = Column::read(r, &[69, 70])?,
            "revision" => s.revision = r.uint()?,
            "candidates" => {
                let (mut list, mut ids) = (r.open(ARRAY)?, List::new());
                while r.more(&mut list) {
                    ids.push(r.below(u32::MAX as usize)?);
                }
                s.candidates = ids.into_slice();
            }
            "shards" => s.shards = Column::read(r, &[70])?,
            "waiting" => s.waiting = Column::read(r, &[70])?,
            "pinned" => s.pinned = pairs(r, false)?,
            "standby" => s.standby = Column::read(r, &[69, 70])?,
            "load" => {
                let mut keys = Keys { names: &["entities", "rate", "bytes"], got: 0 };
                let mut list = r.open(MAP)?;
                while r.more(&mut list) {
                    match keys.take(r.text()?)? {
                        Some("entities") => s.load_entities = Column::read(r, &[70])?,
                        Some("rate") => s.load_rate = Column::read(r, &[70])?,
                        Some(_) => s.load_bytes = Column::read(r, &[71])?,
                        None => drop(r.skip()?),
                    }
                }
            }
            "config" => s.config = Config(r.skip()?),
            _ => drop(r.skip()?),
        }
    }
    *at = "";
    r.end()?;
    match keys.missing(if op == "allocate" { 12 } else { 11 }) {
        None => Ok(s),
        Some(key) => {
            *at = key;
            Err("the key is missing")
        }
    }
}

fn pairs<'a>(r: &mut Reader<'a>, or_null: bool) -> Result<&'static [Pair], Error> {
    let (mut list, mut pairs) = (r.open(ARRAY)?, List::new());
    while r.more(&mut list) {
        let mut items = r.open(ARRAY)?;
        let mut next = |r: &mut Reader<'a>| if r.more(&mut items) { Ok(()) } else { Err("want a shard and a node") };
        next(r)?;
        let shard = r.below(u32::MAX as usize)?;
        next(r)?;
        let node = if or_null && r.take(NULL) { None } else { Some(r.below(u32::MAX as usize)?) };
        if next(r).is_ok() {
            return Err("want a shard and a node");
        }
        pairs.push(Pair { shard, node });
    }
    Ok(pairs.into_slice())
}

#[inline(never)]
fn node<'a>(r: &mut Reader<'a>) -> Result<Node<'a>, Error> {
    let names = &["name", "addr", "incarnation", "state", "roles", "version", "weight", "zone", "tags", "coord", "load"];
    let mut keys = Keys { names, got: 0 };
    let mut n = Node {
        name: "",
        addr: "",
        incarnation: "",
        state: State::Other,
        roles: &[],
        version: "",
        weight: 0,
        zone: "",
        tags: &[],
        coord: Column::default(),
        load: NodeLoad::default(),
    };
    let mut items = r.open(MAP)?;
    while r.more(&mut items) {
        let key = match keys.take(r.text()?)? {
            Some(key) => key,
            None => {
                r.skip()?;
                continue;
            }
        };
        field(r, &mut n, key).map_err(|e| say(&[key, ": ", e]))?;
    }
    match keys.missing(7) {
        None => Ok(n),
        Some(key) => Err(say(&[key, ": the key is missing"])),
    }
}

fn field<'a>(r: &mut Reader<'a>, n: &mut Node<'a>, key: &str) -> Result<(), Error> {
    match key {
        "name" => n.name = r.text()?,
        "addr" => n.addr = r.text()?,
        "incarnation" => n.incarnation = r.text()?,
        "state" => {
            n.state = match r.text()? {
                "up" => State::Up,
                "joining" => State::Joining,
                "leaving" => State::Leaving,
                "draining" => State::Draining,
                "unreachable" => State::Unreachable,
                "away" => State::Away,
                _ => State::Other,
            }
        }
        "roles" => {
            let (mut list, mut roles) = (r.open(ARRAY)?, List::new());
            while r.more(&mut list) {
                roles.push(r.text()?);
            }
            n.roles = roles.into_slice();
        }
        "version" => n.version = r.text()?,
        "weight" => n.weight = r.uint()?,
        "zone" => n.zone = r.text()?,
        "tags" => {
            let (mut list, mut tags) = (r.open(MAP)?, List::new());
            while r.more(&mut list) {
                tags.push((r.text()?, r.text()?));
            }
            n.tags = tags.into_slice();
        }
        "coord" => {
            n.coord = Column::read(r, &[86])?;
            if n.coord.len() < 4 {
                return Err("want a vector, error, adjustment and height");
            }
        }
        _ => n.load = node_load(r)?,
    }
    Ok(())
}

fn node_load(r: &mut Reader) -> Result<NodeLoad, Error> {
    let mut keys = Keys { names: &["cpu", "mem", "entities", "rate", "depth", "disk", "diskfree", "read", "write"], got: 0 };
    let mut l = NodeLoad::default();
    let mut items = r.open(MAP)?;
    while r.more(&mut items) {
        let figure = match keys.take(r.text()?)? {
            Some("cpu") => &mut l.cpu,
            Some("mem") => &mut l.mem,
            Some("entities") => &mut l.entities,
            Some("rate") => &mut l.rate,
            Some("depth") => &mut l.depth,
            Some("disk") => &mut l.disk,
            Some("diskfree") => &mut l.diskfree,
            Some("read") => &mut l.read,
            Some(_) => &mut l.write,
            None => {
                r.skip()?;
                continue;
            }
        };
        *figure = Some(r.uint()?);
    }
    Ok(l)
}
