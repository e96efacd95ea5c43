// leastshard in C: what a small guest costs. It answers a rebalance as strategies/leastshard does (spec 1.2), with its default configuration.
//
// clang --target=wasm32 -O2 -mbulk-memory -nostdlib -fno-builtin -Wl,--no-entry -Wl,--stack-first -Wl,-z,stack-size=65536 \
//   -o leastshard.wasm leastshard.c
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define EXPORT(name) __attribute__((export_name(name)))
#define NONE 0xffffffffu

enum { MAX_NODES = 1024, MAX_MOVES = 3, PAGE = 65536 };

extern u8 __heap_base;

static const u8 *p, *end; // what is left of the input
static u32 counts[MAX_NODES + 1], quota[MAX_NODES], sources[MAX_NODES], lowest[MAX_NODES][MAX_MOVES];
static u8 candidate[MAX_NODES], out[256];

EXPORT("drover_abi_v1") void abi(void) {}

// room gives n bytes behind the statics.
EXPORT("drover_buffer") u32 room(u32 n) {
	u32 base = ((u32)&__heap_base + 7) & ~7u;
	u64 want = (u64)base + n, have = (u64)__builtin_wasm_memory_size(0) * PAGE;
	if (want > have && __builtin_wasm_memory_grow(0, (u32)((want - have + PAGE - 1) / PAGE)) == (u32)-1)
		__builtin_trap();
	return base;
}

static u64 head(u8 *major) {
	if (p >= end) __builtin_trap();
	u8 b = *p++, info = b & 31;
	*major = b >> 5;
	if (info < 24) return info;
	u32 width = 1u << (info - 24);
	if (info > 27 || (u32)(end - p) < width) __builtin_trap();
	u64 n = 0;
	while (width--) n = n << 8 | *p++;
	return n;
}

static u32 value(u8 want) {
	u8 major;
	u64 n = head(&major);
	if (major != want) __builtin_trap();
	return n > NONE ? NONE : (u32)n;
}

// bytes passes over n bytes and returns where they start.
static const u8 *bytes(u32 n) {
	const u8 *at = p;
	if ((u32)(end - p) < n) __builtin_trap();
	p += n;
	return at;
}

static void skip(void) {
	u8 major;
	u64 n = head(&major);
	if (major == 2 || major == 3) bytes(n > NONE ? NONE : (u32)n);
	if (major == 4) while (n--) skip();
	if (major == 5) while (n--) { skip(); skip(); }
	if (major == 6) skip();
}

// is tells whether a text is the word.
static int is(const u8 *at, u32 n, const char *word) {
	while (n && *word && *at == (u8)*word) at++, word++, n--;
	return !n && !*word;
}

typedef struct { const u8 *at; u32 len; } text;

static text string(void) {
	text t;
	t.len = value(3);
	t.at = bytes(t.len);
	return t;
}

static int same(text a, text b) {
	if (a.len != b.len) return 0;
	for (u32 i = 0; i < a.len; i++) if (a.at[i] != b.at[i]) return 0;
	return 1;
}

typedef struct { const u8 *at; u32 len, width; } column;

static column typed(void) {
	column c;
	c.width = value(6) == 69 ? 2 : 4;
	u32 n = value(2);
	c.at = bytes(n);
	c.len = n / c.width;
	return c;
}

static u32 element(column c, u32 i) {
	const u8 *at = c.at + i * c.width;
	if (c.width == 4) return ((const struct { u32 v; } __attribute__((packed)) *)at)->v;
	u32 v = ((const struct { u16 v; } __attribute__((packed)) *)at)->v;
	return v == 0xffff ? NONE : v;
}

// busy, waiting and pinned shards, unsorted: most inputs have none.
static const u8 *busyAt, *pinnedAt;
static u32 nBusy, nPinned;
static column waiting;

static int kept(const u8 *at, u32 n, u32 shard) {
	const u8 *back = p;
	int found = 0;
	for (p = at; n && !found; n--) {
		value(4);
		found = value(0) == shard;
		skip();
	}
	p = back;
	return found;
}

static int movable(u32 shard) {
	for (u32 i = 0; i < waiting.len; i++) if (element(waiting, i) == shard) return 0;
	return !kept(busyAt, nBusy, shard) && !kept(pinnedAt, nPinned, shard);
}

static u8 *put(u8 *w, u8 major, u32 n) {
	major <<= 5;
	if (n < 24) { *w++ = major | n; return w; }
	if (n < 256) { *w++ = major | 24; *w++ = n; return w; }
	if (n < 65536) { *w++ = major | 25; *w++ = n >> 8; *w++ = n; return w; }
	*w++ = major | 26; *w++ = n >> 24; *w++ = n >> 16; *w++ = n >> 8; *w++ = n;
	return w;
}

static u64 answer(u8 *upTo) { return (u64)(u32)out << 32 | (u32)(upTo - out); }

static u8 *word(u8 *w, const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	w = put(w, 3, n);
	while (*s) *w++ = *s++;
	return w;
}

EXPORT("drover_allocate") u64 allocate(u32 ptr, u32 len) {
	return answer(word(word(put(out, 5, 1), "error"), "this strategy only rebalances"));
}

static u32 emptiest(u32 nodes) {
	u32 best = NONE;
	for (u32 i = 0; i < nodes; i++)
		if (candidate[i] && (best == NONE || counts[i] < counts[best])) best = i;
	return best;
}

// find fills lowest with the first shards of each node that may move, as many as its quota, and uses the quota up.
static void find(column owners, u32 nodes, u32 *found) {
	u32 wanted = 0;
	for (u32 i = 0; i < nodes; i++) wanted += quota[i], found[i] = 0;
	for (u32 s = 0; s < owners.len && wanted; s++) {
		u32 o = element(owners, s);
		if (o >= nodes || found[o] == quota[o] || !movable(s)) continue;
		lowest[o][found[o]++] = s;
		wanted--;
	}
}

static u8 *move(u8 *w, u32 shard, u32 target) { return put(put(put(w, 4, 2), 0, shard), 0, target); }

EXPORT("drover_rebalance") u64 rebalance(u32 ptr, u32 len) {
	static u32 found[MAX_NODES];
	u8 moves[128], *w = moves;
	u32 nodes = 0, limit = MAX_MOVES, moved = 0, nCandidates = 0, homed = 0, mixed = 0;
	static text version[MAX_NODES];
	column owners = {0};
	// The image holds what the warm-up left behind.
	nBusy = nPinned = waiting.len = 0;
	for (u32 i = 0; i < MAX_NODES; i++) counts[i] = 0, candidate[i] = 0;
	p = (const u8 *)ptr, end = p + len;
	for (u32 keys = value(5); keys; keys--) {
		text key = string();
		if (is(key.at, key.len, "nodes")) {
			nodes = value(4);
			if (nodes > MAX_NODES) __builtin_trap();
			for (u32 i = 0; i < nodes; i++)
				for (u32 fields = value(5); fields; fields--) {
					text field = string();
					if (is(field.at, field.len, "version")) version[i] = string();
					else skip();
				}
		} else if (is(key.at, key.len, "owners")) {
			owners = typed();
		} else if (is(key.at, key.len, "waiting")) {
			waiting = typed();
		} else if (is(key.at, key.len, "busy")) {
			nBusy = value(4), busyAt = p;
			for (u32 i = 0; i < nBusy; i++) skip();
		} else if (is(key.at, key.len, "pinned")) {
			nPinned = value(4), pinnedAt = p;
			for (u32 i = 0; i < nPinned; i++) skip();
		} else if (is(key.at, key.len, "limits")) {
			for (u32 n = value(5); n; n--) {
				text field = string();
				if (is(field.at, field.len, "moves")) {
					u32 most = value(0);
					if (most < limit) limit = most;
				} else skip();
			}
		} else if (is(key.at, key.len, "candidates")) {
			nCandidates = value(4);
			for (u32 i = 0; i < nCandidates; i++) {
				u32 c = value(0);
				if (c >= nodes) __builtin_trap();
				candidate[c] = 1;
			}
		} else skip();
	}
	if (owners.width == 2) {
		const u8 *at = owners.at, *to = at + 2 * owners.len;
		for (; to - at >= 8; at += 8) { // four at a time
			u64 v = ((const struct { u64 v; } __attribute__((packed)) *)at)->v;
			u32 a = v & 0xffff, b = v >> 16 & 0xffff, c = v >> 32 & 0xffff, d = v >> 48;
			counts[a < nodes ? a : MAX_NODES]++;
			counts[b < nodes ? b : MAX_NODES]++;
			counts[c < nodes ? c : MAX_NODES]++;
			counts[d < nodes ? d : MAX_NODES]++;
		}
		for (; at < to; at += 2) {
			u32 o = ((const struct { u16 v; } __attribute__((packed)) *)at)->v;
			if (o < nodes) counts[o]++;
		}
	}
	else
		for (u32 i = 0; i < owners.len; i++) {
			u32 o = element(owners, i);
			if (o < nodes) counts[o]++;
		}
	// A shard in handoff counts at its target.
	p = busyAt;
	for (u32 i = 0; i < nBusy; i++) {
		value(4);
		u32 shard = value(0);
		if (p < end && *p == 0xf6) { p++; continue; }
		u32 target = value(0), owner = shard < owners.len ? element(owners, shard) : NONE;
		if (target >= nodes) __builtin_trap();
		if (owner < nodes) counts[owner]--;
		counts[target]++;
	}
	for (u32 i = 0; i < nodes; i++) homed += counts[i];
	// One that waits for a node that is away has no home.
	for (u32 i = 0; i < waiting.len; i++) {
		u32 shard = element(waiting, i), owner = shard < owners.len ? element(owners, shard) : NONE;
		if (owner < nodes && !candidate[owner] && !kept(busyAt, nBusy, shard)) counts[owner]--, homed--;
	}
	u32 first = emptiest(nodes), most = 0;
	if (first == NONE) goto done;
	for (u32 i = 0; i < nodes; i++) {
		if (!candidate[i]) continue;
		mixed |= !same(version[i], version[first]);
		if (counts[i] > most) most = counts[i];
	}
	u32 ceiling = (homed + nCandidates - 1) / nCandidates;
	if (mixed || most - counts[first] < 2 || most < ceiling) goto done;
	// Shed what is above the ceiling, fullest first.
	u32 n = 0;
	for (u32 i = 0; i < nodes; i++) {
		quota[i] = 0;
		if (!candidate[i] || counts[i] <= ceiling) continue;
		quota[i] = counts[i] - ceiling < limit ? counts[i] - ceiling : limit;
		u32 at = n++;
		for (; at && counts[sources[at - 1]] < counts[i]; at--) sources[at] = sources[at - 1];
		sources[at] = i;
	}
	if (n) {
		for (u32 i = 0; i < n; i++) candidate[sources[i]] = 0; // no targets
		find(owners, nodes, found);
		for (u32 i = 0; i < n; i++)
			for (u32 k = 0; k < found[sources[i]] && moved < limit; k++) {
				u32 target = emptiest(nodes);
				w = move(w, lowest[sources[i]][k], target), moved++, counts[target]++;
			}
		for (u32 i = 0; i < n; i++) candidate[sources[i]] = 1;
	}
	if (!moved) { // single shards, from the fullest that have one to give
		u32 fullest = 0;
		for (u32 i = 0; i < nodes; i++) quota[i] = candidate[i];
		find(owners, nodes, found);
		for (u32 i = 0; i < nodes; i++) if (found[i] && counts[i] > fullest) fullest = counts[i];
		for (u32 i = 0; i < nodes && moved < limit; i++) {
			if (!found[i] || counts[i] != fullest) continue;
			u32 target = emptiest(nodes);
			if (counts[i] < counts[target] + 2) break;
			w = move(w, lowest[i][0], target), moved++, counts[target]++;
		}
	}
done:;
	u8 *o = put(word(put(out, 5, 1), "moves"), 4, moved);
	for (const u8 *m = moves; m < w; m++) *o++ = *m;
	return answer(o);
}
