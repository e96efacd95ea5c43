// role-pinning: the lowest shards live on nodes of one role, all others elsewhere. ../role-pinning is the same in Go, but that nothing moves
// here during a rolling upgrade.
import { Config, ConfigKey, Description, FREE, NONE, Placement, Plan, Snapshot, Strategy, Text, register } from "./drover";
export { drover_abi_v1, drover_allocate, drover_buffer, drover_configure, drover_describe, drover_rebalance } from "./drover";

const DEFAULT_ROLE = "coordinator", DEFAULT_LOW: u64 = 4;

class RolePinning extends Strategy {
  describe(): Description {
    return new Description("role-pinning", "1", "The lowest shards live on nodes of one role, all others elsewhere.", [
      new ConfigKey("role", "string", "role of the nodes for the lowest shards", 0, DEFAULT_ROLE),
      new ConfigKey("low", "uint", "how many shards, from 0, live on them", DEFAULT_LOW),
    ]);
  }

  configure(config: Config): string | null { return new Rule(config, new Snapshot()).error; }

  allocate(s: Snapshot, homes: StaticArray<u32>): string | null {
    const rule = new Rule(s.config, s), p = new Placement(s);
    for (let i = 0; i < homes.length; i++) {
      const shard = s.shards.at(i), kept = p.keptAt(shard);
      homes[i] = kept == FREE ? rule.best(p, shard) : kept;
      if (homes[i] != NONE) p.counts[homes[i]]++;
    }
    return rule.error;
  }

  rebalance(s: Snapshot, plan: Plan): string | null {
    const rule = new Rule(s.config, s);
    if (rule.error !== null || s.mixedVersions()) return rule.error;
    const p = new Placement(s);
    for (let shard: u32 = 0; shard < s.owners.count; shard++) {
      const owner = s.owners.at(shard);
      // Only a wrong kind of node is worth a move, where there is one of the right kind; evenness is not this strategy's concern.
      if (owner == NONE || rule.fits(owner, shard) || !rule.kind(shard).length || !p.movable(shard) || !s.isCandidate(owner)) continue;
      const best = rule.best(p, shard);
      if (!plan.move(shard, best)) break;
      p.counts[owner]--;
      p.counts[best]++;
    }
    return null;
  }
}

class Rule {
  error: string | null;
  private low: u64;
  private has: StaticArray<bool>; // of each node: whether it has the role
  private all: StaticArray<u32>; // the candidates, then those with the role and those without
  private special: StaticArray<u32>;
  private others: StaticArray<u32>;

  constructor(config: Config, s: Snapshot) {
    const role = config.text("role", DEFAULT_ROLE);
    this.low = config.uint("low", DEFAULT_LOW);
    this.error = config.error;
    const has = new StaticArray<bool>(s.nodes.length), special: u32[] = [], others: u32[] = [];
    for (let i = 0; i < has.length; i++) has[i] = s.nodes[i].hasRole(role);
    for (let i = 0; i < s.candidates.length; i++) (has[s.candidates[i]] ? special : others).push(s.candidates[i]);
    this.has = has;
    this.all = StaticArray.fromArray(s.candidates);
    this.special = StaticArray.fromArray(special);
    this.others = StaticArray.fromArray(others);
  }

  // fits tells whether the node is of the kind that the shard should live on.
  fits(node: u32, shard: u32): bool { return this.has[node] == (<u64>shard < this.low); }

  // kind returns the candidates that fit.
  kind(shard: u32): StaticArray<u32> { return <u64>shard < this.low ? this.special : this.others; }

  // best returns the candidate with the fewest shards among those that fit, or among all where none does; NONE where there is none.
  best(p: Placement, shard: u32): u32 {
    const fit = this.kind(shard), from = fit.length ? fit : this.all, counts = p.counts;
    let best = NONE, fewest = u32.MAX_VALUE;
    for (let i = 0; i < from.length; i++) {
      const c = unchecked(from[i]), count = unchecked(counts[c]); // a candidate is a node: drover.ts has checked it
      if (count < fewest) {
        best = c;
        fewest = count;
      }
    }
    return best;
  }
}

register(new RolePinning());
