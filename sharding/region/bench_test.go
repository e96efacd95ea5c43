package region

import (
	"testing"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// benchRegion owns the shard of "e0" when own is set; else "b" does.
func benchRegion(tb testing.TB, own bool) (*Region, sharding.Instant) {
	r := New(Config{Self: member("a"), Type: "t", NumShards: 100, Hosts: true})
	owner := member("b")
	if own {
		owner = member("a")
	}
	at := sharding.Instant(time.Second)
	rec := protocol.ShardRecord{Shard: sharding.ShardOf("e0", 100), State: protocol.Homed, Owner: owner, Epoch: 1, Granted: 1}
	r.Step(at, MapChanged{Revision: sharding.Revision{Index: 1}, Records: []protocol.ShardRecord{rec}})
	if own {
		r.Step(at, Covered{Revision: sharding.Revision{Index: 1}, Until: at.Add(time.Hour)})
		r.Step(at, Ordered{&protocol.StartShard{Type: "t", Shard: rec}})
		if len(r.Owned()) != 1 {
			tb.Fatal("the shard does not start")
		}
	}
	return r, at
}

var benchCases = []struct {
	name string
	own  bool
}{{"local", true}, {"remote", false}}

func TestSubmitAllocatesOnce(t *testing.T) {
	for _, c := range benchCases {
		r, at := benchRegion(t, c.own)
		m := &Submitted{Entity: "e0", Payload: make([]byte, 100)}
		out := make([]Command, 0, 8)
		n := testing.AllocsPerRun(1000, func() { out = r.Submit(at, m, out[:0]) })
		if n > 1 || len(out) != 1 {
			t.Errorf("%s: %v allocations and commands %v, want one of each", c.name, n, out)
		}
	}
}

func BenchmarkSubmit(b *testing.B) {
	for _, c := range benchCases {
		b.Run(c.name, func(b *testing.B) {
			r, at := benchRegion(b, c.own)
			m := &Submitted{Entity: "e0", Payload: make([]byte, 100)}
			out := make([]Command, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				out = r.Submit(at, m, out[:0])
			}
		})
	}
}

func BenchmarkArrive(b *testing.B) {
	r, at := benchRegion(b, true)
	from := member("b")
	d := &protocol.Deliver{Type: "t", Shard: sharding.ShardOf("e0", 100), Epoch: 1, Sender: from, Entity: "e0", Payload: make([]byte, 100)}
	out := make([]Command, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		d.Seq++
		out = r.Arrive(at, from, d, out[:0])
	}
}
