// drover.ts: strategies in AssemblyScript; contract version 1 (pluginapi/strategy.cddl).
//
// Extend Strategy, hand one to register, and export what the host calls (see role-pinning.ts). What a snapshot says is in range: an owner, candidate or
// target is NONE or an index into the nodes, a shard is below the number of shards. Texts are parts of the input and not checked to be UTF-8.
//
// An input that is not of the contract is answered with an error that names the key. Unknown keys may hold any well-formed CBOR; at most 32 arrays, maps
// or strings of indefinite length may be open at once. Build with the stub runtime: nothing is ever freed, and the next call begins with all of the memory.

export const NONE: u32 = u32.MAX_VALUE; // no owner, no target; a load figure of 32 bits that is not known
export const UNKNOWN: u64 = u64.MAX_VALUE; // a load figure of 64 bits that is not known
export const FREE: u32 = NONE - 1; // of Placement.keptAt: the strategy may choose

export abstract class Strategy {
  abstract describe(): Description;
  // Each of these returns null, or why it could not decide.
  abstract configure(config: Config): string | null; // refuses a configuration that is no good, when the strategy is loaded
  abstract allocate(s: Snapshot, homes: StaticArray<u32>): string | null; // sets homes[i] for the i-th of s.shards; they come as NONE: left without
  abstract rebalance(s: Snapshot, plan: Plan): string | null; // calls plan.move for each move
}

let strategy: Strategy | null = null;
export function register(s: Strategy): void { strategy = s; }

// A key of the configuration. type is "uint", "bool" (whose default is 0 or 1 in number) or "string" (whose default is text).
export class ConfigKey {
  constructor(public key: string, public type: string, public help: string, public number: u64, public text: string = "") {}
}

export class Description {
  constructor(public name: string, public version: string, public summary: string, public config: ConfigKey[]) {}
}

// ---- Log, texts, columns

@external("drover", "log") declare function hostLog(level: i32, text: usize, len: i32): void;

export enum Level { Debug = -4, Info = 0, Warn = 4, Error = 8 }

// log writes to the node's log. It never changes a decision.
export function log(level: Level, text: string): void {
  const bytes = String.UTF8.encode(text);
  hostLog(level, changetype<usize>(bytes), bytes.byteLength);
}

// A part of the input.
export class Text {
  constructor(public at: usize = 0, public len: u32 = 0) {}

  // is tells whether it is a word of ASCII.
  is(word: string): bool {
    if (this.len != <u32>word.length) return false;
    for (let i: u32 = 0; i < this.len; i++) if (<i32>load<u8>(this.at + i) != word.charCodeAt(i)) return false;
    return true;
  }

  same(other: Text): bool {
    return this.len == other.len && memory.compare(this.at, other.at, this.len) == 0;
  }

  toString(): string { return String.UTF8.decodeUnsafe(this.at, this.len); }
}

// Numbers of 2, 4 or 8 bytes as they lie in the input: a typed array of RFC 8746. there is false where the input has none.
export class Column {
  constructor(public start: usize = 0, public count: u32 = 0, public width: u32 = 4, public there: bool = false) {}

  // at returns the i-th number of a column of 2 or 4 bytes; NONE for all bits set, and where there is no such number.
  at(i: u32): u32 {
    if (i >= this.count) return NONE;
    if (this.width == 4) return load<u32>(this.start + (<usize>i << 2));
    const v = load<u16>(this.start + (<usize>i << 1));
    return v == u16.MAX_VALUE ? NONE : v;
  }

  // wide returns the i-th number of a column of 8 bytes; UNKNOWN for all bits set, and where there is no such number.
  wide(i: u32): u64 { return i < this.count ? load<u64>(this.start + (<usize>i << 3)) : UNKNOWN; }

  float(i: u32): f64 { return reinterpret<f64>(this.wide(i)); }
}

// ---- Reader. After an error it stands at the end and every read gives nothing.

const UINT: u8 = 0, BYTES: u8 = 2, TEXT: u8 = 3, ARRAY: u8 = 4, MAP: u8 = 5, TAG: u8 = 6, SIMPLE: u8 = 7;
const FALSE: u8 = 0xf4, TRUE: u8 = 0xf5, NULL: u8 = 0xf6, BREAK: u8 = 0xff;

const MAX_OPEN = 32; // arrays, maps and strings of indefinite length
const openLeft = new StaticArray<u64>(MAX_OPEN), openMajor = new StaticArray<u8>(MAX_OPEN), openOdd = new StaticArray<bool>(MAX_OPEN);

// Elements that are still to come.
class Items {
  constructor(public left: u64, public indefinite: bool) {}
}

export class Reader {
  error: string | null = null;
  major: u8 = 0; // of the last head
  indefinite: bool = false; // the last head had no length, or was a break

  constructor(public at: usize, public end: usize) {}

  fail(error: string): void {
    if (this.error === null) this.error = error;
    this.at = this.end;
  }

  left(): u64 { return this.end - this.at; }

  // take passes over a byte, if that is what comes next.
  take(byte: u8): bool {
    if (this.at >= this.end || load<u8>(this.at) != byte) return false;
    this.at++;
    return true;
  }

  head(): u64 {
    this.major = SIMPLE;
    this.indefinite = false;
    if (this.at >= this.end) { this.fail("the input ends where a value should be"); return 0; }
    const first = load<u8>(this.at++), info = first & 31;
    this.major = first >> 5;
    if (info < 24) return info;
    if (info == 31 && this.major >= BYTES && this.major != TAG) { this.indefinite = true; return 0; }
    if (info > 27) { this.fail("not well-formed CBOR"); return 0; }
    let width: u32 = 1 << (info - 24), n: u64 = 0;
    if (this.left() < width) { this.fail("the input ends inside a value"); return 0; }
    for (; width; width--) n = n << 8 | load<u8>(this.at++);
    if (this.major == SIMPLE && info == 24 && n < 32) this.fail("not well-formed CBOR");
    return n;
  }

  uint(): u64 {
    const n = this.head();
    if (this.major != UINT) this.fail("want an unsigned integer");
    return this.error === null ? n : 0;
  }

  // index reads an unsigned integer; one that is too large for 32 bits is NONE, which no range has.
  index(): u32 {
    const n = this.uint();
    return n > NONE ? NONE : <u32>n;
  }

  text(want: u8 = TEXT): Text {
    const n = this.head(), at = this.at;
    if (this.major != want) this.fail(want == BYTES ? "want a byte string" : "want text");
    else if (this.indefinite) this.fail("want a string of definite length");
    else if (n > this.left()) this.fail("the input ends inside a string");
    if (this.error !== null) return new Text();
    this.at += <usize>n;
    return new Text(at, <u32>n);
  }

  open(want: u8): Items {
    const n = this.head();
    if (this.major != want) this.fail(want == MAP ? "want a map" : "want an array");
    else if (n > this.left()) this.fail("the input ends inside an array or map"); // each takes a byte at least
    return new Items(n, this.indefinite);
  }

  // next tells whether another element follows.
  next(items: Items): bool {
    if (this.error !== null) return false;
    if (items.indefinite) return !this.take(BREAK); // at the end of the input the element's own read fails
    if (!items.left) return false;
    items.left--;
    return true;
  }

  typed(tag: u64, other: u64): Column {
    const n = this.head(), width: u32 = n == 69 ? 2 : n == 70 ? 4 : 8;
    if (this.major != TAG || (n != tag && n != other)) this.fail("want a typed array");
    const t = this.text(BYTES);
    if (t.len % width) this.fail("the length of a typed array is no multiple of its element's");
    return this.error === null ? new Column(t.at, t.len / width, width, true) : new Column();
  }

  // skip passes over one value of any kind. It does not recurse: of what has a length the elements are counted, whatever they are in.
  skip(): void {
    let left: u64 = 1, depth = 0;
    while (this.error === null) {
      if (!left) {
        if (!depth) return;
        if (this.take(BREAK)) {
          depth--;
          if (openOdd[depth]) this.fail("a key without a value");
          left = openLeft[depth];
          continue;
        }
        left = 1;
        if (openMajor[depth - 1] == MAP) openOdd[depth - 1] = !openOdd[depth - 1];
      }
      const within = depth ? openMajor[depth - 1] : ARRAY, n = this.head(), major = this.major;
      left--;
      if (this.error !== null) return;
      if (within < ARRAY && (major != within || this.indefinite)) this.fail("not well-formed CBOR"); // a string is made of its like
      else if (major == SIMPLE && this.indefinite) this.fail("a break without an open array or map");
      else if (this.indefinite) {
        if (depth == MAX_OPEN) { this.fail("nested too deep"); return; }
        openLeft[depth] = left;
        openMajor[depth] = major;
        openOdd[depth] = false;
        depth++;
        left = 0;
      } else if (major == BYTES || major == TEXT) {
        if (n > this.left()) this.fail("the input ends inside a string");
        else this.at += <usize>n;
      } else if (major == ARRAY || major == MAP) {
        if (n > this.left()) this.fail("the input ends inside an array or map");
        else left += major == MAP ? 2 * n : n;
      } else if (major == TAG) left++;
      if (left > this.left()) this.fail("the input ends inside an array or map");
    }
  }
}

// Which of some keys have come. A key may come once: which of two values counts would be up to the reader.
class Keys {
  got: u32 = 0;
  constructor(public names: StaticArray<string>) {}

  // take reads a key and returns its place, the number of names for one that is not known.
  take(r: Reader): i32 {
    const key = r.text(), names = this.names;
    let i = 0;
    while (i < names.length && !key.is(names[i])) i++;
    if (i < names.length) {
      if (this.got & 1 << i) r.fail(names[i] + ": the key comes twice");
      this.got |= 1 << i;
    }
    return i;
  }

  // need fails for the first of the required keys that is missing.
  need(r: Reader, required: i32): void {
    for (let i = 0; i < required && r.error === null; i++) if (!(this.got & 1 << i)) r.fail(this.names[i] + ": the key is missing");
  }
}

// ---- The snapshot

export enum State { Other, Up, Joining, Leaving, Draining, Unreachable, Away } // Other: a later host may know more

const states: StaticArray<string> = ["", "up", "joining", "leaving", "draining", "unreachable", "away"];
const figures: StaticArray<string> = ["cpu", "mem", "entities", "rate", "depth", "disk", "diskfree", "read", "write"];
const nodeKeys: StaticArray<string> = ["name", "addr", "incarnation", "state", "roles", "version", "weight", "zone", "tags", "coord", "load"];
const keys: StaticArray<string> = ["v", "op", "now", "busy", "seed", "type", "nodes", "limits", "owners", "revision", "candidates", "shards", "waiting",
  "pinned", "standby", "load", "config"];

export class Node {
  name: Text = new Text();
  addr: Text = new Text();
  incarnation: Text = new Text();
  state: State = State.Other;
  roles: Text[] = [];
  version: Text = new Text();
  weight: u64 = 0; // capacity, 100 = one unit
  zone: Text = new Text(); // empty where not told
  tagKeys: Text[] = [];
  tagValues: Text[] = [];
  coord: Column = new Column(); // float64: vector, error, adjustment, height
  load: StaticArray<u64> | null = null; // what load returns, in the order of its names; null where nothing is told

  hasRole(role: Text): bool {
    for (let i = 0; i < this.roles.length; i++) if (this.roles[i].same(role)) return true;
    return false;
  }

  // tag returns the value of a tag, null where there is none.
  tag(key: string): Text | null {
    for (let i = 0; i < this.tagKeys.length; i++) if (this.tagKeys[i].is(key)) return this.tagValues[i];
    return null;
  }

  // figure returns cpu, mem, entities, rate, depth, disk, diskfree, read or write; UNKNOWN where not told.
  figure(name: string): u64 {
    const load = this.load;
    if (load !== null) for (let i = 0; i < figures.length; i++) if (figures[i] == name) return load[i];
    return UNKNOWN;
  }

  // read reads it. Errors begin with the key.
  read(r: Reader): void {
    const got = new Keys(nodeKeys), items = r.open(MAP);
    while (r.next(items)) {
      const key = got.take(r), fine = r.error === null;
      this.field(r, key);
      if (fine && r.error !== null && key < nodeKeys.length) r.error = nodeKeys[key] + ": " + r.error!;
    }
    got.need(r, 7);
  }

  private field(r: Reader, key: i32): void {
    switch (key) {
      case 0: this.name = r.text(); break;
      case 1: this.addr = r.text(); break;
      case 2: this.incarnation = r.text(); break;
      case 3: {
        const state = r.text();
        for (let i = 1; i < states.length; i++) if (state.is(states[i])) this.state = i;
        break;
      }
      case 4: for (const list = r.open(ARRAY); r.next(list);) this.roles.push(r.text()); break;
      case 5: this.version = r.text(); break;
      case 6: this.weight = r.uint(); break;
      case 7: this.zone = r.text(); break;
      case 8: for (const list = r.open(MAP); r.next(list);) { this.tagKeys.push(r.text()); this.tagValues.push(r.text()); } break;
      case 9:
        this.coord = r.typed(86, 86);
        if (this.coord.count < 4) r.fail("want a vector, error, adjustment and height");
        break;
      case 10: {
        const load = new StaticArray<u64>(figures.length), got = new Keys(figures);
        for (let i = 0; i < load.length; i++) load[i] = UNKNOWN;
        for (const list = r.open(MAP); r.next(list);) {
          const i = got.take(r);
          if (i < load.length) load[i] = r.uint();
          else r.skip();
        }
        this.load = load;
        break;
      }
      default: r.skip();
    }
  }
}

export class Pair {
  constructor(public shard: u32, public node: u32) {} // node: NONE where not known
}

// A strategy's own table of node.toml. After a getter error says what is wrong, null if nothing is.
export class Config {
  error: string | null = null;
  constructor(public at: usize = 0, public end: usize = 0) {}

  private find(key: string): Reader | null {
    const r = new Reader(this.at, this.end);
    if (this.at == this.end) return null;
    for (const items = r.open(MAP); r.next(items);) {
      if (r.text().is(key) && r.error === null) return r;
      r.skip();
    }
    if (r.error !== null) this.error = "config: " + r.error!;
    return null;
  }

  uint(key: string, def: u64): u64 {
    const r = this.find(key);
    if (r === null) return def;
    const n = r.uint();
    if (r.error === null) return n;
    this.error = "config." + key + ": want a whole number of at least 0";
    return def;
  }

  bool(key: string, def: bool): bool {
    const r = this.find(key);
    if (r === null) return def;
    if (r.take(TRUE)) return true;
    if (!r.take(FALSE)) this.error = "config." + key + ": want true or false";
    return false;
  }

  text(key: string, def: string): Text {
    const r = this.find(key), bytes = String.UTF8.encode(def), other = new Text(changetype<usize>(bytes), bytes.byteLength);
    if (r === null) return other;
    const t = r.text();
    if (r.error === null) return t;
    this.error = "config." + key + ": want text";
    return other;
  }
}

export class Snapshot {
  type: Text = new Text();
  revision: u64 = 0;
  now: u64 = 0; // milliseconds, logical
  seed: u64 = 0;
  nodes: Node[] = []; // sorted by name, bytewise
  candidates: u32[] = []; // nodes that may get shards, ascending
  owners: Column = new Column(); // one a shard
  busy: Pair[] = []; // shards in handoff, and their targets
  pinned: Pair[] = [];
  waiting: Column = new Column(); // shards whose state is on a node that is away
  standby: Column = new Column(); // as owners: who holds the in-sync copy
  loadEntities: Column = new Column();
  loadRate: Column = new Column();
  loadBytes: Column = new Column();
  maxMoves: u64 = 0; // most moves that the host will take
  config: Config = new Config();
  shards: Column = new Column(); // of allocate: those that need a home

  isCandidate(node: u32): bool { return this.candidates.includes(node); }

  // mixedVersions tells whether candidates run different software versions: a rolling upgrade is under way, and nothing should move.
  mixedVersions(): bool {
    const c = this.candidates;
    for (let i = 1; i < c.length; i++) if (!this.nodes[c[i]].version.same(this.nodes[c[0]].version)) return true;
    return false;
  }

  // read reads an input, and returns what is wrong with it.
  read(at: usize, len: u32, op: string): string | null {
    const r = new Reader(at, at + len), got = new Keys(keys), items = r.open(MAP);
    while (r.next(items)) {
      const key = got.take(r), fine = r.error === null;
      this.field(r, key, op);
      if (fine && r.error !== null && key < keys.length) r.error = keys[key] + ": " + r.error!;
    }
    if (r.at < r.end) r.fail("bytes follow the input");
    got.need(r, op == "allocate" ? 12 : 11);
    if (r.error === null) this.check(r);
    return r.error === null ? null : "input: " + r.error!;
  }

  private field(r: Reader, key: i32, op: string): void {
    switch (key) {
      case 0: if (r.uint() != 1) r.fail("this contract version is not known here, only 1"); break;
      case 1: if (!r.text().is(op)) r.fail("another operation than the one that was called"); break;
      case 2: this.now = r.uint(); break;
      case 3: this.busy = pairs(r, true); break;
      case 4: this.seed = r.uint(); break;
      case 5: this.type = r.text(); break;
      case 6:
        for (const list = r.open(ARRAY); r.next(list);) {
          const node = new Node();
          node.read(r);
          this.nodes.push(node);
        }
        break;
      case 7: {
        const got = new Keys(["moves"]);
        for (const list = r.open(MAP); r.next(list);) if (got.take(r) == 0) this.maxMoves = r.uint(); else r.skip();
        got.need(r, 1);
        break;
      }
      case 8: this.owners = r.typed(69, 70); break;
      case 9: this.revision = r.uint(); break;
      case 10: for (const list = r.open(ARRAY); r.next(list);) this.candidates.push(r.index()); break;
      case 11: this.shards = r.typed(70, 70); break;
      case 12: this.waiting = r.typed(70, 70); break;
      case 13: this.pinned = pairs(r, false); break;
      case 14: this.standby = r.typed(69, 70); break;
      case 15: {
        const got = new Keys(["entities", "rate", "bytes"]);
        for (const list = r.open(MAP); r.next(list);) {
          switch (got.take(r)) {
            case 0: this.loadEntities = r.typed(70, 70); break;
            case 1: this.loadRate = r.typed(70, 70); break;
            case 2: this.loadBytes = r.typed(71, 71); break;
            default: r.skip();
          }
        }
        break;
      }
      case 16: {
        const from = r.at;
        r.skip();
        this.config = new Config(from, r.at);
        break;
      }
      default: r.skip();
    }
  }

  // check fails unless everything is in range.
  private check(r: Reader): void {
    const nodes = <u32>this.nodes.length, shards = this.owners.count, c = this.candidates;
    for (let i = 0; i < c.length; i++)
      if (c[i] >= nodes || (i > 0 && c[i] <= c[i - 1])) r.fail("candidates: out of range, not ascending, or there twice");
    below(r, "owners", this.owners, nodes, true);
    below(r, "standby", this.standby, nodes, true);
    below(r, "waiting", this.waiting, shards, false);
    below(r, "shards", this.shards, shards, false);
    for (let i = 0; i < this.busy.length; i++) this.pairBelow(r, "busy", this.busy[i]);
    for (let i = 0; i < this.pinned.length; i++) this.pairBelow(r, "pinned", this.pinned[i]);
    this.oneAShard(r, "standby", this.standby);
    this.oneAShard(r, "load.entities", this.loadEntities);
    this.oneAShard(r, "load.rate", this.loadRate);
    this.oneAShard(r, "load.bytes", this.loadBytes);
  }

  private pairBelow(r: Reader, key: string, p: Pair): void {
    if (p.shard >= this.owners.count || (p.node != NONE && p.node >= <u32>this.nodes.length)) r.fail(key + ": out of range");
  }

  private oneAShard(r: Reader, key: string, c: Column): void {
    if (c.there && c.count != this.owners.count) r.fail(key + ": want one a shard");
  }
}

// below fails unless all numbers of a column are below limit; with orNone all bits set may be there too.
function below(r: Reader, key: string, c: Column, limit: u32, orNone: bool): void {
  for (let i: u32 = 0; i < c.count; i++) {
    const v = c.at(i);
    if (v >= limit && !(orNone && v == NONE)) { r.fail(key + ": out of range"); return; }
  }
}

function pairs(r: Reader, orNull: bool): Pair[] {
  const list: Pair[] = [];
  for (const items = r.open(ARRAY); r.next(items);) {
    const pair = r.open(ARRAY);
    if (!r.next(pair)) r.fail("want a shard and a node");
    const shard = r.index();
    if (!r.next(pair)) r.fail("want a shard and a node");
    let node = NONE;
    if (!orNull || !r.take(NULL)) {
      node = r.index();
      if (node == NONE) r.fail("no such node");
    }
    if (r.next(pair)) r.fail("want a shard and a node");
    list.push(new Pair(shard, node));
  }
  return list;
}

// ---- Where the shards are

// A placement counts the shards of each node. A shard in handoff counts at its target, or at its owner where no target is known; one that waits for a node
// that is no candidate counts nowhere.
export class Placement {
  counts: StaticArray<u32>; // by node
  homed: u32 = 0; // shards with a home, or on their way to one
  private fixed: StaticArray<bool>; // empty where no shard is
  private kept: StaticArray<u32>;

  constructor(s: Snapshot) {
    const shards = s.owners.count, counts = new StaticArray<u32>(s.nodes.length);
    const some = s.busy.length > 0 || s.waiting.count > 0 || s.pinned.length > 0;
    const fixed = new StaticArray<bool>(some ? shards : 0);
    const kept = new StaticArray<u32>(s.waiting.count > 0 || s.pinned.length > 0 ? shards : 0);
    for (let i: u32 = 0; i < shards; i++) {
      const owner = s.owners.at(i);
      if (owner != NONE) counts[owner]++;
    }
    for (let i = 0; i < s.busy.length; i++) {
      const b = s.busy[i], owner = s.owners.at(b.shard), first = !fixed[b.shard];
      fixed[b.shard] = true;
      if (!first || b.node == NONE) continue;
      if (owner != NONE) counts[owner]--;
      counts[b.node]++;
    }
    for (let i = 0; i < kept.length; i++) kept[i] = FREE;
    for (let i = 0; i < s.pinned.length; i++) {
      const p = s.pinned[i];
      if (s.isCandidate(p.node)) kept[p.shard] = p.node;
    }
    for (let i: u32 = 0; i < s.waiting.count; i++) {
      const shard = s.waiting.at(i), owner = s.owners.at(shard), first = !fixed[shard];
      kept[shard] = NONE;
      fixed[shard] = true;
      if (first && owner != NONE && !s.isCandidate(owner)) counts[owner]--;
    }
    for (let i = 0; i < s.pinned.length; i++) fixed[s.pinned[i].shard] = true;
    this.counts = counts;
    this.fixed = fixed;
    this.kept = kept;
    for (let i = 0; i < counts.length; i++) this.homed += counts[i];
  }

  // movable tells whether a rebalance may move the shard: it is neither busy nor waiting nor pinned.
  movable(shard: u32): bool { return !this.fixed.length || !this.fixed[shard]; }

  // keptAt tells of a shard that needs a home whether that is not the strategy's to choose: one that waits is left without (NONE), one that is pinned to a
  // candidate goes there. Else it returns FREE.
  keptAt(shard: u32): u32 { return this.kept.length ? this.kept[shard] : FREE; }
}

// ---- The answer

class Move {
  constructor(public shard: u32, public target: u32, public reason: string | null) {}
}

export class Plan {
  moves: Move[] = [];
  reason: string | null = null; // of the whole plan
  constructor(private limit: u64) {}

  // move adds a move; a target of NONE asks allocate once the shard is free. It returns false, and adds nothing, where the host would take no more.
  move(shard: u32, target: u32, reason: string | null = null): bool {
    if (<u64>this.moves.length >= this.limit) return false;
    this.moves.push(new Move(shard, target, reason));
    return true;
  }
}

class Writer {
  private out: usize = heap.alloc(256);
  private len: usize = 0;
  private room: usize = 256;

  constructor(entries: u64) { this.head(MAP, entries); }

  private reserve(more: usize): usize {
    if (this.room - this.len < more) {
      this.room = 2 * this.room + more;
      const out = heap.alloc(this.room);
      memory.copy(out, this.out, this.len);
      this.out = out;
    }
    const at = this.out + this.len;
    this.len += more;
    return at;
  }

  byte(b: u8): void { store<u8>(this.reserve(1), b); }

  head(major: u8, n: u64): void {
    const info: u8 = n < 24 ? <u8>n : n < 0x100 ? 24 : n < 0x10000 ? 25 : n <= NONE ? 26 : 27;
    this.byte(major << 5 | info);
    if (info >= 24) for (let width = 1 << (info - 24); width--;) this.byte(<u8>(n >> (8 * width)));
  }

  text(s: string): void {
    const bytes = String.UTF8.encode(s), n = bytes.byteLength;
    this.head(TEXT, n);
    memory.copy(this.reserve(n), changetype<usize>(bytes), n);
  }

  node(n: u32): void {
    if (n == NONE) this.byte(NULL);
    else this.head(UINT, n);
  }

  answer(): u64 { return <u64>this.out << 32 | this.len; }
}

function failure(error: string): u64 {
  const w = new Writer(1);
  w.text("error");
  w.text(error);
  return w.answer();
}

export function drover_abi_v1(): void {}

export function drover_buffer(len: u32): usize { return heap.alloc(len); }

export function drover_allocate(at: usize, len: u32): u64 {
  const s = new Snapshot(), wrong = s.read(at, len, "allocate");
  if (wrong !== null) return failure(wrong);
  const homes = new StaticArray<u32>(s.shards.count);
  for (let i = 0; i < homes.length; i++) homes[i] = NONE;
  const error = strategy!.allocate(s, homes);
  if (error !== null) return failure(error);
  const w = new Writer(1);
  w.text("homes");
  w.head(ARRAY, homes.length);
  for (let i = 0; i < homes.length; i++) w.node(homes[i]);
  return w.answer();
}

export function drover_rebalance(at: usize, len: u32): u64 {
  const s = new Snapshot(), wrong = s.read(at, len, "rebalance");
  if (wrong !== null) return failure(wrong);
  const plan = new Plan(s.maxMoves), error = strategy!.rebalance(s, plan);
  if (error !== null) return failure(error);
  const reason = plan.reason, w = new Writer(reason === null ? 1 : 2);
  w.text("moves");
  w.head(ARRAY, plan.moves.length);
  for (let i = 0; i < plan.moves.length; i++) {
    const m = plan.moves[i], why = m.reason;
    w.head(ARRAY, why === null ? 2 : 3);
    w.head(UINT, m.shard);
    w.node(m.target);
    if (why !== null) w.text(why);
  }
  if (reason !== null) {
    w.text("reason");
    w.text(reason);
  }
  return w.answer();
}

export function drover_configure(at: usize, len: u32): u64 {
  const r = new Reader(at, at + len);
  r.skip();
  if (r.at < r.end) r.fail("bytes follow the configuration");
  const error = r.error === null ? strategy!.configure(new Config(at, at + len)) : "config: " + r.error!;
  return error === null ? new Writer(0).answer() : failure(error);
}

export function drover_describe(): u64 {
  const d = strategy!.describe(), w = new Writer(4);
  w.text("name");
  w.text(d.name);
  w.text("config");
  w.head(MAP, d.config.length);
  for (let i = 0; i < d.config.length; i++) {
    const k = d.config[i];
    w.text(k.key);
    w.head(MAP, 3);
    w.text("help");
    w.text(k.help);
    w.text("type");
    w.text(k.type);
    w.text("default");
    if (k.type == "string") w.text(k.text);
    else if (k.type == "bool") w.byte(k.number ? TRUE : FALSE);
    else w.head(UINT, k.number);
  }
  w.text("summary");
  w.text(d.summary);
  w.text("version");
  w.text(d.version);
  return w.answer();
}
