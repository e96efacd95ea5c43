//! Where the shards are.

use crate::{filled, Snapshot};

/// Counts the shards of each node. A shard in handoff counts at its target, or at its owner where no target is known; one that waits for a node that is no
/// candidate counts nowhere.
pub struct Placement {
    /// By node.
    pub counts: &'static mut [u32],
    /// Shards with a home, or on their way to one.
    pub homed: u32,
    fixed: &'static mut [bool], // empty where none is
    kept: &'static mut [Option<Option<u32>>],
}

impl Placement {
    pub fn new(s: &Snapshot) -> Self {
        let counts = filled(s.nodes.len(), 0);
        let shards = s.shard_count();
        for i in 0..shards {
            if let Some(owner) = s.owners.at(i) {
                counts[owner as usize] += 1;
            }
        }
        let any = !s.busy.is_empty() || !s.waiting.is_empty() || !s.pinned.is_empty();
        let fixed = filled(if any { shards } else { 0 }, false);
        for b in s.busy {
            let (shard, known) = (b.shard as usize, fixed[b.shard as usize]);
            fixed[shard] = true;
            if let (false, Some(target)) = (known, b.node) {
                if let Some(owner) = s.owners.at(shard) {
                    counts[owner as usize] -= 1;
                }
                counts[target as usize] += 1;
            }
        }
        let kept = filled(if s.waiting.is_empty() && s.pinned.is_empty() { 0 } else { shards }, None);
        for p in s.pinned {
            if p.node.map_or(false, |n| s.is_candidate(n)) {
                kept[p.shard as usize] = Some(p.node);
            }
        }
        for shard in (0..s.waiting.len()).filter_map(|i| s.waiting.at(i)).map(|w| w as usize) {
            kept[shard] = Some(None);
            if fixed[shard] {
                continue;
            }
            fixed[shard] = true;
            match s.owners.at(shard) {
                Some(owner) if !s.is_candidate(owner) => counts[owner as usize] -= 1,
                _ => {}
            }
        }
        for p in s.pinned {
            fixed[p.shard as usize] = true;
        }
        let homed = counts.iter().sum();
        Placement { counts, homed, fixed, kept }
    }

    /// Tells whether a rebalance may move the shard: it is neither busy nor waiting nor pinned.
    pub fn movable(&self, shard: usize) -> bool {
        !self.fixed.get(shard).copied().unwrap_or(false)
    }

    /// Tells of a shard that needs a home whether that is not the strategy's to choose: one that waits is left without, one that is pinned to a candidate
    /// goes there.
    pub fn kept(&self, shard: usize) -> Option<Option<u32>> {
        self.kept.get(shard).copied().flatten()
    }
}
