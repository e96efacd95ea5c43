package lab

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/hash"
)

// EventKind says what happens to a cluster.
type EventKind uint8

// The kinds of events.
const (
	Join        EventKind = iota + 1 // a node comes
	Leave                            // a node goes in good order: its shards find another home first
	Crash                            // a node is gone: its shards have no home
	Demand                           // shards have another rate of messages
	Drain                            // a node gives its shards away, and stays
	Unreachable                      // gossip does not reach a node: it keeps its shards, and gets none
	Away                             // a node is away with the state of its shards: they wait for it
	Up                               // a node is up again, and may get shards
	Weigh                            // a node has another capacity
	Upgrade                          // a node runs another version of the software
	Pin                              // the host keeps shards on a node, and brings them there
	Unpin                            // it does so no more
)

var eventNames = [...]string{
	Join: "join", Leave: "leave", Crash: "crash", Demand: "demand", Drain: "drain", Unreachable: "unreachable", Away: "away",
	Up: "up", Weigh: "weigh", Upgrade: "upgrade", Pin: "pin", Unpin: "unpin",
}

// EventKinds returns the names of the kinds.
func EventKinds() []string { return slices.Clone(eventNames[Join:]) }

// String returns the name of the kind.
func (k EventKind) String() string {
	if k >= Join && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// MarshalText implements encoding.TextMarshaler.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *EventKind) UnmarshalText(b []byte) error {
	i := slices.Index(eventNames[:], string(b))
	if i < int(Join) {
		return fmt.Errorf("event %q: want one of %s", b, strings.Join(EventKinds(), ", "))
	}
	*k = EventKind(i)
	return nil
}

// Event happens at the beginning of a round.
type Event struct {
	Round   int       `json:"round"` // from 1
	Kind    EventKind `json:"kind"`
	Node    string    `json:"node,omitempty"`    // of all but Demand and Unpin
	Zone    string    `json:"zone,omitempty"`    // of Join
	Weight  uint64    `json:"weight,omitempty"`  // of Join and Weigh, where 100 is one unit; for a node that joins 0 is 100
	Version string    `json:"version,omitempty"` // of Join and Upgrade; "" for a node that joins: what the others run, where that is one version
	Shards  []uint32  `json:"shards,omitempty"`  // of Demand, Pin and Unpin; none means all, but for Pin
	Rate    uint32    `json:"rate,omitempty"`    // of Demand: messages a second of each shard

	// Spec is of Join: what else there is to say of the node, such as roles, tags, coordinate and load. Its name is Node.
	Spec *pluginapi.Node `json:"-"`
}

// Options say how a simulation goes.
type Options struct {
	Rounds  int     // most rounds; 0 is 100
	Events  []Event // in any order
	Handoff int     // how many rounds a shard is busy when it moves; 0: it is there before the next round
	Quiet   int     // it ends once nothing has changed for so many rounds and no event is left; 0 is 3
}

// NodeShare is what one node has at the end of a round.
type NodeShare struct {
	Node      string `json:"node"`
	Shards    int    `json:"shards"` // those on their way to it too
	Rate      uint64 `json:"rate"`   // messages a second of its shards, as far as known
	Candidate bool   `json:"candidate"`
}

// Round is what happened in one round.
type Round struct {
	Number    int         `json:"round"` // from 1
	Events    []Event     `json:"events,omitempty"`
	Homes     []Home      `json:"homes,omitempty"` // given to shards without one, to those of leaving nodes, and by pins
	Moves     []Move      `json:"moves,omitempty"`
	Nodes     []NodeShare `json:"nodes"`     // by name
	Imbalance int         `json:"imbalance"` // shards of the fullest candidate less those of the emptiest
	Homeless  int         `json:"homeless"`  // shards that need a home and have none
	Fuel      int64       `json:"fuel"`      // of the round's calls; -1 where not known
	Failures  []string    `json:"failures,omitempty"`
}

// Cycle is a strategy that comes back to where it was, with nothing having happened to the cluster in between.
type Cycle struct {
	From   int `json:"from"`   // the round at whose end the cluster was so first; 0 is the beginning
	Length int `json:"length"` // in rounds
}

// Run is a simulation that has ended. Drawn as it is, it is the shards of each node over time.
type Run struct {
	Strategy string  `json:"strategy"`
	Rounds   []Round `json:"rounds"`
	// Settled is the last round in which anything changed, 0 if nothing ever did; -1 where changes went on to the end.
	Settled int    `json:"settled"`
	Cycle   *Cycle `json:"cycle"` // the first; nil for none
	Moves   int    `json:"moves"` // of rebalances
	Homes   int    `json:"homes"`

	End *Cluster `json:"-"` // the cluster after the last round
	// failed is the first answer that was a failure, and about what.
	failed   *Answer
	failedAt *Cluster
}

// Simulate plays a strategy on a copy of a cluster. Each round the events of the round happen, moves that are due are done,
// shards go where they are pinned, allocate is asked for the shards that need a home, and for those of draining and leaving
// nodes, and rebalance is asked for moves; time, revision and seed go on. What fails has the effect that it has in a node:
// no move, and homes by hash.
//
// A shard takes its share of its node's load figures along: in proportion to its rate, where the rates of all the node's
// shards are known, else as one of so many; cpu and mem are scaled by the nodes' weights.
//
// The error is about the cluster or the events, or the host's own trouble.
func Simulate(ctx context.Context, s *Strategy, c *Cluster, o Options) (*Run, error) {
	if o.Rounds == 0 {
		o.Rounds = 100
	}
	if o.Quiet == 0 {
		o.Quiet = 3
	}
	w := &world{s: s, o: o, c: c.Clone(), run: &Run{Strategy: s.Name()}, loose: map[uint32]map[string]float64{}, seen: map[[32]byte]int{}}
	for _, b := range w.c.s.Busy {
		w.due = append(w.due, handoff{shard: b.Shard, round: 1 + o.Handoff})
	}
	for _, n := range w.c.s.Nodes {
		if n.State == pluginapi.StateLeaving {
			w.leaving = append(w.leaving, n.Name)
		}
	}
	last := 0
	for _, e := range o.Events {
		if e.Round < 1 || e.Round > o.Rounds {
			return nil, fmt.Errorf("event %q in round %d: rounds are 1 to %d", e, e.Round, o.Rounds)
		}
		last = max(last, e.Round)
	}
	w.seen[w.key()] = 0
	for n := 1; n <= o.Rounds; n++ {
		if n > last && len(w.due) == 0 && n > w.run.Settled+o.Quiet {
			break
		}
		if err := w.round(ctx, n); err != nil {
			return nil, err
		}
	}
	w.run.End = w.c
	if len(w.run.Rounds) < w.run.Settled+o.Quiet || len(w.due) > 0 {
		w.run.Settled = -1
	}
	return w.run, nil
}

// handoff is a busy shard, and the round at whose beginning it arrives.
type handoff struct {
	shard uint32
	round int
}

type world struct {
	s       *Strategy
	o       Options
	c       *Cluster
	run     *Run
	due     []handoff
	leaving []string
	loose   map[uint32]map[string]float64 // the load of shards that have left a node for none yet
	seen    map[[32]byte]int              // arrangements since the last event, and the round of each
}

func (w *world) round(ctx context.Context, n int) error {
	r := Round{Number: n}
	s := &w.c.s
	s.Now, s.Revision, s.Seed = s.Now+1000, s.Revision+1, s.Seed*6364136223846793005+1442695040888963407
	for _, e := range w.o.Events {
		if e.Round == n {
			w.happen(e)
			r.Events = append(r.Events, e)
		}
	}
	if _, err := w.c.Snapshot(); err != nil {
		return fmt.Errorf("round %d: %w", n, err)
	}
	if len(r.Events) > 0 {
		clear(w.seen)
		w.seen[w.key()] = n - 1
	}
	arrived := w.arrive(n)
	w.pins(&r)
	if err := w.allocate(ctx, &r); err != nil {
		return err
	}
	w.leave()
	if err := w.rebalance(ctx, &r); err != nil {
		return err
	}
	w.measure(&r)
	w.run.Rounds = append(w.run.Rounds, r)
	w.run.Moves, w.run.Homes = w.run.Moves+len(r.Moves), w.run.Homes+len(r.Homes)
	if len(r.Events) == 0 && len(r.Moves) == 0 && len(r.Homes) == 0 && !arrived {
		return nil
	}
	w.run.Settled = n
	key := w.key()
	if from, ok := w.seen[key]; ok && w.run.Cycle == nil && len(r.Moves)+len(r.Homes) > 0 {
		w.run.Cycle = &Cycle{From: from, Length: n - from}
	} else if !ok {
		w.seen[key] = n
	}
	return nil
}

// key stands for where the shards are, and where they are going.
func (w *world) key() [32]byte {
	h := sha256.New()
	var buf [8]byte
	put := func(a, b uint32) {
		binary.LittleEndian.PutUint32(buf[:], a)
		binary.LittleEndian.PutUint32(buf[4:], b)
		h.Write(buf[:])
	}
	for _, o := range w.c.s.Owners {
		put(o, 0)
	}
	for _, d := range w.due { // of two handoffs the one that ends later is another arrangement
		put(d.shard, uint32(d.round-len(w.run.Rounds)))
	}
	for _, b := range w.c.s.Busy {
		put(b.Shard, uint32(b.Target))
	}
	return [32]byte(h.Sum(nil))
}

func (w *world) crash(node string) {
	w.c.Remove(node)
	w.stay(node)
	busy := map[uint32]bool{}
	for _, b := range w.c.s.Busy {
		busy[b.Shard] = true
	}
	w.due = slices.DeleteFunc(w.due, func(d handoff) bool { return !busy[d.shard] })
}

// demand sets the rate of shards, and what their nodes report of it.
func (w *world) demand(e Event) {
	s := &w.c.s
	shards := e.Shards
	if len(shards) == 0 {
		for i := range s.Owners {
			shards = append(shards, uint32(i))
		}
	}
	if !w.c.has(shards) {
		return
	}
	for _, shard := range shards {
		old := uint64(0)
		if s.Load.Rate != nil && s.Load.Rate[shard] != pluginapi.UnknownLoad {
			old = uint64(s.Load.Rate[shard])
		}
		w.c.Rate(e.Rate, shard)
		if owner := s.OwnerOf(shard); owner != pluginapi.NoTarget && s.Nodes[owner].Load.Rate.Known {
			rate := &s.Nodes[owner].Load.Rate.Value
			*rate = *rate - min(old, *rate) + uint64(e.Rate)
		}
	}
}

// arrive ends the handoffs that are due.
func (w *world) arrive(n int) bool {
	arrived := false
	w.due = slices.DeleteFunc(w.due, func(d handoff) bool {
		if d.round > n {
			return false
		}
		arrived = true
		i := slices.IndexFunc(w.c.s.Busy, func(b pluginapi.Busy) bool { return b.Shard == d.shard })
		if i >= 0 {
			target := w.c.s.Busy[i].Target
			if target != pluginapi.NoTarget && !w.c.candidate[target] {
				target = pluginapi.NoTarget // no longer fit: the shard is free again
			}
			w.put(d.shard, target)
			w.c.s.Busy = slices.Delete(w.c.s.Busy, i, i+1)
		}
		return true
	})
	return arrived
}

// put gives a shard another owner, and takes its share of the load there.
func (w *world) put(shard uint32, to int) {
	s := &w.c.s
	if from := s.OwnerOf(shard); from != pluginapi.NoTarget {
		w.loose[shard] = w.unload(shard, from)
	}
	s.Owners[shard] = uint32(to) // NoTarget becomes NoOwner
	if to == pluginapi.NoTarget {
		return
	}
	share, ok := w.loose[shard]
	if !ok { // it comes from a node that is gone, or from nowhere
		share = map[string]float64{}
		for name, column := range map[string][]uint32{"rate": s.Load.Rate, "entities": s.Load.Entities} {
			if column != nil && column[shard] != pluginapi.UnknownLoad {
				share[name] = float64(column[shard])
			}
		}
	}
	delete(w.loose, shard)
	for _, f := range figures(&s.Nodes[to].Load) {
		amount := share[f.name]
		if weight := s.Nodes[to].Weight; f.scaled() && weight > 0 {
			amount /= float64(weight)
		}
		if f.Known {
			f.Value += uint64(amount)
		}
	}
}

// unload takes a shard's share off the load figures of its node, and returns it: per unit of weight where a figure is one
// of the node's capacity.
func (w *world) unload(shard uint32, node int) map[string]float64 {
	s := &w.c.s
	load := figures(&s.Nodes[node].Load)
	if !slices.ContainsFunc(load, func(f figure) bool { return f.Known }) {
		return nil
	}
	count, sum, rates := uint64(0), uint64(0), s.Load.Rate != nil
	for i, o := range s.Owners {
		if int(o) != node {
			continue
		}
		count++
		if rates = rates && s.Load.Rate[i] != pluginapi.UnknownLoad; rates {
			sum += uint64(s.Load.Rate[i])
		}
	}
	part := 1 / float64(count)
	if rates && sum > 0 {
		part = float64(s.Load.Rate[shard]) / float64(sum)
	}
	share := map[string]float64{}
	for _, f := range load {
		if !f.Known || f.name == "disk" || f.name == "diskfree" {
			continue
		}
		taken := uint64(float64(f.Value) * part)
		f.Value -= min(taken, f.Value)
		share[f.name] = float64(taken)
		if weight := s.Nodes[node].Weight; f.scaled() && weight > 0 {
			share[f.name] *= float64(weight)
		}
	}
	return share
}

// scaled tells of a figure that it is a part of the node's capacity.
func (f figure) scaled() bool { return f.name == "cpu" || f.name == "mem" }

// needy returns the shards that allocate is asked for: without a home, or on a node that goes.
func (w *world) needy() []uint32 {
	s := &w.c.s
	goes := make([]bool, len(s.Nodes))
	any := false
	for i, n := range s.Nodes {
		goes[i] = !w.c.candidate[i] && (n.State == pluginapi.StateLeaving || n.State == pluginapi.StateDraining)
		any = any || goes[i]
	}
	shards := w.c.Homeless()
	if !any {
		return shards
	}
	fixed := w.fixed()
	for shard, o := range s.Owners {
		if o != pluginapi.NoOwner && goes[o] && !fixed[uint32(shard)] { // a pin to a node that goes holds no more
			shards = append(shards, uint32(shard))
		}
	}
	slices.Sort(shards)
	return shards
}

// fixed is the set of the shards that nobody may move: busy and waiting ones.
func (w *world) fixed() map[uint32]bool {
	fixed := map[uint32]bool{}
	for _, b := range w.c.s.Busy {
		fixed[b.Shard] = true
	}
	for _, shard := range w.c.s.Waiting {
		fixed[shard] = true
	}
	return fixed
}

// pins brings shards where they are pinned, whatever the strategy thinks.
func (w *world) pins(r *Round) {
	if len(w.c.s.Pinned) == 0 {
		return
	}
	fixed := w.fixed()
	for _, p := range w.c.s.Pinned {
		if !w.c.candidate[p.Node] || fixed[p.Shard] {
			continue
		}
		fixed[p.Shard] = true // of several pins of one shard the first holds
		owner := w.c.s.OwnerOf(p.Shard)
		if owner == pluginapi.NoTarget || owner == p.Node {
			continue
		}
		w.put(p.Shard, p.Node)
		r.Homes = append(r.Homes, Home{Shard: p.Shard, Node: w.c.name(p.Node)})
	}
}

func (w *world) allocate(ctx context.Context, r *Round) error {
	shards := w.needy()
	if len(shards) == 0 {
		return nil
	}
	a, err := w.s.Allocate(ctx, w.c, shards)
	if err != nil {
		return err
	}
	w.note(r, a)
	homes := a.Homes
	if a.Err != nil {
		snap, err := w.c.Snapshot()
		if err != nil {
			return err
		}
		fallback, err := hash.Strategy{}.Allocate(snap, shards)
		if err != nil {
			return err
		}
		for i, node := range fallback.Nodes {
			homes = append(homes, Home{Shard: shards[i], Node: w.c.name(node)})
		}
	}
	pinned := map[uint32]int{}
	for _, p := range slices.Backward(w.c.s.Pinned) {
		if w.c.candidate[p.Node] {
			pinned[p.Shard] = p.Node
		}
	}
	for _, h := range homes {
		if n, ok := pinned[h.Shard]; ok {
			h.Node = w.c.name(n) // kept by the host, whatever the strategy says
		}
		if to := w.c.node(h.Node); to != pluginapi.NoTarget {
			w.put(h.Shard, to)
			r.Homes = append(r.Homes, h)
		}
	}
	return nil
}

// leave takes the nodes away that have left and hold nothing any more.
func (w *world) leave() {
	w.leaving = slices.DeleteFunc(w.leaving, func(name string) bool {
		n := uint32(w.c.s.NodeIndex(name))
		if slices.Contains(w.c.s.Owners, n) {
			return false
		}
		w.c.Remove(name)
		clear(w.seen) // arrangements of other nodes
		return true
	})
}

func (w *world) rebalance(ctx context.Context, r *Round) error {
	a, err := w.s.Rebalance(ctx, w.c)
	if err != nil {
		return err
	}
	w.note(r, a)
	r.Moves = a.Moves
	for _, m := range a.Moves {
		to := w.c.node(m.To)
		if w.o.Handoff == 0 {
			w.put(m.Shard, to)
			continue
		}
		w.c.s.Busy = append(w.c.s.Busy, pluginapi.Busy{Shard: m.Shard, Target: to})
		w.due = append(w.due, handoff{shard: m.Shard, round: r.Number + w.o.Handoff})
	}
	return nil
}

func (w *world) note(r *Round, a *Answer) {
	switch {
	case a.Fuel < 0:
		r.Fuel = -1
	case r.Fuel >= 0:
		r.Fuel += a.Fuel
	}
	if a.Verdict == host.VerdictOK {
		return
	}
	r.Failures = append(r.Failures, fmt.Sprintf("%s: %v", a.Op, a.Err))
	if w.run.failed == nil {
		w.run.failed, w.run.failedAt = a, w.c.Clone()
	}
}

func (w *world) measure(r *Round) {
	s := &w.c.s
	p := s.Placement()
	r.Nodes = make([]NodeShare, len(s.Nodes))
	most, least := -1, -1
	for i := range s.Nodes {
		n := p.Counts[i]
		r.Nodes[i] = NodeShare{Node: s.Nodes[i].Name, Shards: n, Candidate: w.c.candidate[i]}
		if w.c.candidate[i] {
			most = max(most, n)
			if least < 0 || n < least {
				least = n
			}
		}
	}
	r.Imbalance = most - least
	for shard, o := range s.Owners {
		if o != pluginapi.NoOwner && s.Load.Rate != nil && s.Load.Rate[shard] != pluginapi.UnknownLoad {
			r.Nodes[o].Rate += uint64(s.Load.Rate[shard])
		}
	}
	r.Homeless = len(w.c.Homeless())
}
