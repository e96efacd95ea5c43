package sharding_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// Spec 2.4: the test vectors that docs/sharding.md gives to clients in other languages are those of this code.
func TestVectorsOfTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/sharding.md")
	require.NoError(t, err)
	id := regexp.MustCompile("^`([0-9a-f]+)`(?: ([0-9 ]+) times)?")
	rows := 0
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !regexp.MustCompile("`[0-9A-F]{16}`").MatchString(cells[2]) {
			continue
		}
		rows++
		var text string
		if m := id.FindStringSubmatch(strings.TrimSpace(cells[1])); m != nil {
			b, err := hex.DecodeString(m[1])
			require.NoError(t, err)
			text = string(b)
			if m[2] != "" {
				n, err := strconv.Atoi(strings.ReplaceAll(m[2], " ", ""))
				require.NoError(t, err)
				text = strings.Repeat(text, n)
			}
		}
		assert.Equal(t, fmt.Sprintf("`%016X`", xxhash.Sum64String(text)), strings.TrimSpace(cells[2]), "%q", text)
		for i, shards := range []uint32{12, 100, 1_000_000} {
			assert.Equal(t, fmt.Sprint(sharding.ShardOf(text, shards)), strings.TrimSpace(cells[3+i]), "%q of %d", text, shards)
		}
	}
	assert.Equal(t, 8, rows)
	assert.Equal(t, uint64(0xEF46DB3751D8E999), xxhash.Sum64String(""))
}

// fake is a node for refs.
type fake struct {
	sharding.ShardSystem
	shards uint32
	err    error
	woken  []sharding.ShardID
}

func (f *fake) NumShards(sharding.TypeName) (uint32, error) { return f.shards, f.err }

func (f *fake) WakeShard(_ sharding.TypeName, s sharding.ShardID) error {
	f.woken = append(f.woken, s)
	return nil
}

// Spec 2.5: a ShardRef wakes its shard when it is taken, and lets nothing into another shard.
func TestShardRef(t *testing.T) {
	f := &fake{shards: 12}
	r, err := sharding.ShardRefOfEntity(f, "t", "user-42")
	require.NoError(t, err)
	assert.Equal(t, sharding.ShardID(5), r.Shard())
	assert.Equal(t, sharding.TypeName("t"), r.Type())
	assert.Equal(t, []sharding.ShardID{5}, f.woken)
	require.ErrorIs(t, r.Tell(sharding.Envelope{Entity: "a"}), sharding.ErrShard)
	_, err = r.Ask(t.Context(), sharding.Envelope{Entity: ""})
	require.ErrorIs(t, err, sharding.ErrEntityID)
	require.ErrorIs(t, r.StartEntity(t.Context(), "a"), sharding.ErrShard)
	_, err = sharding.ShardRefOf(f, "t", 12)
	require.ErrorIs(t, err, sharding.ErrShard)
	require.ErrorContains(t, err, "0 to 11")
	_, err = sharding.ShardRefOfEntity(f, "t", strings.Repeat("x", 1025))
	require.ErrorIs(t, err, sharding.ErrEntityID)
	f.err = sharding.ErrNoType
	_, err = sharding.ShardRefOf(f, "t", 1)
	require.ErrorIs(t, err, sharding.ErrNoType)
	assert.Len(t, f.woken, 1)
}

// A UUID has its dashes in four places and nowhere else.
func TestParseIncarnation(t *testing.T) {
	want := sharding.NewIncarnation()
	got, err := sharding.ParseIncarnation(want.String())
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for _, bad := range []string{"", "x", want.String()[:35], want.String() + "0", "0-234567-0123-0123-0123-0123456789ab", "01234567-0123-0123-0123-0123456789--",
		"0123456g-0123-0123-0123-0123456789ab", strings.Repeat("-", 36)} {
		_, err := sharding.ParseIncarnation(bad)
		require.ErrorContains(t, err, "is no UUID", bad)
	}
}
