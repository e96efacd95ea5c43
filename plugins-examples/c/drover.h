// drover.h: strategies in C. One header, no libc; contract version 1 (pluginapi/strategy.cddl).
//
// Include it once, in the one source file of the module, and define what is declared under "The strategy" below. The header exports what the
// host calls: it reads the input, checks it, asks the strategy and writes the answer. What it hands out is in range: an owner, candidate or target is
// DROVER_NONE or an index into the nodes, a shard is below the number of shards. Texts are parts of the input and not checked to be UTF-8.
//
// An input that is not of the contract is answered with an error that names the key. Unknown keys may hold any well-formed CBOR; at most 32 arrays, maps
// or strings of indefinite length may be open at once. Memory is handed out by drover_alloc and is all free again at the next call: no state survives a call.
#ifndef DROVER_H
#define DROVER_H

typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;

#define DROVER_NONE 0xffffffffu     // no owner, no target; a load figure of 32 bits that is not known
#define DROVER_FREE 0xfffffffeu     // of drover_kept: the strategy may choose
#define DROVER_UNKNOWN (~(u64)0)    // a load figure of 64 bits that is not known
#define DROVER_EXPORT(name) __attribute__((export_name(name)))
#define DROVER_API static __attribute__((unused))
#define DROVER_CALL static __attribute__((noinline, unused)) // called from many places: inlined, they make the module three times as large

// A part of the input.
typedef struct { const u8 *at; u32 len; } drover_text;

// Numbers of 2, 4 or 8 bytes, little-endian, as they lie in the input: a typed array of RFC 8746. at is 0 where the input has none.
typedef struct { const u8 *at; u32 count, width; } drover_column;

// A value of the input that is read when it is asked for.
typedef struct { const u8 *at, *end; } drover_value;

typedef enum { DROVER_OTHER_STATE, DROVER_UP, DROVER_JOINING, DROVER_LEAVING, DROVER_DRAINING, DROVER_UNREACHABLE, DROVER_AWAY } drover_state;

typedef struct {
	drover_text name, addr, incarnation, version, zone; // zone: empty where not told
	drover_state state;
	u64 weight;                                         // capacity, 100 = one unit
	drover_value roles, tags;                           // see drover_has_role, drover_tag
	drover_column coord;                                // float64: vector, error, adjustment, height; see drover_float
	struct { u64 cpu, mem, entities, rate, depth, disk, diskfree, read, write; } load; // DROVER_UNKNOWN where not told
} drover_node;

typedef struct { u32 shard, node; } drover_pair; // node: DROVER_NONE where not known

typedef struct {
	drover_text type;
	u64 revision, now, seed;
	const drover_node *nodes; // sorted by name, bytewise
	u32 node_count;
	const u32 *candidates;    // nodes that may get shards, ascending
	u32 candidate_count;
	drover_column owners;     // one a shard: owners.count is the number of shards
	const drover_pair *busy;  // shards in handoff, and their targets
	u32 busy_count;
	const drover_pair *pinned;
	u32 pinned_count;
	drover_column waiting;    // shards whose state is on a node that is away
	drover_column standby;    // as owners: who holds the in-sync copy
	struct { drover_column entities, rate, bytes; } load; // one a shard
	u64 max_moves;            // most moves that the host will take
	drover_value config;      // see drover_config_uint and its like
	drover_column shards;     // of allocate: those that need a home
} drover_snapshot;

// A key of the configuration. type is "uint", "bool" (whose default is 0 or 1 in number) or "string" (whose default is text).
typedef struct { const char *key, *type, *help; u64 number; const char *text; } drover_config_key;
typedef struct { const char *name, *version, *summary; const drover_config_key *config; u32 config_count; } drover_description;

typedef struct drover_plan drover_plan;

// ---- The strategy: what the including file defines. Each function returns 0, or says why it could not decide.

static const drover_description strategy_description;
// configure refuses a configuration that is no good, when the strategy is loaded.
static const char *strategy_configure(drover_value config);
// allocate sets homes[i] for the i-th of s->shards. They come as DROVER_NONE: left without a home.
static const char *strategy_allocate(const drover_snapshot *s, u32 *homes);
// rebalance calls drover_move for each move.
static const char *strategy_rebalance(const drover_snapshot *s, drover_plan *plan);

// ---- Memory, log, texts

__attribute__((import_module("drover"), import_name("log"))) void drover_host_log(int level, const void *text, u32 len);

enum { DROVER_DEBUG = -4, DROVER_INFO = 0, DROVER_WARN = 4, DROVER_ERROR = 8 };

DROVER_API u32 drover_len(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}

// drover_log writes to the node's log. It never changes a decision.
DROVER_API void drover_log(int level, const char *text) { drover_host_log(level, text, drover_len(text)); }

extern u8 __heap_base;
static u64 drover_used; // how far the memory is handed out

// drover_alloc gives size bytes for this call, aligned to 8, not cleared. Where there is no more memory it says so in the log and ends the call.
DROVER_API void *drover_alloc(u64 size) {
	const u64 page = 65536;
	u64 at = drover_used, have = (u64)__builtin_wasm_memory_size(0) * page;
	u64 upto = at + ((size + 7) & ~(u64)7);
	if (upto > have && __builtin_wasm_memory_grow(0, (u32)((upto - have + page - 1) / page)) == (u32)-1) {
		drover_log(DROVER_ERROR, "out of memory: raise the memory limit of the type in node.toml");
		__builtin_trap();
	}
	drover_used = upto;
	return (void *)(u32)at;
}

DROVER_EXPORT("drover_abi_v1") void drover_abi_v1(void) {}

DROVER_EXPORT("drover_buffer") u32 drover_buffer(u32 size) {
	drover_used = ((u64)(u32)&__heap_base + 7) & ~(u64)7;
	return (u32)drover_alloc(size);
}

DROVER_API int drover_same(drover_text a, drover_text b) {
	if (a.len != b.len) return 0;
	for (u32 i = 0; i < a.len; i++)
		if (a.at[i] != b.at[i]) return 0;
	return 1;
}

DROVER_CALL int drover_is(drover_text t, const char *word) {
	u32 i = 0;
	for (; i < t.len && word[i]; i++)
		if (t.at[i] != (u8)word[i]) return 0;
	return i == t.len && !word[i];
}

// drover_say puts texts together, as many as fit. What it returns stays until it is called again.
#define drover_say(...) drover_join((const char *const[]){__VA_ARGS__, 0})
DROVER_API const char *drover_join(const char *const *parts) {
	static char said[240];
	u32 n = 0;
	for (; *parts; parts++)
		for (const char *p = *parts; *p && n + 1 < sizeof said; p++) said[n++] = *p;
	said[n] = 0;
	return said;
}

// ---- Columns

// drover_at returns the i-th number of a column of 2 or 4 bytes, DROVER_NONE for all bits set. i must be below count.
DROVER_API u32 drover_at(drover_column c, u32 i) {
	if (c.width == 4) return ((const struct { u32 v; } __attribute__((packed)) *)c.at)[i].v;
	u32 v = ((const struct { u16 v; } __attribute__((packed)) *)c.at)[i].v;
	return v == 0xffff ? DROVER_NONE : v;
}

// drover_wide returns the i-th number of a column of 8 bytes.
DROVER_API u64 drover_wide(drover_column c, u32 i) { return ((const struct { u64 v; } __attribute__((packed)) *)c.at)[i].v; }

DROVER_API double drover_float(drover_column c, u32 i) {
	union { u64 bits; double number; } u = {drover_wide(c, i)};
	return u.number;
}

// ---- Reader. After an error it stands at the end and every read gives 0.

enum { DROVER_UINT, DROVER_NEGATIVE, DROVER_BYTES, DROVER_STRING, DROVER_ARRAY, DROVER_MAP, DROVER_TAG, DROVER_SIMPLE };
enum { DROVER_FALSE = 0xf4, DROVER_TRUE = 0xf5, DROVER_NULL = 0xf6, DROVER_BREAK = 0xff };

typedef struct { const u8 *at, *end; const char *error; } drover_reader;
typedef struct { u32 left; int indefinite; } drover_items;

DROVER_API u64 drover_fail(drover_reader *r, const char *error) {
	if (!r->error) r->error = error;
	r->at = r->end;
	return 0;
}

DROVER_API u32 drover_left(const drover_reader *r) { return (u32)(r->end - r->at); }
DROVER_API int drover_next_is(const drover_reader *r, u8 byte) { return r->at < r->end && *r->at == byte; }

// drover_head reads an initial byte and its argument. Of what has no length, and of a break, indefinite is set.
DROVER_API u64 drover_head(drover_reader *r, u8 *major, int *indefinite) {
	*major = DROVER_SIMPLE, *indefinite = 0;
	if (r->at >= r->end) return drover_fail(r, "the input ends where a value should be");
	u8 info = *r->at & 31;
	*major = *r->at++ >> 5;
	if (info < 24) return info;
	if (info == 31 && *major >= DROVER_BYTES && *major != DROVER_TAG) return *indefinite = 1, 0;
	if (info > 27) return drover_fail(r, "not well-formed CBOR");
	u32 width = 1u << (info - 24);
	if (drover_left(r) < width) return drover_fail(r, "the input ends inside a value");
	u64 n = 0;
	while (width--) n = n << 8 | *r->at++;
	if (*major == DROVER_SIMPLE && info == 24 && n < 32) return drover_fail(r, "not well-formed CBOR");
	return n;
}

DROVER_CALL u64 drover_uint(drover_reader *r) {
	u8 major;
	int indefinite;
	u64 n = drover_head(r, &major, &indefinite);
	return major == DROVER_UINT ? n : drover_fail(r, "want an unsigned integer");
}

// drover_index reads an unsigned integer; one that is too large for 32 bits is DROVER_NONE, which no range has.
DROVER_API u32 drover_index(drover_reader *r) {
	u64 n = drover_uint(r);
	return n > DROVER_NONE ? DROVER_NONE : (u32)n;
}

DROVER_CALL drover_text drover_string(drover_reader *r, u8 want) {
	u8 major;
	int indefinite;
	u64 n = drover_head(r, &major, &indefinite);
	drover_text t = {r->at, 0};
	if (major != want) drover_fail(r, want == DROVER_BYTES ? "want a byte string" : "want text");
	else if (indefinite) drover_fail(r, "want a string of definite length");
	else if (n > drover_left(r)) drover_fail(r, "the input ends inside a string");
	else t.len = (u32)n, r->at += n;
	return t;
}

DROVER_CALL drover_items drover_open(drover_reader *r, u8 want) {
	u8 major;
	drover_items it = {0, 0};
	u64 n = drover_head(r, &major, &it.indefinite);
	if (major != want) drover_fail(r, want == DROVER_MAP ? "want a map" : "want an array");
	else if (n > drover_left(r)) drover_fail(r, "the input ends inside an array or map"); // each takes a byte at least
	else it.left = (u32)n;
	return it;
}

// drover_next tells whether another element follows.
DROVER_API int drover_next(drover_reader *r, drover_items *it) {
	if (r->error) return 0;
	if (!it->indefinite) return it->left && it->left--;
	if (!drover_next_is(r, DROVER_BREAK)) return 1; // at the end of the input the element's own read fails
	r->at++;
	return 0;
}

// drover_skip passes over one value of any kind. It does not recurse: of what has a length the elements are counted, whatever they are in.
DROVER_CALL void drover_skip(drover_reader *r) {
	struct { u64 outer; u8 major, odd; } open[32];
	u32 depth = 0;
	u64 left = 1;
	while (!r->error) {
		if (!left) {
			if (!depth) return;
			if (drover_next_is(r, DROVER_BREAK)) {
				r->at++, depth--;
				if (open[depth].odd) drover_fail(r, "a key without a value");
				left = open[depth].outer;
				continue;
			}
			left = 1;
			if (open[depth - 1].major == DROVER_MAP) open[depth - 1].odd ^= 1;
		}
		u8 major, in = depth ? open[depth - 1].major : DROVER_ARRAY;
		int indefinite;
		u64 n = drover_head(r, &major, &indefinite);
		left--;
		if (r->error) return;
		if (in < DROVER_ARRAY && (major != in || indefinite)) drover_fail(r, "not well-formed CBOR"); // a string is made of its like
		else if (major == DROVER_SIMPLE && indefinite) drover_fail(r, "a break without an open array or map");
		else if (indefinite) {
			if (depth == sizeof open / sizeof *open) { drover_fail(r, "nested too deep"); return; }
			open[depth].outer = left, open[depth].major = major, open[depth].odd = 0, depth++, left = 0;
		} else if (major == DROVER_BYTES || major == DROVER_STRING) {
			if (n > drover_left(r)) drover_fail(r, "the input ends inside a string");
			else r->at += n;
		} else if (major == DROVER_ARRAY || major == DROVER_MAP) {
			if (n > drover_left(r)) drover_fail(r, "the input ends inside an array or map");
			else left += major == DROVER_MAP ? 2 * n : n;
		} else if (major == DROVER_TAG) left++;
		if (left > drover_left(r)) drover_fail(r, "the input ends inside an array or map");
	}
}

DROVER_API drover_value drover_raw(drover_reader *r) {
	drover_value v = {r->at, r->at};
	drover_skip(r);
	v.end = r->error ? v.at : r->at;
	return v;
}

// drover_typed reads a typed array of one of two kinds.
DROVER_CALL drover_column drover_typed(drover_reader *r, u64 tag, u64 other) {
	u8 major;
	int indefinite;
	u64 n = drover_head(r, &major, &indefinite);
	drover_column c = {0, 0, n == 69 ? 2 : n == 70 ? 4 : 8};
	if (major != DROVER_TAG || (n != tag && n != other)) return drover_fail(r, "want a typed array"), c;
	drover_text t = drover_string(r, DROVER_BYTES);
	if (t.len % c.width) drover_fail(r, "the length of a typed array is no multiple of its element's");
	c.at = t.at, c.count = t.len / c.width;
	return c;
}

// drover_once fails where a key comes twice: which of two values counts would be up to the reader.
DROVER_API void drover_once(drover_reader *r, u32 *got, u32 bit) {
	if (*got & bit) drover_fail(r, "the key comes twice");
	*got |= bit;
}

// ---- Roles, tags, configuration

DROVER_API int drover_has_role(const drover_node *n, const char *role) {
	drover_reader r = {n->roles.at, n->roles.end, 0};
	drover_items it = drover_open(&r, DROVER_ARRAY);
	while (drover_next(&r, &it))
		if (drover_is(drover_string(&r, DROVER_STRING), role) && !r.error) return 1;
	return 0;
}

// drover_find stands r at the value of a key of a map; false where there is none.
DROVER_API int drover_find(drover_reader *r, drover_value map, const char *key) {
	*r = (drover_reader){map.at, map.end, 0};
	if (map.at == map.end) return 0;
	drover_items it = drover_open(r, DROVER_MAP);
	while (drover_next(r, &it)) {
		if (drover_is(drover_string(r, DROVER_STRING), key) && !r->error) return 1;
		drover_skip(r);
	}
	return 0;
}

DROVER_API int drover_tag(const drover_node *n, const char *key, drover_text *value) {
	drover_reader r;
	if (!drover_find(&r, n->tags, key)) return 0;
	*value = drover_string(&r, DROVER_STRING);
	return !r.error;
}

// drover_config_uint sets *value to a whole number of at least 0 of the configuration, or to def where the key is missing. It returns 0, or what is wrong.
DROVER_API const char *drover_config_uint(drover_value config, const char *key, u64 def, u64 *value) {
	drover_reader r;
	*value = def;
	if (drover_find(&r, config, key)) *value = drover_uint(&r);
	return r.error ? drover_say("config.", key, ": want a whole number of at least 0") : 0;
}

DROVER_API const char *drover_config_bool(drover_value config, const char *key, int def, int *value) {
	drover_reader r;
	*value = def;
	if (!drover_find(&r, config, key)) return r.error;
	*value = drover_next_is(&r, DROVER_TRUE);
	return *value || drover_next_is(&r, DROVER_FALSE) ? 0 : drover_say("config.", key, ": want true or false");
}

DROVER_API const char *drover_config_text(drover_value config, const char *key, const char *def, drover_text *value) {
	drover_reader r;
	*value = (drover_text){(const u8 *)def, drover_len(def)};
	if (drover_find(&r, config, key)) *value = drover_string(&r, DROVER_STRING);
	return r.error ? drover_say("config.", key, ": want text") : 0;
}

// ---- The input

// key and field name what is read, for errors.
typedef struct { drover_reader r; const char *key, *field; } drover_input;

static void drover_read_node_load(drover_reader *r, drover_node *n) {
	const struct { const char *key; u64 *value; } figures[] = {
		{"cpu", &n->load.cpu}, {"mem", &n->load.mem}, {"entities", &n->load.entities}, {"rate", &n->load.rate}, {"depth", &n->load.depth},
		{"disk", &n->load.disk}, {"diskfree", &n->load.diskfree}, {"read", &n->load.read}, {"write", &n->load.write}};
	u32 got = 0;
	drover_items it = drover_open(r, DROVER_MAP);
	while (drover_next(r, &it)) {
		drover_text key = drover_string(r, DROVER_STRING);
		u32 i = 0;
		while (i < 9 && !drover_is(key, figures[i].key)) i++;
		if (i == 9) { drover_skip(r); continue; }
		drover_once(r, &got, 1u << i);
		*figures[i].value = drover_uint(r);
	}
}

static drover_state drover_read_state(drover_reader *r) {
	static const char *const names[] = {"", "up", "joining", "leaving", "draining", "unreachable", "away"};
	drover_text t = drover_string(r, DROVER_STRING);
	for (u32 i = 1; i < sizeof names / sizeof *names; i++)
		if (drover_is(t, names[i])) return (drover_state)i;
	return DROVER_OTHER_STATE; // a later host may know more
}

// drover_texts reads a list or map of texts, and keeps where it is.
static drover_value drover_texts(drover_reader *r, u8 major) {
	drover_value v = {r->at, r->at};
	drover_items it = drover_open(r, major);
	while (drover_next(r, &it)) {
		drover_string(r, DROVER_STRING);
		if (major == DROVER_MAP) drover_string(r, DROVER_STRING);
	}
	if (!r->error) v.end = r->at;
	return v;
}

DROVER_CALL void drover_read_node(drover_input *in, drover_node *n) {
	static const char *const keys[] = {"name", "addr", "incarnation", "state", "roles", "version", "weight", "zone", "tags", "coord", "load"};
	enum { KEYS = sizeof keys / sizeof *keys, REQUIRED = 7 };
	drover_reader *r = &in->r;
	u32 got = 0;
	*n = (drover_node){0};
	n->load.cpu = n->load.mem = n->load.entities = n->load.rate = n->load.depth = n->load.disk = n->load.diskfree = n->load.read = n->load.write = DROVER_UNKNOWN;
	drover_items it = drover_open(r, DROVER_MAP);
	while (drover_next(r, &it)) {
		drover_text key = drover_string(r, DROVER_STRING);
		u32 i = 0;
		while (i < KEYS && !drover_is(key, keys[i])) i++;
		in->field = i < KEYS ? keys[i] : "";
		if (i < KEYS) drover_once(r, &got, 1u << i);
		switch (i) {
		case 0: n->name = drover_string(r, DROVER_STRING); break;
		case 1: n->addr = drover_string(r, DROVER_STRING); break;
		case 2: n->incarnation = drover_string(r, DROVER_STRING); break;
		case 3: n->state = drover_read_state(r); break;
		case 4: n->roles = drover_texts(r, DROVER_ARRAY); break;
		case 5: n->version = drover_string(r, DROVER_STRING); break;
		case 6: n->weight = drover_uint(r); break;
		case 7: n->zone = drover_string(r, DROVER_STRING); break;
		case 8: n->tags = drover_texts(r, DROVER_MAP); break;
		case 9:
			n->coord = drover_typed(r, 86, 86);
			if (n->coord.count < 4) drover_fail(r, "want a vector, error, adjustment and height");
			break;
		case 10: drover_read_node_load(r, n); break;
		default: drover_skip(r);
		}
	}
	for (u32 i = 0; i < REQUIRED && !r->error; i++)
		if (!(got & 1u << i)) in->field = keys[i], drover_fail(r, "the key is missing");
}

// drover_pairs reads a list of shard and node; a node may be null if or_null. What it allocates is as large as what is really there.
static const drover_pair *drover_pairs(drover_reader *r, u32 *count, int or_null) {
	drover_items list = drover_open(r, DROVER_ARRAY);
	drover_pair *first = drover_alloc(0);
	for (*count = 0; drover_next(r, &list); ++*count) {
		drover_items it = drover_open(r, DROVER_ARRAY);
		drover_pair *p = drover_alloc(sizeof *p);
		if (!drover_next(r, &it)) drover_fail(r, "want a shard and a node");
		p->shard = drover_index(r);
		if (!drover_next(r, &it)) drover_fail(r, "want a shard and a node");
		if (or_null && drover_next_is(r, DROVER_NULL)) r->at++, p->node = DROVER_NONE;
		else if ((p->node = drover_index(r)) == DROVER_NONE) drover_fail(r, "no such node");
		if (drover_next(r, &it)) drover_fail(r, "want a shard and a node");
	}
	return first;
}

static void drover_read_shard_load(drover_reader *r, drover_snapshot *s) {
	u32 got = 0;
	drover_items it = drover_open(r, DROVER_MAP);
	while (drover_next(r, &it)) {
		drover_text key = drover_string(r, DROVER_STRING);
		if (drover_is(key, "entities")) drover_once(r, &got, 1), s->load.entities = drover_typed(r, 70, 70);
		else if (drover_is(key, "rate")) drover_once(r, &got, 2), s->load.rate = drover_typed(r, 70, 70);
		else if (drover_is(key, "bytes")) drover_once(r, &got, 4), s->load.bytes = drover_typed(r, 71, 71);
		else drover_skip(r);
	}
}

// drover_below fails unless all numbers of a column are below limit; with or_none all bits set may be there too.
DROVER_CALL void drover_below(drover_input *in, const char *key, drover_column c, u32 limit, int or_none) {
	u32 wrong = 0;
	for (u32 i = 0; i < c.count; i++) {
		u32 v = drover_at(c, i);
		wrong |= v >= limit && !(or_none && v == DROVER_NONE);
	}
	if (wrong && !in->r.error) in->key = key, drover_fail(&in->r, "out of range");
}

static void drover_pairs_below(drover_input *in, const char *key, const drover_pair *p, u32 count, const drover_snapshot *s) {
	for (u32 i = 0; i < count && !in->r.error; i++)
		if (p[i].shard >= s->owners.count || (p[i].node >= s->node_count && p[i].node != DROVER_NONE))
			in->key = key, drover_fail(&in->r, "out of range");
}

static void drover_one_a_shard(drover_input *in, const char *key, drover_column c, const drover_snapshot *s) {
	if (c.at && c.count != s->owners.count && !in->r.error) in->key = key, drover_fail(&in->r, "want one a shard");
}

// drover_read reads an input into s, and returns 0 or what is wrong with it.
static const char *drover_read(drover_snapshot *s, u32 ptr, u32 len, int allocate) {
	static const char *const keys[] = {"v", "op", "now", "busy", "seed", "type", "nodes", "limits", "owners", "revision", "candidates",
		"shards", "waiting", "pinned", "standby", "load", "config"};
	enum { KEYS = sizeof keys / sizeof *keys, REQUIRED = 11 };
	drover_input in = {{(const u8 *)ptr, (const u8 *)ptr + len, 0}, "", ""};
	drover_reader *r = &in.r;
	u32 got = 0, required = REQUIRED + (u32)allocate; // "shards" too
	*s = (drover_snapshot){0};
	drover_items it = drover_open(r, DROVER_MAP);
	while (drover_next(r, &it)) {
		drover_text key = drover_string(r, DROVER_STRING);
		u32 i = 0;
		while (i < KEYS && !drover_is(key, keys[i])) i++;
		in.key = i < KEYS ? keys[i] : "", in.field = "";
		if (i < KEYS) drover_once(r, &got, 1u << i);
		drover_items list;
		switch (i) {
		case 0:
			if (drover_uint(r) != 1) drover_fail(r, "this contract version is not known here, only 1");
			break;
		case 1:
			if (!drover_is(drover_string(r, DROVER_STRING), allocate ? "allocate" : "rebalance")) drover_fail(r, "another operation than the one that was called");
			break;
		case 2: s->now = drover_uint(r); break;
		case 3: s->busy = drover_pairs(r, &s->busy_count, 1); break;
		case 4: s->seed = drover_uint(r); break;
		case 5: s->type = drover_string(r, DROVER_STRING); break;
		case 6: {
			drover_node *nodes = drover_alloc(0);
			list = drover_open(r, DROVER_ARRAY);
			for (; drover_next(r, &list); s->node_count++) drover_read_node(&in, drover_alloc(sizeof *nodes));
			s->nodes = nodes;
			break;
		}
		case 7: {
			u32 found = 0;
			list = drover_open(r, DROVER_MAP);
			while (drover_next(r, &list)) {
				if (!drover_is(drover_string(r, DROVER_STRING), "moves")) { drover_skip(r); continue; }
				in.field = "moves", drover_once(r, &found, 1);
				s->max_moves = drover_uint(r);
			}
			if (!found && !r->error) in.field = "moves", drover_fail(r, "the key is missing");
			break;
		}
		case 8: s->owners = drover_typed(r, 69, 70); break;
		case 9: s->revision = drover_uint(r); break;
		case 10: {
			// Ids are as many as bytes are there at most.
			list = drover_open(r, DROVER_ARRAY);
			u32 *ids = drover_alloc(0);
			for (; drover_next(r, &list); s->candidate_count++) {
				if (s->candidate_count % 2 == 0) drover_alloc(2 * sizeof *ids);
				ids[s->candidate_count] = drover_index(r);
			}
			s->candidates = ids;
			break;
		}
		case 11: s->shards = drover_typed(r, 70, 70); break;
		case 12: s->waiting = drover_typed(r, 70, 70); break;
		case 13: s->pinned = drover_pairs(r, &s->pinned_count, 0); break;
		case 14: s->standby = drover_typed(r, 69, 70); break;
		case 15: drover_read_shard_load(r, s); break;
		case 16: s->config = drover_raw(r); break;
		default: drover_skip(r);
		}
	}
	if (!r->error && r->at < r->end) in.key = in.field = "", drover_fail(r, "bytes follow the input");
	for (u32 i = 0; i < required && !r->error; i++)
		if (!(got & 1u << i)) in.key = keys[i], in.field = "", drover_fail(r, "the key is missing");
	if (!r->error) in.field = "";
	for (u32 i = 0; i < s->candidate_count && !r->error; i++)
		if (s->candidates[i] >= s->node_count || (i && s->candidates[i] <= s->candidates[i - 1]))
			in.key = "candidates", drover_fail(r, "out of range, not ascending, or there twice");
	if (!r->error) drover_below(&in, "owners", s->owners, s->node_count, 1);
	if (!r->error) drover_below(&in, "standby", s->standby, s->node_count, 1);
	if (!r->error) drover_below(&in, "waiting", s->waiting, s->owners.count, 0);
	if (!r->error) drover_below(&in, "shards", s->shards, s->owners.count, 0);
	drover_pairs_below(&in, "busy", s->busy, s->busy_count, s);
	drover_pairs_below(&in, "pinned", s->pinned, s->pinned_count, s);
	drover_one_a_shard(&in, "standby", s->standby, s);
	drover_one_a_shard(&in, "load.entities", s->load.entities, s);
	drover_one_a_shard(&in, "load.rate", s->load.rate, s);
	drover_one_a_shard(&in, "load.bytes", s->load.bytes, s);
	if (!r->error) return 0;
	return drover_say("input", *in.key ? ": " : "", in.key, *in.field ? "." : "", in.field, ": ", r->error);
}

// ---- Where the shards are

// A placement counts the shards of each node. A shard in handoff counts at its target, or at its owner where no target is known; one that waits for a
// node that is no candidate counts nowhere.
typedef struct {
	u32 *counts; // by node
	u32 homed;   // shards with a home, or on their way to one
	u8 *fixed;   // a shard that must not move: busy, waiting or pinned; 0 where none is
	u32 *kept;   // see drover_kept; 0 where there is none
} drover_placement;

static void drover_clear(void *at, u32 size) { __builtin_memset(at, 0, size); }

DROVER_API int drover_is_candidate(const drover_snapshot *s, u32 node) {
	for (u32 i = 0; i < s->candidate_count; i++)
		if (s->candidates[i] == node) return 1;
	return 0;
}

DROVER_API drover_placement drover_place(const drover_snapshot *s) {
	drover_placement p = {drover_alloc((s->node_count + 1) * sizeof(u32)), 0, 0, 0};
	u32 shards = s->owners.count, none = s->node_count;
	drover_clear(p.counts, (none + 1) * sizeof(u32));
	for (u32 i = 0; i < shards; i++) {
		u32 owner = drover_at(s->owners, i);
		p.counts[owner < none ? owner : none]++;
	}
	if (s->busy_count || s->waiting.count || s->pinned_count) p.fixed = drover_alloc(shards), drover_clear(p.fixed, shards);
	for (u32 i = 0; i < s->busy_count; i++) {
		drover_pair b = s->busy[i];
		u32 owner = drover_at(s->owners, b.shard);
		if (p.fixed[b.shard] || b.node == DROVER_NONE) { p.fixed[b.shard] = 1; continue; }
		p.fixed[b.shard] = 1;
		p.counts[owner < none ? owner : none]--;
		p.counts[b.node]++;
	}
	if (s->waiting.count || s->pinned_count) {
		p.kept = drover_alloc((u64)shards * sizeof(u32));
		for (u32 i = 0; i < shards; i++) p.kept[i] = DROVER_FREE;
	}
	for (u32 i = 0; i < s->pinned_count; i++)
		if (drover_is_candidate(s, s->pinned[i].node)) p.kept[s->pinned[i].shard] = s->pinned[i].node;
	for (u32 i = 0; i < s->waiting.count; i++) {
		u32 shard = drover_at(s->waiting, i), owner = drover_at(s->owners, shard);
		p.kept[shard] = DROVER_NONE;
		if (p.fixed[shard]) continue;
		p.fixed[shard] = 1;
		if (owner != DROVER_NONE && !drover_is_candidate(s, owner)) p.counts[owner]--;
	}
	for (u32 i = 0; i < s->pinned_count; i++) p.fixed[s->pinned[i].shard] = 1;
	for (u32 i = 0; i < s->node_count; i++) p.homed += p.counts[i];
	return p;
}

// drover_movable tells whether a rebalance may move the shard.
DROVER_API int drover_movable(const drover_placement *p, u32 shard) { return !p->fixed || !p->fixed[shard]; }

// drover_kept tells of a shard that needs a home whether that is not the strategy's to choose: one that waits is left without (DROVER_NONE), one that
// is pinned to a candidate goes there. Else it returns DROVER_FREE.
DROVER_API u32 drover_kept(const drover_placement *p, u32 shard) { return p->kept ? p->kept[shard] : DROVER_FREE; }

// drover_mixed tells whether candidates run different software versions: a rolling upgrade is under way, and nothing should move.
DROVER_API int drover_mixed(const drover_snapshot *s) {
	for (u32 i = 1; i < s->candidate_count; i++)
		if (!drover_same(s->nodes[s->candidates[i]].version, s->nodes[s->candidates[0]].version)) return 1;
	return 0;
}

// ---- The answer

typedef struct drover_moves {
	struct { u32 shard, target; const char *reason; } of[64];
	u32 count;
	struct drover_moves *next;
} drover_moves;

struct drover_plan {
	drover_moves *first, *last;
	u64 count, limit;
	const char *reason; // of the whole plan; 0 for none
};

// drover_move adds a move; a target of DROVER_NONE asks allocate once the shard is free, and reason, which has to stay, may be 0. It returns 0, and adds nothing, where the
// host would take no more.
DROVER_API int drover_move(drover_plan *plan, u32 shard, u32 target, const char *reason) {
	if (plan->count == plan->limit) return 0;
	if (!plan->last || plan->last->count == 64) {
		drover_moves *more = drover_alloc(sizeof *more);
		more->count = 0, more->next = 0;
		if (plan->last) plan->last->next = more;
		else plan->first = more;
		plan->last = more;
	}
	u32 i = plan->last->count++;
	plan->last->of[i].shard = shard, plan->last->of[i].target = target, plan->last->of[i].reason = reason;
	plan->count++;
	return 1;
}

DROVER_CALL u8 *drover_put(u8 *w, u8 major, u64 n) {
	u8 info = n < 24 ? (u8)n : n < 256 ? 24 : n < 65536 ? 25 : n <= DROVER_NONE ? 26 : 27;
	*w++ = (u8)(major << 5 | info);
	if (info < 24) return w;
	for (u32 width = 1u << (info - 24); width--;) *w++ = (u8)(n >> 8 * width);
	return w;
}

DROVER_CALL u8 *drover_put_text(u8 *w, const char *s) {
	w = drover_put(w, DROVER_STRING, drover_len(s));
	while (*s) *w++ = (u8)*s++;
	return w;
}

static u8 *drover_put_node(u8 *w, u32 node) {
	if (node != DROVER_NONE) return drover_put(w, DROVER_UINT, node);
	*w++ = DROVER_NULL;
	return w;
}

static u64 drover_answer(const u8 *from, const u8 *upto) { return (u64)(u32)from << 32 | (u32)(upto - from); }

// What a text and the heads around it take.
static u64 drover_room(const char *s) { return s ? drover_len(s) + 32 : 32; }

static u64 drover_failure(const char *error) {
	u8 *out = drover_alloc(drover_room(error));
	return drover_answer(out, drover_put_text(drover_put_text(drover_put(out, DROVER_MAP, 1), "error"), error));
}

DROVER_EXPORT("drover_allocate") u64 drover_allocate(u32 ptr, u32 len) {
	drover_snapshot s;
	const char *error = drover_read(&s, ptr, len, 1);
	if (error) return drover_failure(error);
	u32 n = s.shards.count, *homes = drover_alloc((u64)n * sizeof *homes);
	for (u32 i = 0; i < n; i++) homes[i] = DROVER_NONE;
	if ((error = strategy_allocate(&s, homes))) return drover_failure(error);
	u8 *out = drover_alloc(32 + 5 * (u64)n), *w = drover_put_text(drover_put(out, DROVER_MAP, 1), "homes");
	w = drover_put(w, DROVER_ARRAY, n);
	for (u32 i = 0; i < n; i++) w = drover_put_node(w, homes[i]);
	return drover_answer(out, w);
}

DROVER_EXPORT("drover_rebalance") u64 drover_rebalance(u32 ptr, u32 len) {
	drover_snapshot s;
	const char *error = drover_read(&s, ptr, len, 0);
	if (error) return drover_failure(error);
	drover_plan plan = {0, 0, 0, s.max_moves, 0};
	if ((error = strategy_rebalance(&s, &plan))) return drover_failure(error);
	u64 room = 64 + drover_room(plan.reason);
	for (drover_moves *m = plan.first; m; m = m->next)
		for (u32 i = 0; i < m->count; i++) room += drover_room(m->of[i].reason);
	u8 *out = drover_alloc(room), *w = drover_put_text(drover_put(out, DROVER_MAP, plan.reason ? 2 : 1), "moves");
	w = drover_put(w, DROVER_ARRAY, plan.count);
	for (drover_moves *m = plan.first; m; m = m->next)
		for (u32 i = 0; i < m->count; i++) {
			w = drover_put(drover_put(w, DROVER_ARRAY, m->of[i].reason ? 3 : 2), DROVER_UINT, m->of[i].shard);
			w = drover_put_node(w, m->of[i].target);
			if (m->of[i].reason) w = drover_put_text(w, m->of[i].reason);
		}
	if (plan.reason) w = drover_put_text(drover_put_text(w, "reason"), plan.reason);
	return drover_answer(out, w);
}

DROVER_EXPORT("drover_configure") u64 drover_configure(u32 ptr, u32 len) {
	drover_reader r = {(const u8 *)ptr, (const u8 *)ptr + len, 0};
	drover_value config = drover_raw(&r);
	if (!r.error && r.at < r.end) drover_fail(&r, "bytes follow the configuration");
	const char *error = r.error ? drover_say("config: ", r.error) : strategy_configure(config);
	if (error) return drover_failure(error);
	u8 *out = drover_alloc(1);
	return drover_answer(out, drover_put(out, DROVER_MAP, 0));
}

DROVER_EXPORT("drover_describe") u64 drover_describe(void) {
	const drover_description *d = &strategy_description;
	drover_buffer(0);
	u64 room = 64 + drover_room(d->name) + drover_room(d->version) + drover_room(d->summary);
	for (u32 i = 0; i < d->config_count; i++) {
		const drover_config_key *k = &d->config[i];
		room += 32 + drover_room(k->key) + drover_room(k->type) + drover_room(k->help) + drover_room(k->text);
	}
	u8 *out = drover_alloc(room), *w = drover_put_text(drover_put_text(drover_put(out, DROVER_MAP, 4), "name"), d->name);
	w = drover_put(drover_put_text(w, "config"), DROVER_MAP, d->config_count);
	for (u32 i = 0; i < d->config_count; i++) {
		const drover_config_key *k = &d->config[i];
		w = drover_put_text(drover_put_text(drover_put(drover_put_text(w, k->key), DROVER_MAP, 3), "help"), k->help);
		w = drover_put_text(drover_put_text(drover_put_text(w, "type"), k->type), "default");
		if (k->text) w = drover_put_text(w, k->text);
		else if (k->type[0] == 'b') *w++ = k->number ? DROVER_TRUE : DROVER_FALSE;
		else w = drover_put(w, DROVER_UINT, k->number);
	}
	w = drover_put_text(drover_put_text(w, "summary"), d->summary ? d->summary : "");
	return drover_answer(out, drover_put_text(drover_put_text(w, "version"), d->version));
}

#endif
