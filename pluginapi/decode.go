package pluginapi

import (
	"slices"
	"strconv"
)

// Input is a decoded input.
type Input struct {
	Op       Op
	Snapshot Snapshot
	Shards   []uint32 // of OpAllocate: the shards that need a home
}

// DecodeInput reads an input, and checks it as Validate does. An error is a *DecodeError. Nothing of the result shares
// data's memory.
func DecodeInput(data []byte) (*Input, error) { return decodeInput(data, false) }

// The keys that an input must have. The bit of each is its place here; field sets it.
var required = [...]string{"v", "op", "now", "busy", "seed", "type", "nodes", "limits", "owners", "revision", "candidates"}

func decodeInput(data []byte, alias bool) (*Input, error) {
	r := &reader{data: data, alias: alias}
	d := inputDecoder{reader: r, in: &Input{}}
	if err := r.fields(d.field); err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	for i, key := range required {
		if d.got&(1<<i) == 0 {
			return nil, atKey(r.fail("the key is missing"), key)
		}
	}
	if d.in.Op == OpAllocate && d.in.Shards == nil {
		return nil, atKey(r.fail("the key is missing"), "shards")
	}
	if d.in.Op == OpRebalance && d.in.Shards != nil {
		return nil, atKey(r.fail("only allocate has shards"), "shards")
	}
	if !slices.IsSorted(d.in.Snapshot.Candidates) {
		slices.Sort(d.in.Snapshot.Candidates)
	}
	if err := d.in.Snapshot.validate(d.in.Shards, d.ownerLimit, d.standbyLimit); err != nil {
		err.Offset = len(data)
		return nil, err
	}
	return d.in, nil
}

// another returns one more node: one of those made already, if any is left, for copying so large a value takes a guest long.
func (s *Snapshot) another() *Node {
	if n := len(s.Nodes); n < cap(s.Nodes) {
		s.Nodes = s.Nodes[:n+1]
	} else {
		s.Nodes = append(s.Nodes, Node{})
	}
	return &s.Nodes[len(s.Nodes)-1]
}

type inputDecoder struct {
	*reader
	in                       *Input
	got                      uint16
	ownerLimit, standbyLimit uint32
}

func (d *inputDecoder) field(key string) (err error) {
	s := &d.in.Snapshot
	switch key {
	case "v":
		d.got |= 1 << 0
		var v uint64
		if v, err = d.uint(); err == nil && v != Version {
			return d.fail("contract version " + strconv.FormatUint(v, 10) + " is not known here, only " + strconv.Itoa(Version))
		}
	case "op":
		d.got |= 1 << 1
		var op string
		if op, err = d.text(); err != nil {
			return err
		}
		switch op {
		case OpAllocate.String():
			d.in.Op = OpAllocate
		case OpRebalance.String():
			d.in.Op = OpRebalance
		default:
			return d.fail("want allocate or rebalance, got " + strconv.Quote(op))
		}
	case "now":
		d.got |= 1 << 2
		s.Now, err = d.uint()
	case "busy":
		d.got |= 1 << 3
		s.Busy = make([]Busy, 0, d.count(leastPair))
		err = d.list(func() error {
			shard, node, err := d.pair(true)
			s.Busy = append(s.Busy, Busy{Shard: shard, Target: node})
			return err
		})
	case "load":
		err = d.shardLoads(&s.Load)
	case "seed":
		d.got |= 1 << 4
		s.Seed, err = d.uint()
	case "type":
		d.got |= 1 << 5
		s.Type, err = d.text()
	case "nodes":
		d.got |= 1 << 6
		s.Nodes = make([]Node, 0, d.count(leastNode))
		err = d.list(func() error {
			n, start := s.another(), d.pos
			if d.quickNode(n) {
				return nil
			}
			d.pos, *n = start, Node{}
			return d.node(n)
		})
	case "config":
		var raw []byte
		if raw, err = d.raw(); err == nil {
			s.Config = raw
			if !d.alias {
				s.Config = slices.Clone(raw)
			}
		}
	case "limits":
		d.got |= 1 << 7
		found := false
		err = d.fields(func(key string) (err error) {
			if key != "moves" {
				return d.skip(0)
			}
			found = true
			s.MaxMoves, err = d.uint()
			return err
		})
		if err == nil && !found {
			err = atKey(d.fail("the key is missing"), "moves")
		}
	case "owners":
		d.got |= 1 << 8
		var counts []int
		s.Owners, counts, d.ownerLimit, err = d.owners(len(s.Nodes))
		if d.alias { // only a guest's snapshot is sure to stay as it is
			s.counted = counts
		}
	case "pinned":
		s.Pinned = make([]Pin, 0, d.count(leastPair))
		err = d.list(func() error {
			shard, node, err := d.pair(false)
			s.Pinned = append(s.Pinned, Pin{Shard: shard, Node: node})
			return err
		})
	case "shards":
		d.in.Shards, err = d.uint32s()
	case "standby":
		s.Standby, _, d.standbyLimit, err = d.owners(len(s.Nodes))
	case "waiting":
		s.Waiting, err = d.uint32s()
	case "revision":
		d.got |= 1 << 9
		s.Revision, err = d.uint()
	case "candidates":
		d.got |= 1 << 10
		s.Candidates = make([]int, 0, d.count(1))
		var it items
		if it, err = d.array(); err != nil {
			return err
		}
		for i := 0; d.next(&it); i++ {
			n, err := d.index()
			if err != nil {
				return atIndex(err, i)
			}
			s.Candidates = append(s.Candidates, n)
		}
	default:
		err = d.skip(0)
	}
	return err
}

// The fewest bytes that a node, and a pair of shard and node, can take.
const (
	leastNode = 50
	leastPair = 3
)

// count returns how many elements the array that comes next has, as far as data of that many bytes an element at least
// can hold them; 0 where it does not say.
func (r *reader) count(least int) int {
	ahead := *r
	it, _ := ahead.array()
	return int(min(it.left, uint64(len(r.data)-r.pos)/uint64(least)))
}

// list reads an array and calls element for each.
func (r *reader) list(element func() error) error {
	it, err := r.array()
	if err != nil {
		return err
	}
	for i := 0; r.next(&it); i++ {
		if err := element(); err != nil {
			return atIndex(err, i)
		}
	}
	return nil
}

// index reads a node index; whether there is such a node is checked later.
func (r *reader) index() (int, error) {
	if b := r.peek(); b < 24 {
		r.pos++
		return int(b), nil
	} else if b == majorUint|24 && len(r.data)-r.pos >= 2 {
		r.pos += 2
		return int(r.data[r.pos-1]), nil
	}
	n, err := r.bounded(1<<31, "index")
	return int(n), err
}

// pair reads [shard, node], where null stands for NoTarget if orNull.
func (r *reader) pair(orNull bool) (shard uint32, node int, err error) {
	it, err := r.array()
	if err != nil {
		return 0, 0, err
	}
	i := 0
	for ; r.next(&it); i++ {
		switch {
		case i == 0:
			var n uint64
			n, err = r.bounded(1<<32, "shard")
			shard = uint32(n)
		case i == 1 && orNull && r.null():
			node = NoTarget
		case i == 1:
			node, err = r.index()
		default:
			return 0, 0, r.fail("want 2 elements, got more")
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if i < 2 {
		return 0, 0, r.fail("want 2 elements, got " + strconv.Itoa(i))
	}
	return shard, node, nil
}

// The keys that a node must have. The bit of each is its place here; node sets it.
var requiredOfNode = [...]string{"name", "addr", "incarnation", "state", "roles", "version", "weight"}

func (d *inputDecoder) node(n *Node) error {
	got := uint8(0)
	err := d.fields(func(key string) (err error) {
		switch key {
		case "name":
			got |= 1 << 0
			n.Name, err = d.text()
		case "addr":
			got |= 1 << 1
			n.Addr, err = d.text()
		case "incarnation":
			got |= 1 << 2
			n.Incarnation, err = d.text()
		case "state":
			got |= 1 << 3
			var state string
			state, err = d.text()
			n.State, _ = ParseNodeState(state) // a later host may know more states
		case "roles":
			got |= 1 << 4
			err = d.list(func() error {
				role, err := d.text()
				n.Roles = append(n.Roles, role)
				return err
			})
		case "version":
			got |= 1 << 5
			n.Version, err = d.text()
		case "weight":
			got |= 1 << 6
			n.Weight, err = d.uint()
		case "zone":
			n.Zone, err = d.text()
		case "tags":
			err = d.tags(n)
		case "coord":
			err = d.coord(n)
		case "load":
			err = d.nodeLoad(&n.Load)
		default:
			err = d.skip(0)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, key := range requiredOfNode {
		if got&(1<<i) == 0 {
			return atKey(d.fail("the key is missing"), key)
		}
	}
	return nil
}

func (d *inputDecoder) tags(n *Node) error {
	err := d.fields(func(key string) error {
		value, err := d.text()
		if !d.alias {
			key = clone(key)
		}
		n.Tags = append(n.Tags, Tag{Key: key, Value: value})
		return err
	})
	SortTags(n.Tags)
	return err
}

func (d *inputDecoder) coord(n *Node) error {
	vs, err := d.float64s()
	if err != nil {
		return err
	}
	if len(vs) < 4 {
		return d.fail("want a vector, error, adjustment and height, got " + strconv.Itoa(len(vs)) + " numbers")
	}
	last := len(vs) - 3
	n.Coord = Coord{Vec: vs[:last:last], Error: vs[last], Adjustment: vs[last+1], Height: vs[last+2]}
	return nil
}

func (d *inputDecoder) nodeLoad(l *NodeLoad) error {
	fields := l.fields()
	return d.fields(func(key string) (err error) {
		for _, f := range fields {
			if f.key == key {
				f.figure.Known = true
				f.figure.Value, err = d.uint()
				return err
			}
		}
		return d.skip(0)
	})
}

func (d *inputDecoder) shardLoads(l *ShardLoads) error {
	return d.fields(func(key string) (err error) {
		switch key {
		case "entities":
			l.Entities, err = d.uint32s()
		case "rate":
			l.Rate, err = d.uint32s()
		case "bytes":
			l.Bytes, err = d.uint64s()
		default:
			err = d.skip(0)
		}
		return err
	})
}
