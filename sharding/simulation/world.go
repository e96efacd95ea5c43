package simulation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
	"github.com/droverhq/drover/sharding/rollout"
)

// Options says which run to do.
type Options struct {
	Seed        uint64
	Trace       io.Writer // every event and command, if set
	Coordinator coordinator.Mutations
	Region      region.Mutations
	Rollout     rollout.Mutations
	// DeafShadow drops the questions to shadows: a run must be the same with their answers and without.
	DeafShadow bool
	// Blind names checkers that do not judge, by their number (I1 and so on): what else notices a mutation?
	Blind []string
	// MapPart cuts map updates into parts of so many shards, to see parts lost and out of order; 0: as the coordinator does.
	MapPart int
	// Raise adds to the faults of the seed what only a barrier withstands: see world.raise.
	Raise bool
}

// Result is what a run came to.
type Result struct {
	Seed      uint64
	Events    int // that the world handled, raft's own messages and ticks of idle clocks among them
	Steps     int // of the real machines
	Faults    int
	Messages  int
	Begun     int
	Moves     int // planned moves that began
	Elections int
	Shadowed  int           // questions that a shadow has answered
	Changes   int           // of strategies and shadows, by operators, that were recorded
	Time      time.Duration // virtual
	Violation *Violation
}

// Violation is an invariant that did not hold.
type Violation struct {
	Invariant string
	Step      int
	At        time.Duration
	Detail    string
}

// Error tells the whole of it on one line.
func (v *Violation) Error() string {
	return fmt.Sprintf("%s: step %d, at %v: %s", v.Invariant, v.Step, v.At, v.Detail)
}

type simType struct {
	name     sharding.TypeName
	shards   uint32
	place    string
	strategy string
	entities []string
}

type world struct {
	opts  Options
	rng   *rand.Rand
	now   int64
	seq   uint64
	queue queue
	busy  bool
	work  []func()

	// Drawn from the seed.
	servers        int
	ttl            time.Duration
	holdFor        time.Duration
	handOffTimeout time.Duration
	interval       time.Duration
	patience       time.Duration // of a leader without a majority
	clientPause    time.Duration
	snapshotEvery  uint64
	digestEvery    uint64
	maxMessages    int
	maxBytes       int
	types          []*simType

	nodes []*node
	// forgetful is the one server that may lose its modules: of those that are on a majority, others keep one.
	forgetful *node
	procs     []*process // all that ever were
	byMember  map[sharding.Member]*process
	net       *network
	stuck     map[ShardKey]bool // their Stop hangs
	quiet     bool              // clients rest
	calm      bool              // faults have ended: entities work and stop quickly
	ended     bool
	probes    int           // open
	askFor    time.Duration // longest deadline of the clients' asks

	leaders   map[uint64]sharding.Member // term → who won it
	lastTerm  uint64
	log       []raftEntry // as committed: log[i] has index i+1
	applied   uint64      // highest index applied by any server
	canon     map[ShardKey]protocol.ShardRecord
	inForce   []coordinator.StrategyView // of each type, by the newest entry
	effects   map[effectKey]effectOf
	contacted map[ShardKey]bool
	past      []coordinatorSend
	heard     map[sharding.Member]uint64 // newest term of which each member has had a directive of its leader
	answers   map[uint64]func(coordinator.Answer)
	request   uint64
	strategy  strategies

	checkers  []Checker
	violation *Violation
	steps     int
	result    Result
}

// Run does one run and gives what it came to. It always gives the same for the same options.
func Run(o Options) Result {
	w := newWorld(o)
	w.setUp()
	for w.violation == nil && len(w.queue.heap) > 0 && !w.ended {
		e := w.queue.pop()
		w.now = max(w.now, e.at)
		if e.proc != nil {
			if !e.proc.alive {
				continue
			}
			if e.proc.paused {
				e.proc.deferred = append(e.proc.deferred, e)
				continue
			}
		}
		w.result.Events++
		w.do(nil, e.do)
	}
	w.result.Seed, w.result.Steps, w.result.Violation, w.result.Time = o.Seed, w.steps, w.violation, time.Duration(w.now)
	return w.result
}

func newWorld(o Options) *world {
	w := &world{
		opts: o, rng: rand.New(rand.NewPCG(o.Seed, 0x5eed)), byMember: map[sharding.Member]*process{}, stuck: map[ShardKey]bool{},
		leaders: map[uint64]sharding.Member{}, canon: map[ShardKey]protocol.ShardRecord{}, effects: map[effectKey]effectOf{}, heard: map[sharding.Member]uint64{},
		contacted: map[ShardKey]bool{}, askFor: 3 * time.Second, answers: map[uint64]func(coordinator.Answer){},
	}
	ms := func(low, high int64) time.Duration {
		return time.Duration(low+w.rng.Int64N(high-low+1)) * time.Millisecond
	}
	w.servers = []int{3, 3, 5}[w.rng.IntN(3)]
	w.ttl = ms(800, 2000)
	w.holdFor = w.ttl + 1500*time.Millisecond
	w.handOffTimeout = ms(1200, 2500)
	w.interval = ms(500, 1200)
	w.patience = ms(400, 700)
	if w.rng.IntN(4) == 0 {
		w.patience = ms(3000, 5000) // a deposed leader that takes long to learn of it
	}
	w.clientPause = ms(35, 80)
	w.snapshotEvery = 30 + w.rng.Uint64N(150)
	w.digestEvery = 16
	w.maxMessages, w.maxBytes = 100_000, 64<<20
	switch w.rng.IntN(6) {
	case 0:
		w.maxMessages = 12 + w.rng.IntN(30)
	case 1:
		w.maxBytes = 2048
	}
	w.types = []*simType{{name: "cart", shards: 12}, {name: "user", shards: 5}}
	for i, t := range w.types {
		t.place = []string{"on_demand", "on_demand", "eager"}[w.rng.IntN(3)]
		t.strategy = strategyNames[w.rng.IntN(len(strategyNames))]
		for n := range []int{16, 7}[i] {
			t.entities = append(t.entities, fmt.Sprintf("%s-%d", t.name, n))
		}
	}
	bounds := Bounds{
		LeaseTTL: int64(w.ttl),
		HandOff:  int64(w.handOffTimeout),
		Memory:   int64(w.ttl)*13/10 + int64(3*time.Second),
		Lag:      int64(time.Second),
	}
	blind := strings.Join(o.Blind, " ") + " "
	for _, c := range Checkers(bounds) {
		number, _, _ := strings.Cut(c.Name(), " ")
		if !strings.Contains(blind, number+" ") {
			w.checkers = append(w.checkers, c)
		}
	}
	return w
}

func (w *world) setUp() {
	n := w.servers + 1 + w.rng.IntN(3)
	for slot := range n {
		w.nodes = append(w.nodes, &node{
			slot: slot, name: sharding.NodeID(fmt.Sprintf("n%d", slot)), server: slot < w.servers, proxy: w.rng.IntN(4) == 0 && slot > 0,
			clock: clock{
				offset: w.rng.Int64N(int64(1000 * time.Hour)), rate: 1 + maxDrift*(2*w.rng.Float64()-1),
				jump: time.Duration(w.rng.Int64N(int64(4*time.Second))) - 2*time.Second,
			},
			disk: &raftDisk{first: 1, votedFor: -1}, modules: map[[32]byte]bool{},
		})
	}
	w.forgetful = w.nodes[w.rng.IntN(w.servers)]
	w.net = newNetwork(w, n)
	if last := n - 1; last > w.servers && w.rng.IntN(3) == 0 {
		w.nodes[w.servers].late = true
	}
	for _, n := range w.nodes {
		at := w.rng.Int64N(int64(500 * time.Millisecond))
		if n.late {
			at = int64(faultsFrom) + w.rng.Int64N(int64(faultsTill-faultsFrom))
		}
		w.schedule(at, nil, func() { w.revive(n) })
	}
	w.schedule(int64(400*time.Millisecond), nil, w.createCluster)
	w.plan()
}

func (w *world) schedule(at int64, p *process, f func()) {
	w.seq++
	w.queue.push(event{at: at, seq: w.seq, proc: p, do: f})
}

// do runs f now, or after what is being done now, so that no machine is stepped inside another's step.
func (w *world) do(p *process, f func()) {
	if w.busy {
		w.work = append(w.work, func() {
			if p == nil || p.alive {
				f()
			}
		})
		return
	}
	w.busy = true
	f()
	for i := 0; i < len(w.work) && w.violation == nil; i++ {
		w.work[i]()
	}
	w.work = w.work[:0]
	w.busy = false
}

func (w *world) incarnation() sharding.Incarnation {
	var i sharding.Incarnation
	binary.BigEndian.PutUint64(i[:], w.rng.Uint64())
	binary.BigEndian.PutUint64(i[8:], w.rng.Uint64())
	i[6] = i[6]&0x0f | 0x40
	i[8] = i[8]&0x3f | 0x80
	return i
}

// pick draws one of n, the first ones more often.
func (w *world) pick(n int) int { return min(w.rng.IntN(n), w.rng.IntN(n)) }

// fail ends the run.
func (w *world) fail(invariant, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{Invariant: invariant, Step: w.steps, At: time.Duration(w.now), Detail: fmt.Sprintf(format, args...)}
		w.logf("VIOLATION", nil, "%v", w.violation)
	}
}

// observe gives a fact to every checker.
func (w *world) observe(f Fact) {
	switch f := f.(type) {
	case Begun:
		w.result.Begun++
	case Submitted:
		w.result.Messages++
	case Disturbed:
		if w.opts.Trace != nil {
			w.logf("disturbed", nil, "%v %v %v %v", f.Kind, f.A, f.B, f.Key)
		}
	}
	for _, c := range w.checkers {
		if err := c.Observe(f); err != nil {
			w.fail(c.Name(), "%v", err)
			return
		}
	}
}

func (w *world) disturbed(d Disturbed) {
	d.Global = w.now
	w.observe(d)
}

func (w *world) logf(what string, p *process, format string, args ...any) {
	if w.opts.Trace == nil {
		return
	}
	who := "world"
	if p != nil {
		who = p.self.String()
	}
	for i := range args {
		args[i] = describe(args[i])
	}
	fmt.Fprintf(w.opts.Trace, "%10.3fms %6d %-12s %-11s %s\n", float64(w.now)/1e6, w.steps, who, what, fmt.Sprintf(format, args...))
}

// logStep notes what a machine was given; a tick that brings nothing is left out.
func (w *world) logStep(what string, p *process, ev any, commands int) {
	if w.opts.Trace == nil {
		return
	}
	if commands == 0 {
		switch ev.(type) {
		case coordinator.Ticked, region.Ticked:
			return
		}
	}
	w.logf(what, p, "%v", ev)
}

func (w *world) logCommand(what string, p *process, c any) {
	if w.opts.Trace != nil {
		w.logf(what, p, "  -> %v", c)
	}
}

func (w *world) elected(p *process, term uint64) {
	w.result.Elections++
	w.logf("raft", p, "wins term %d", term)
	w.leaders[term] = p.self
	w.lastTerm = max(w.lastTerm, term)
	w.observe(Elected{Member: p.self, Term: term})
}

// passed notes that a barrier of term has been applied on its leader.
func (w *world) passed(p *process, term uint64) {
	p.machineLane.post(func() { w.observe(Barriered{Member: p.self, Term: term, At: p.now()}) })
}

// committed keeps the one log that all servers must agree on.
func (w *world) committed(index uint64, e raftEntry) {
	if index <= uint64(len(w.log)) {
		if had := w.log[index-1]; had.term != e.term || had.entry != e.entry {
			w.fail("raft model", "two entries committed at index %d, of terms %d and %d", index, had.term, e.term)
		}
		return
	}
	w.log = append(w.log, e)
}

// applyEntry feeds one committed entry to a server's machine, and looks at what the first server that applies it made of it.
func (p *process) applyEntry(index, term uint64, e *protocol.Entry) {
	w := p.w
	p.machineLane.post(func() {
		var fact Applied
		first := index > w.applied
		if first {
			w.applied = index
			fact = Applied{Global: w.now, Index: index, Term: term, Entry: e}
			if e.Kind == protocol.KindPlanMoves || e.Kind == protocol.KindAssignHomes || e.Kind == protocol.KindCompleteHandOff {
				fact.Members, fact.Pins = viewMembers(p.machine.State()), w.viewPins(p.machine.State())
				fact.Strategy, fact.Digest = strategyOf(p.machine.State(), e)
			}
		}
		before := w.inForce
		p.runMachine(coordinator.Committed{Index: index, Term: term, Entry: w.overLog(e)})
		if first && e.Kind != protocol.KindGrantLeases {
			fact.Changes = w.changes(p.machine.State())
			w.observe(fact)
			w.inForce = w.strategiesOf(p.machine.State())
			w.activated(e, before)
		}
		if index%w.digestEvery == 0 {
			data, err := p.machine.Snapshot()
			if err != nil {
				w.fail("I9", "snapshot of index %d on %v: %v", index, p.self, err)
				return
			}
			w.observe(Digested{Server: p.self, Index: index, Digest: sha256.Sum256(data)})
		}
	})
}

// changes brings the world's copy of the map up to date and tells what changed.
func (w *world) changes(s *coordinator.State) []Change {
	var out []Change
	for _, t := range w.types {
		for _, r := range s.Shards(t.name) {
			key := ShardKey{t.name, r.Shard}
			before := w.canon[key]
			if before == r {
				continue
			}
			if r.State == protocol.Moving && before.State != protocol.Moving {
				w.result.Moves++
			}
			if before == (protocol.ShardRecord{}) {
				before.Shard = r.Shard
			}
			w.canon[key] = r
			out = append(out, Change{Key: key, Before: before, After: r})
		}
	}
	return out
}

// strategyOf is the number of the strategy in force for the type that an entry decides on, and its digest.
func strategyOf(s *coordinator.State, e *protocol.Entry) (uint64, [32]byte) {
	var t sharding.TypeName
	switch {
	case e.PlanMoves != nil:
		t = e.PlanMoves.Type
	case e.AssignHomes != nil:
		t = e.AssignHomes.Type
	}
	v, _ := s.Strategy(t)
	return v.Seq, v.Spec.Digest
}

func viewMembers(s *coordinator.State) map[sharding.Member]MemberView {
	out := map[sharding.Member]MemberView{}
	for _, m := range s.Members() {
		v := MemberView{Draining: m.Draining, Hosts: map[sharding.TypeName]bool{}}
		for _, t := range m.Hosts {
			v.Hosts[t] = true
		}
		out[m.Member] = v
	}
	return out
}

func (w *world) viewPins(s *coordinator.State) map[ShardKey]sharding.NodeID {
	out := map[ShardKey]sharding.NodeID{}
	for _, t := range w.types {
		for _, p := range s.Pins(t.name) {
			out[ShardKey{t.name, p.Shard}] = p.Node
		}
	}
	return out
}

// judged tells what a session made of a directive.
func (w *world) judged(p *process, d region.DirectiveReceived, commands []region.Command) {
	f := Judged{
		Member: p.self, From: d.From, Coordinator: d.Coordinator, Term: d.Message.DirectiveTerm(), Kind: d.Message.FrameKind(),
		Leader: w.leaderOf(d.Message.DirectiveTerm()),
	}
	for _, c := range commands {
		if _, dropped := c.(region.DropDirective); !dropped {
			f.Effects++
		}
	}
	if ack, ok := d.Message.(*protocol.LeaseAck); ok && d.Coordinator && d.From == f.Leader {
		w.observe(Acked{Member: p.self, Ack: ack})
	}
	if d.Coordinator && d.From == f.Leader {
		w.heard[p.self] = max(w.heard[p.self], f.Term)
	}
	w.observe(f)
}

// effect tells that a reply leaves a process, if it is an entity's.
func (w *world) effect(p *process, to sharding.Member, r *protocol.Reply) {
	if r.Status != protocol.StatusOK {
		return
	}
	if e, ok := w.effects[effectKey{p.id, to, r.Ask}]; ok {
		w.observe(Effected{Member: p.self, At: p.now(), Key: e.key, Epoch: e.epoch})
	}
}

// honest says that every machine keeps every rule: then no region may see a lie.
func (w *world) honest() bool {
	return w.opts.Region == region.Mutations{} && w.opts.Coordinator == coordinator.Mutations{} && w.opts.Rollout == rollout.Mutations{}
}

// bounds tells how full a region's buffers are.
func (h *host) bounds() {
	if n := h.region.Stats().Corrected; n > 0 && h.p.w.honest() {
		h.p.w.fail("I12", "%v took %d last numbers for overstated, and nobody lies", h.p.self, n)
	}
	messages, bytes := h.region.Buffered()
	if messages == 0 {
		return
	}
	w := h.p.w
	if messages >= h.conf.MaxMessages || bytes+h.conf.MaxBytes/8 >= h.conf.MaxBytes {
		w.disturbed(Disturbed{Kind: DisturbedBuffer, A: h.p.self})
	}
	w.observe(Buffered{
		Member: h.p.self, Type: h.conf.Type, Messages: messages, Bytes: bytes, MaxMessages: h.conf.MaxMessages, MaxByt: h.conf.MaxBytes,
	})
}
