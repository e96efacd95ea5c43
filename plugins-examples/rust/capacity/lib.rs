//! capacity: a node holds shards in proportion to its weight; one of weight 0 is emptied.
#![no_std]

use drover::{filled, Config, ConfigKey, Description, Error, Move, Placement, Plan, Snapshot, Strategy, Value};

struct Capacity;

const MAX_MOVES: u64 = 3;

impl Strategy for Capacity {
    const DESCRIPTION: Description = Description {
        name: "capacity",
        version: "1",
        summary: "A node holds shards in proportion to its weight.",
        config: &[ConfigKey { key: "max_moves", default: Value::Uint(MAX_MOVES), help: "most moves of one rebalance; 0 moves nothing" }],
    };

    fn configure(config: Config) -> Result<(), Error> {
        config.uint("max_moves", MAX_MOVES).map(|_| ())
    }

    fn allocate(s: &Snapshot, homes: &mut [Option<u32>]) -> Result<(), Error> {
        let (p, weights) = (Placement::new(s), weights(s));
        for (i, home) in homes.iter_mut().enumerate() {
            let shard = s.shards.at(i).unwrap_or(0) as usize;
            *home = p.kept(shard).unwrap_or_else(|| emptiest(s, &p, weights).map(|best| best.0));
            if let Some(node) = *home {
                p.counts[node as usize] += 1;
            }
        }
        Ok(())
    }

    fn rebalance(s: &Snapshot, plan: &mut Plan) -> Result<(), Error> {
        let max_moves = s.config.uint("max_moves", MAX_MOVES)?;
        if s.mixed_versions() {
            plan.reason = Some("candidates run different versions");
            return Ok(());
        }
        let (p, weights) = (Placement::new(s), weights(s));
        // The shards of a node that may move, lowest first: first[node], then next[shard].
        let first = filled(s.nodes.len(), None);
        let next = filled(s.shard_count(), None);
        for shard in (0..s.shard_count()).rev().filter(|shard| p.movable(*shard)) {
            if let Some(owner) = s.owners.at(shard) {
                next[shard] = first[owner as usize];
                first[owner as usize] = Some(shard);
            }
        }
        while (plan.moves().len() as u64) < max_moves {
            let mut from: Option<(usize, Fill)> = None;
            for c in s.candidates.iter().map(|c| *c as usize).filter(|c| first[*c].is_some()) {
                let its = (p.counts[c], weights[c]);
                if from.map_or(true, |f| fuller(its, f.1)) {
                    from = Some((c, its));
                }
            }
            // Only where the target is less full afterwards than the source is now: what moves once does not move back.
            let (from, to) = match (from, emptiest(s, &p, weights)) {
                (Some(from), Some(to)) if fuller(from.1, to.1) => (from.0, to.0 as usize),
                _ => return Ok(()),
            };
            let shard = first[from].unwrap_or(0);
            if !plan.push(Move { shard: shard as u32, target: Some(to as u32), reason: Some("by weight") }) {
                return Ok(());
            }
            first[from] = next[shard];
            p.counts[from] -= 1;
            p.counts[to] += 1;
        }
        Ok(())
    }
}

/// How full a node is: its shards, and its weight.
type Fill = (u32, u32);

fn weights(s: &Snapshot) -> &'static mut [u32] {
    let weights = filled(s.nodes.len(), 0);
    for (weight, node) in weights.iter_mut().zip(s.nodes) {
        *weight = node.weight.min(u32::MAX as u64) as u32;
    }
    weights
}

/// Tells whether a is fuller than b; in integers, for no rounding must decide.
fn fuller(a: Fill, b: Fill) -> bool {
    a.0 as u64 * b.1 as u64 > b.0 as u64 * a.1 as u64
}

/// The candidate that is the least full with one shard more, the first one of several, and how full it is then. One of weight 0 gets nothing.
fn emptiest(s: &Snapshot, p: &Placement, weights: &[u32]) -> Option<(u32, Fill)> {
    let (mut best, mut fill) = (None, (u32::MAX, 0)); // fuller than any
    for c in s.candidates {
        let its = (p.counts[*c as usize] + 1, weights[*c as usize]);
        if its.1 > 0 && fuller(fill, its) {
            best = Some(*c);
            fill = its;
        }
    }
    best.map(|node| (node, fill))
}

drover::strategy!(Capacity);
