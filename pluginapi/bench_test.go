package pluginapi

import (
	"strconv"
	"testing"
)

// benchSnapshot has nodes and shards as a cluster in use has them.
func benchSnapshot(nodes, shards int) *Snapshot {
	s := &Snapshot{Type: "counter", Revision: 4711, Now: 1700000000000, Seed: 42, MaxMoves: 100}
	for i := range nodes {
		s.Nodes = append(s.Nodes, Node{
			Name: "node-" + strconv.Itoa(1000+i), Addr: "127.0.0.1:" + strconv.Itoa(7000+i),
			Incarnation: "0b9ce6bb-4b4e-4c4c-8a6c-" + strconv.Itoa(100000000000+i), State: StateUp,
			Roles: []string{"compute"}, Version: "0.1.0", Weight: 100, Zone: "z" + strconv.Itoa(i%3),
			Tags: []Tag{{"rack", "r1"}, {"region", "eu"}}, Coord: Coord{Vec: make([]float64, 8), Error: 1.5, Height: 1e-5},
			Load: NodeLoad{CPU: Known(300), Mem: Known(500), Entities: Known(1000)},
		})
		s.Candidates = append(s.Candidates, i)
	}
	for i := range shards {
		s.Owners = append(s.Owners, uint32(i%nodes))
	}
	return s
}

func BenchmarkAppendInput(b *testing.B) {
	for _, shards := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(shards), func(b *testing.B) {
			s := benchSnapshot(10, shards)
			dst := AppendInput(nil, OpRebalance, s, nil)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendInput(dst[:0], OpRebalance, s, nil)
			}
		})
	}
}

func BenchmarkDecodeInput(b *testing.B) {
	for _, shards := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(shards), func(b *testing.B) {
			data := AppendInput(nil, OpRebalance, benchSnapshot(10, shards), nil)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeInput(data, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPlacement(b *testing.B) {
	s := benchSnapshot(100, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		s.Placement()
	}
}
