package pluginapi

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the quick ways read, the slow ones read alike, whatever the bytes; and the quick ways do read what hosts write.
func TestQuickNodeReadsAsNodeDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	some := func(limit int) string { return strings.Repeat("aZ-9.", 60)[:r.IntN(limit)] }
	quick, mutated := 0, 0
	for round := range 10_000 {
		n := Node{Name: some(20), Addr: some(30), Incarnation: some(40), State: NodeState(1 + r.IntN(6)), Version: some(9), Weight: r.Uint64N(1 << r.IntN(40))}
		if r.IntN(2) == 0 {
			n.Zone, n.Roles = some(40), []string{some(25), some(25)}
			n.Tags = []Tag{{"a", some(9)}, {"b", "x"}}
			n.Coord = Coord{Vec: []float64{1, 2}, Height: 3}
			n.Load = NodeLoad{CPU: Known(3), DiskFree: Known(r.Uint64())}
		}
		data := n.append(nil)
		honest := len(data)
		data = append(data, make([]byte, r.IntN(30))...)
		if round%2 == 1 {
			mutated++
			for range 1 + r.IntN(3) {
				data[r.IntN(honest)] = byte(r.Uint32())
			}
			data = data[:len(data)-r.IntN(3)*r.IntN(len(data))/2]
		}
		for _, alias := range []bool{false, true} {
			var got, want Node
			a := inputDecoder{reader: &reader{data: data, alias: alias}}
			b := inputDecoder{reader: &reader{data: data, alias: alias}}
			ok := a.quickNode(&got)
			if ok {
				require.NoError(t, b.node(&want), "% x", data)
				require.Equal(t, want, got)
				require.Equal(t, b.pos, a.pos)
				quick++
			}
			if round%2 == 0 && len(data)-honest >= 12 {
				require.True(t, ok, "%+v", n)
			}
		}
	}
	require.Greater(t, quick, mutated/2)
}

// A key may come once, in the quick way too.
func TestQuickNodeRefusesAKeyThatComesTwice(t *testing.T) {
	n := Node{Name: "a", Addr: "a", Incarnation: "a", State: StateUp, Version: "1", Zone: "z", Weight: 100}
	data := n.append(nil)
	data[0]++
	data = append(appendText(appendText(data, "zone"), "y"), make([]byte, 20)...)
	d := inputDecoder{reader: &reader{data: data}}
	require.False(t, d.quickNode(&Node{}))
	d = inputDecoder{reader: &reader{data: data}}
	require.ErrorContains(t, d.node(&Node{}), "twice")
}

func TestWiden16(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	good, bad := 0, 0
	for range 20_000 {
		n := r.IntN(5) * r.IntN(1+r.IntN(200))
		if r.IntN(50) == 0 {
			n = 0xfff0 + r.IntN(20)
		}
		column := make([]uint32, r.IntN(20))
		want, counts := true, make([]int, n+1)
		for i := range column {
			switch column[i] = uint32(r.IntN(n + 1)); {
			case r.IntN(4) == 0:
				column[i] = NoOwner
			case r.IntN(20) == 0:
				column[i] = uint32(r.IntN(0xffff)) // any but none
			}
			if column[i] != NoOwner {
				column[i] = min(column[i], 0xfffe)
			}
			want = want && (column[i] == NoOwner || column[i] < uint32(n))
			counts[min(column[i]+1, uint32(n))]++ // NoOwner goes round to 0
		}
		data := appendUint16s(nil, column)
		got, gotCounts, ok := widen16(data[len(data)-2*len(column):], n)
		require.Equal(t, want && n < 0xffff, ok, "%d nodes: %v", n, column)
		if !ok {
			bad++
			continue
		}
		good++
		require.Equal(t, column, got)
		require.Equal(t, counts, gotCounts)
	}
	require.Greater(t, min(good, bad), 2000)
}

// A guest counts the owners as it decodes them; keys may come in any order, owners before the nodes that they count for.
func TestPlacementOfADecodedInput(t *testing.T) {
	s := benchSnapshot(5, 1003)
	for i := range s.Owners {
		if i%3 == 0 {
			s.Owners[i] = NoOwner
		}
	}
	s.Busy, s.Waiting = []Busy{{1, 2}, {3, NoTarget}}, []uint32{7, 9}
	want := s.Placement()
	none := benchSnapshot(5, 7)
	for i := range none.Owners {
		none.Owners[i] = NoOwner
	}
	for _, s := range []*Snapshot{s, none} {
		want := s.Placement()
		data := AppendInput(nil, OpRebalance, s, nil)
		in, err := decodeInput(data, true)
		require.NoError(t, err)
		require.NotNil(t, in.Snapshot.counted)
		require.Equal(t, want.Counts, in.Snapshot.Placement().Counts)
		require.Equal(t, want.Homed, in.Snapshot.Placement().Homed)

		column := appendColumn(appendText(nil, "owners"), s.Owners, len(s.Nodes))
		first := append([]byte{data[0]}, column...)
		first = append(first, slices.Concat(strings2(data[1:], column)...)...)
		in, err = decodeInput(first, true)
		require.NoError(t, err)
		require.Equal(t, want.Counts, in.Snapshot.Placement().Counts)
	}
	in, err := DecodeInput(AppendInput(nil, OpRebalance, s, nil))
	require.NoError(t, err)
	in.Snapshot.Owners[4] = 0 // a harness may go on from what it has decoded
	require.NotEqual(t, want.Counts, in.Snapshot.Placement().Counts)
}

// strings2 is data without the part.
func strings2(data, part []byte) [][]byte {
	before, after, _ := strings.Cut(string(data), string(part))
	return [][]byte{[]byte(before), []byte(after)}
}
