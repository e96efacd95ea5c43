// oscillates takes a threshold of 1 literally: while the fullest candidate has one shard more than the emptiest, it moves one, for ever (spec 1.2).
//
// clang --target=wasm32 -O2 -mbulk-memory -nostdlib -fno-builtin -Wl,--no-entry -Wl,--stack-first -Wl,-z,stack-size=65536 \
//   -I ../../../../../plugins-examples/c -o oscillates.wasm oscillates.c
#include "drover.h"

static const drover_description strategy_description = {"oscillates", "1", "Moves a shard to and fro.", 0, 0};

static const char *strategy_configure(drover_value config) {
	(void)config;
	return 0;
}

static const char *strategy_allocate(const drover_snapshot *s, u32 *homes) {
	drover_placement p = drover_place(s);
	for (u32 i = 0; i < s->shards.count; i++) {
		u32 best = DROVER_NONE;
		if ((homes[i] = drover_kept(&p, drover_at(s->shards, i))) != DROVER_FREE) continue;
		for (u32 c = 0; c < s->candidate_count; c++)
			if (best == DROVER_NONE || p.counts[s->candidates[c]] < p.counts[best]) best = s->candidates[c];
		if ((homes[i] = best) != DROVER_NONE) p.counts[best]++;
	}
	return 0;
}

static const char *strategy_rebalance(const drover_snapshot *s, drover_plan *plan) {
	drover_placement p = drover_place(s);
	u32 from = DROVER_NONE, to = DROVER_NONE;
	for (u32 i = 0; i < s->candidate_count; i++) {
		u32 c = s->candidates[i];
		if (from == DROVER_NONE || p.counts[c] > p.counts[from]) from = c;
		if (to == DROVER_NONE || p.counts[c] < p.counts[to]) to = c;
	}
	if (from == DROVER_NONE || p.counts[from] - p.counts[to] < 1) return 0;
	for (u32 shard = 0; shard < s->owners.count; shard++)
		if (drover_at(s->owners, shard) == from && drover_movable(&p, shard)) {
			drover_move(plan, shard, to, "the fullest has more than the emptiest");
			break;
		}
	return 0;
}
