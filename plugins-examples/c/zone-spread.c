// zone-spread: shards are even over the zones first, and over the nodes of a zone then. A zone that fails takes no more than its share with it.
#include "drover.h"

enum { DEFAULT_MAX_MOVES = 3 };

static const drover_config_key keys[] = {{"max_moves", "uint", "most moves of one rebalance; 0 moves nothing", DEFAULT_MAX_MOVES, 0}};
static const drover_description strategy_description = {"zone-spread", "1", "Even over the zones first, then over the nodes of each.", keys, 1};

static const char *strategy_configure(drover_value config) {
	u64 max_moves;
	return drover_config_uint(config, "max_moves", DEFAULT_MAX_MOVES, &max_moves);
}

// Zones by number: the zone of a node is that of the first node with the same. Candidates alone count.
typedef struct { u32 *of_node, *shards; } zones;

static zones count(const drover_snapshot *s, const drover_placement *p) {
	zones z = {drover_alloc(s->node_count * sizeof(u32)), drover_alloc(s->node_count * sizeof(u32))};
	for (u32 i = 0; i < s->node_count; i++) {
		u32 first = 0;
		while (!drover_same(s->nodes[first].zone, s->nodes[i].zone)) first++;
		z.of_node[i] = first, z.shards[i] = 0;
	}
	for (u32 i = 0; i < s->candidate_count; i++) z.shards[z.of_node[s->candidates[i]]] += p->counts[s->candidates[i]];
	return z;
}

// emptiest gives the candidate with the fewest shards in the zone with the fewest; the first one of several.
static u32 emptiest(const drover_snapshot *s, const drover_placement *p, zones z) {
	u32 best = DROVER_NONE, zone = 0, in_zone = 0, on_node = 0;
	for (const u32 *c = s->candidates, *end = c + s->candidate_count; c < end; c++) {
		u32 its = z.of_node[*c], more = z.shards[its];
		if (best != DROVER_NONE && (its == zone ? p->counts[*c] >= on_node : more >= in_zone)) continue;
		best = *c, zone = its, in_zone = more, on_node = p->counts[*c];
	}
	return best;
}

static const char *strategy_allocate(const drover_snapshot *s, u32 *homes) {
	drover_placement p = drover_place(s);
	zones z = count(s, &p);
	for (u32 i = 0; i < s->shards.count; i++) {
		u32 shard = drover_at(s->shards, i);
		if ((homes[i] = drover_kept(&p, shard)) == DROVER_FREE) homes[i] = emptiest(s, &p, z);
		if (homes[i] != DROVER_NONE) p.counts[homes[i]]++, z.shards[z.of_node[homes[i]]]++;
	}
	return 0;
}

static const char *strategy_rebalance(const drover_snapshot *s, drover_plan *plan) {
	u64 max_moves;
	const char *error = drover_config_uint(s->config, "max_moves", DEFAULT_MAX_MOVES, &max_moves);
	if (error) return error;
	if (!s->candidate_count || drover_mixed(s)) {
		plan->reason = s->candidate_count ? "candidates run different versions" : "no candidates";
		return 0;
	}
	drover_placement p = drover_place(s);
	zones z = count(s, &p);
	// The shards of a node that may move, lowest first: first[node], then next[shard].
	u32 *first = drover_alloc(s->node_count * sizeof(u32)), *next = drover_alloc((u64)s->owners.count * sizeof(u32));
	for (u32 i = 0; i < s->node_count; i++) first[i] = DROVER_NONE;
	for (u32 shard = s->owners.count; shard--;) {
		u32 owner = drover_at(s->owners, shard);
		if (owner != DROVER_NONE && drover_movable(&p, shard)) next[shard] = first[owner], first[owner] = shard;
	}
	while (plan->count < max_moves) {
		u32 to = emptiest(s, &p, z), from = DROVER_NONE;
		// From the fullest node of the fullest zone that has a shard to give; where the zones are even, from the fullest node of the same zone.
		for (u32 i = 0; i < s->candidate_count; i++) {
			u32 c = s->candidates[i];
			int elsewhere = z.shards[z.of_node[c]] >= z.shards[z.of_node[to]] + 2;
			if (first[c] == DROVER_NONE || !elsewhere) continue;
			if (from == DROVER_NONE || z.shards[z.of_node[c]] > z.shards[z.of_node[from]] ||
				(z.of_node[c] == z.of_node[from] && p.counts[c] > p.counts[from])) from = c;
		}
		const char *reason = "evens the zones";
		for (u32 i = 0; i < s->candidate_count && from == DROVER_NONE; i++) { // within a zone
			u32 c = s->candidates[i];
			if (first[c] == DROVER_NONE) continue;
			for (u32 k = 0; k < s->candidate_count; k++) {
				u32 other = s->candidates[k];
				if (z.of_node[c] != z.of_node[other] || p.counts[c] < p.counts[other] + 2) continue;
				if (from == DROVER_NONE || p.counts[other] < p.counts[to]) from = c, to = other;
			}
			reason = "evens the nodes of a zone";
		}
		if (from == DROVER_NONE || !drover_move(plan, first[from], to, reason)) return 0;
		first[from] = next[first[from]];
		p.counts[from]--, z.shards[z.of_node[from]]--;
		p.counts[to]++, z.shards[z.of_node[to]]++;
	}
	return 0;
}
