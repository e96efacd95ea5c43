package scenario

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/internal/tomldoc"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
)

// inputKeys are those of an input of `drover strategy run` (spec 1.6), which mean the same here.
var inputKeys = []string{"nodes", "candidates", "owners", "busy", "waiting", "pinned", "standby", "load", "limits", "config",
	"type", "revision", "now", "seed"}

// clusterKeys are all that say what the cluster is.
var clusterKeys = slices.Concat(inputKeys, []string{"first", "counts", "shards", "all_on", "even", "random"})

// mostNodes bounds nodes that are given as a number, and mostShards the shards of a scenario.
const (
	mostNodes  = 10_000
	mostShards = 1_000_000
)

// world is what a scenario's nodes and shards are called.
type world struct {
	p      *parser
	t, top *table // top is nil for a scenario that has nothing in common with others
	first  uint32
	shards int             // how many there are
	nodes  []string        // as given
	known  map[string]bool // nodes that are there, or come in an event so far
	paths  map[string]string
}

func newWorld(p *parser, t, top *table) *world {
	return &world{p: p, t: t, top: top, known: map[string]bool{}, paths: map[string]string{}}
}

// overruled tells of the keys that say who owns what whether the scenario says something else in the place of the file's.
func (w *world) overruled(key string) bool {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { _, ok := w.t.m[k]; return ok })
	}
	switch key {
	case "owners", "counts", "shards":
		return has("owners", "counts", "shards")
	case "all_on", "even", "random":
		return has("owners", "counts", "all_on", "even", "random")
	}
	return false
}

// value returns what the scenario says under a key, or else the file.
func (w *world) value(key string) (any, bool) {
	if v, ok := w.t.m[key]; ok {
		w.paths[key] = w.t.child(key)
		return v, true
	}
	if w.top == nil || w.overruled(key) {
		return nil, false
	}
	v, ok := w.top.m[key]
	w.paths[key] = w.top.child(key)
	return v, ok
}

// cluster reads the cluster. What is wrong is reported; then the cluster is of no use.
func (w *world) cluster() *lab.Cluster {
	before := len(w.p.errs)
	if v, ok := w.value("first"); ok {
		if n, ok := w.p.number(w.paths["first"], v, 0, math.MaxUint32); ok {
			w.first = uint32(n)
		}
	}
	input := map[string]any{}
	for _, key := range inputKeys {
		if v, ok := w.value(key); ok && key != "owners" {
			input[key] = withNull(key, v)
		}
	}
	nodes, ok := w.nodeList()
	if !ok {
		return lab.NewCluster(0, 0)
	}
	input["nodes"] = nodes
	if input["owners"], ok = w.owners(); !ok {
		return lab.NewCluster(0, 0)
	}
	w.config(input)
	w.shardsFrom0(input)
	if len(w.p.errs) > before {
		return lab.NewCluster(0, 0)
	}
	file, err := snapshotfile.FromTree(input)
	if err != nil {
		var at *snapshotfile.Error
		if errors.As(err, &at) {
			w.p.fail(w.path(at.Path), "%s", at.Message)
		} else {
			w.p.fail(w.t.path, "%v", err)
		}
		return lab.NewCluster(0, 0)
	}
	return lab.FromSnapshot(&file.Snapshot)
}

// path turns the path of something in the input into its path in the file.
func (w *world) path(input string) string {
	key := input
	if i := strings.IndexAny(input, ".["); i >= 0 {
		key = input[:i]
	}
	if at, ok := w.paths[key]; ok {
		return at + input[len(key):]
	}
	return w.t.child(key)
}

// withNull puts null where a file has "", for which TOML has no word: a shard without a home, a target or a figure.
func withNull(key string, v any) any {
	list, isList := v.([]any)
	table, isTable := v.(map[string]any)
	switch {
	case isList && (key == "owners" || key == "standby" || key == "rate" || key == "entities" || key == "bytes"):
		out := slices.Clone(list)
		for i, e := range out {
			if e == "" {
				out[i] = nil
			}
		}
		return out
	case isList && key == "busy":
		out := slices.Clone(list)
		for i, e := range out {
			if pair, ok := e.([]any); ok && len(pair) == 2 && pair[1] == "" {
				out[i] = []any{pair[0], nil}
			}
		}
		return out
	case isTable && key == "load":
		out := maps.Clone(table)
		for column, figures := range out {
			out[column] = withNull(column, figures)
		}
		return out
	}
	return v
}

// nodeList returns the nodes as an input has them: those that say nothing of it run version 1, as those of lab.NewCluster.
func (w *world) nodeList() ([]any, bool) {
	v, ok := w.value("nodes")
	path := w.paths["nodes"]
	if !ok {
		w.p.fail(w.t.child("nodes"), "there are none: want a list of names or tables, or how many")
		return nil, false
	}
	list, isList := v.([]any)
	if !isList {
		if _, isNumber := v.(int64); !isNumber {
			w.p.fail(path, "want a list of names or tables, or how many, got %s", tomldoc.Describe(v))
			return nil, false
		}
		n, ok := w.p.number(path, v, 0, mostNodes)
		if !ok {
			return nil, false
		}
		for _, name := range lab.NewCluster(int(n), 0).Nodes() {
			list = append(list, name)
		}
	}
	out := make([]any, len(list))
	for i, e := range list {
		node := map[string]any{"name": e, "version": "1"}
		switch e := e.(type) {
		case string:
		case map[string]any:
			delete(node, "name")
			maps.Copy(node, e)
		default:
			w.p.fail(tomldoc.Index(path, i), "want a name or a table, got %s", tomldoc.Describe(e))
			return nil, false
		}
		name, _ := node["name"].(string)
		if _, given := node["incarnation"]; !given {
			node["incarnation"] = name
		}
		w.nodes, w.known[name] = append(w.nodes, name), true
		out[i] = node
	}
	return out, true
}

// owners returns a node's name, or null, for each shard.
func (w *world) owners() ([]any, bool) {
	owners, hasOwners := w.value("owners")
	counts, hasCounts := w.value("counts")
	shards, hasShards := w.value("shards")
	var given []string
	for key, has := range map[string]bool{"owners": hasOwners, "counts": hasCounts, "shards": hasShards} {
		if has {
			given = append(given, key)
		}
	}
	if len(given) != 1 {
		slices.Sort(given)
		w.p.fail(w.t.path, "want one of owners (a node for each shard), counts (shards a node) and shards (how many), got %s",
			cmp.Or(strings.Join(given, " and "), "none"))
		return nil, false
	}
	var out []any
	switch {
	case hasOwners:
		list, ok := w.p.list(w.paths["owners"], owners)
		if !ok {
			return nil, false
		}
		out = withNull("owners", list).([]any)
	case hasCounts:
		each, ok := w.countList(w.paths["counts"], counts)
		if !ok {
			return nil, false
		}
		for i, name := range w.nodes {
			out = append(out, slices.Repeat([]any{name}, each[i])...)
		}
	default:
		n, ok := w.p.number(w.paths["shards"], shards, 0, mostShards)
		if !ok {
			return nil, false
		}
		out = make([]any, n)
	}
	w.shards = len(out)
	return out, w.deal(out, hasShards)
}

// countList reads shards a node: a list in the order of nodes, or a table by name in which those left out have none.
func (w *world) countList(path string, v any) ([]int, bool) {
	counts, ok := w.countTable(path, v)
	each, sum := make([]int, len(w.nodes)), 0
	for i, name := range w.nodes {
		each[i] = counts[name]
		sum += each[i]
	}
	if sum > mostShards {
		w.p.fail(path, "%d shards: at most %d", sum, mostShards)
		ok = false
	}
	return each, ok
}

// countTable reads numbers by node: a list in the order of nodes, or a table by name.
func (w *world) countTable(path string, v any) (map[string]int, bool) {
	out := map[string]int{}
	switch v := v.(type) {
	case []any:
		if len(v) != len(w.nodes) {
			w.p.fail(path, "%d numbers for %d nodes", len(v), len(w.nodes))
			return nil, false
		}
		for i, e := range v {
			n, ok := w.p.number(tomldoc.Index(path, i), e, 0, mostShards)
			if !ok {
				return nil, false
			}
			out[w.nodes[i]] = int(n)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := tomldoc.Join(path, name)
			n, ok := w.p.number(at, v[name], 0, mostShards)
			if !ok || !w.isNode(at, name) {
				return nil, false
			}
			out[name] = int(n)
		}
	default:
		w.p.fail(path, "want a list of numbers in the order of nodes, or a table of numbers by name, got %s", tomldoc.Describe(v))
		return nil, false
	}
	return out, true
}

// deal gives shards their first home, where one of all_on, even and random says which.
func (w *world) deal(owners []any, byNumber bool) bool {
	var given []string
	for _, key := range []string{"all_on", "even", "random"} {
		if _, ok := w.value(key); ok {
			given = append(given, key)
		}
	}
	if len(given) == 0 {
		return true
	}
	key := given[0]
	v, _ := w.value(key)
	path := w.paths[key]
	switch {
	case len(given) > 1:
		w.p.fail(path, "want one of all_on, even and random, got %s", strings.Join(given, " and "))
		return false
	case !byNumber:
		w.p.fail(path, "it goes with shards = NUMBER: owners and counts say where shards are")
		return false
	}
	home := func(int) any { return nil }
	switch key {
	case "all_on":
		name, ok := w.p.text(path, v)
		if !ok || !w.isNode(path, name) {
			return false
		}
		home = func(int) any { return name }
	case "even":
		if v != true {
			w.p.fail(path, "want true, got %s", tomldoc.Describe(v))
			return false
		}
		home = func(i int) any { return w.nodes[i%len(w.nodes)] }
	case "random":
		seed, ok := w.p.number(path, v, 0, math.MaxInt64)
		if !ok {
			return false
		}
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		home = func(int) any { return w.nodes[r.IntN(len(w.nodes))] }
	}
	if len(w.nodes) == 0 {
		w.p.fail(path, "there are no nodes")
		return false
	}
	for i := range owners {
		owners[i] = home(i)
	}
	return true
}

// config lays the scenario's configuration over that of the file, key by key.
func (w *world) config(input map[string]any) {
	if w.top == nil {
		return
	}
	own, ok := w.t.m["config"].(map[string]any)
	common, both := w.top.m["config"].(map[string]any)
	if ok && both {
		merged := maps.Clone(common)
		maps.Copy(merged, own)
		input["config"] = merged
	}
}

// shardsFrom0 numbers the shards of lists as a snapshot does.
func (w *world) shardsFrom0(input map[string]any) {
	if v, ok := input["waiting"]; ok {
		if shards, ok := w.shardList(w.paths["waiting"], v); ok {
			list := make([]any, len(shards))
			for i, shard := range shards {
				list[i] = int64(shard)
			}
			input["waiting"] = list
		}
	}
	for _, key := range []string{"busy", "pinned"} {
		v, ok := input[key]
		if !ok {
			continue
		}
		list, ok := w.p.list(w.paths[key], v)
		if !ok {
			continue
		}
		list = slices.Clone(list)
		seen := map[uint32]bool{}
		for i, e := range list {
			at := tomldoc.Index(w.paths[key], i)
			pair, ok := e.([]any)
			if !ok || len(pair) != 2 {
				w.p.fail(at, "want a pair, [SHARD, NODE], got %s", tomldoc.Describe(e))
				continue
			}
			shard, ok := w.shard(tomldoc.Index(at, 0), pair[0])
			if !ok {
				continue
			}
			if seen[shard] {
				w.p.fail(at, "shard %d is there twice", shard+w.first)
			}
			seen[shard] = true
			if name, isText := pair[1].(string); isText && !w.isNode(tomldoc.Index(at, 1), name) {
				continue
			}
			list[i] = []any{int64(shard), pair[1]}
		}
		input[key] = list
	}
}

// shard reads the number of a shard, and returns it as a snapshot has it.
func (w *world) shard(path string, v any) (uint32, bool) {
	n, ok := w.p.number(path, v, math.MinInt64, math.MaxInt64)
	if !ok {
		return 0, false
	}
	if n < int64(w.first) || n >= int64(w.first)+int64(w.shards) {
		w.p.fail(path, "there is no shard %d: there are %d, from %d on", n, w.shards, w.first)
		return 0, false
	}
	return uint32(n - int64(w.first)), true
}

// shardList reads shards, none of which comes twice.
func (w *world) shardList(path string, v any) ([]uint32, bool) {
	list, ok := w.p.list(path, v)
	if !ok {
		return nil, false
	}
	out, seen := make([]uint32, len(list)), map[uint32]bool{}
	for i, e := range list {
		at := tomldoc.Index(path, i)
		if out[i], ok = w.shard(at, e); !ok {
			return nil, false
		}
		if seen[out[i]] {
			w.p.fail(at, "shard %d is there twice", out[i]+w.first)
			return nil, false
		}
		seen[out[i]] = true
	}
	return out, true
}

// isNode tells whether a node is there or has come in an event; one that has not is reported.
func (w *world) isNode(path, name string) bool {
	if w.known[name] {
		return true
	}
	names := slices.Sorted(maps.Keys(w.known))
	hint := tomldoc.DidYouMean(name, names)
	if hint == "" && len(names) <= 12 {
		hint = ": the nodes are " + strings.Join(names, ", ")
	}
	w.p.fail(path, "there is no node %s%s", tomldoc.QuoteText(name), hint)
	return false
}

// nodeNames reads a list of nodes that are there.
func (w *world) nodeNames(path string, v any) ([]string, bool) {
	list, ok := w.p.list(path, v)
	if !ok {
		return nil, false
	}
	out := make([]string, len(list))
	for i, e := range list {
		at := tomldoc.Index(path, i)
		if out[i], ok = w.p.text(at, e); !ok || !w.isNode(at, out[i]) {
			return nil, false
		}
	}
	return out, true
}
