package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// sample is a record with something in each field; n tells it from others.
func sample(n int) *host.Record {
	fuel := int64(1234 + n)
	r := &host.Record{Type: "counter", Strategy: "builtin:hash", Digest: host.DigestOf([]byte("module")), CostModel: 1, Op: pluginapi.OpRebalance,
		Input: append([]byte("input "), byte(n)), Output: []byte{0xa0, byte(n)}, Fuel: &fuel, FuelLimit: 50_000_000, MemoryLimit: 256, Pages: 3,
		Budget: 100 * time.Millisecond, Started: time.Unix(1_700_000_000, int64(n)), Elapsed: 42 * time.Microsecond, Verdict: host.VerdictOutput, Error: "bad answer: x",
		Log: []host.LogLine{{Level: slog.LevelWarn, Message: "hm"}}}
	r.InputDigest = sha256.Sum256(r.Input)
	return r
}

// Spec 1.3, "Records": what they hold comes back; null fuel and no output stay what they are.
func TestRecordsComeBack(t *testing.T) {
	full := sample(1)
	trap := sample(2)
	trap.Verdict, trap.Fuel, trap.Output, trap.Log, trap.Error = host.VerdictTrap, nil, nil, nil, "strategy trapped: unreachable"
	empty := sample(3)
	empty.Output, empty.Op, empty.Digest, empty.Pages = []byte{}, pluginapi.OpAllocate, host.Digest{}, 0
	for _, want := range []*host.Record{full, trap, empty} {
		lazy := *want
		lazy.InputDigest = host.Digest{}
		b, err := Encode(&lazy)
		require.NoError(t, err)
		same, err := Encode(want)
		require.NoError(t, err)
		require.Equal(t, same, b)
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for i := range b {
			_, err := Decode(b[:i])
			require.Error(t, err, "cut to %d bytes", i)
		}
		_, err = Decode(append(b, 0))
		require.Error(t, err, "a byte behind it")
	}
}

const goldenRecord = "b300010167636f756e746572026c6275696c74696e3a68617368035820120970d812836f19888625587a4606a5ad23cef31c8684e601771552548fc6b90401050206582087c2" +
	"dee80c7af9ed86786b52e159545b8c18dc3dba079c3efa0e2098a9b8cdb40747696e70757420010842a001091904d30a1a02faf0800b1901000c030d1a05f5e1000e1b17979c" +
	"fe362a00010f19a41010666f7574707574116d62616420616e737765723a20781281820462686d"

// The encoding is frozen: records outlive a release (ADR 2).
func TestEncodingIsFrozen(t *testing.T) {
	b, err := Encode(sample(1))
	require.NoError(t, err)
	require.Equal(t, goldenRecord, hex.EncodeToString(b))
	b, err = hex.DecodeString(goldenRecord)
	require.NoError(t, err)
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, sample(1), got)
}

func TestTextThatIsNone(t *testing.T) {
	r := sample(1)
	r.Error, r.Strategy, r.Type, r.Log[0].Message = "a\xff", "b\xff", "c\xff", "d\xff"
	b, err := Encode(r)
	require.NoError(t, err)
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, []string{"a�", "b�", "c�", "d�"}, []string{got.Error, got.Strategy, got.Type, got.Log[0].Message})
}

// What is too long loses its input first, then its output; the digest of the input stays.
func TestLongRecords(t *testing.T) {
	r := sample(1)
	r.Input = bytes.Repeat([]byte{7}, 3000)
	r.InputDigest = sha256.Sum256(r.Input)
	check := func(most int, input, output []byte) {
		b, err := encodeUpTo(r, most)
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), most)
		got, err := Decode(b)
		require.NoError(t, err)
		want := *r
		want.Input, want.Output = input, output
		require.Equal(t, &want, got)
	}
	check(4000, r.Input, r.Output)
	check(3100, nil, r.Output) // fits but for the rest
	r.Output = bytes.Repeat([]byte{8}, 2000)
	check(4000, nil, r.Output)
	check(1000, nil, nil)
	_, err := encodeUpTo(r, 100)
	require.ErrorContains(t, err, "at most 100")
}

func TestDecodeIsStrict(t *testing.T) {
	good, err := Encode(sample(1))
	require.NoError(t, err)
	with := func(key uint64, value any) []byte {
		var m map[uint64]any
		require.NoError(t, cbor.Unmarshal(good, &m))
		if m[key] = value; value == nil {
			delete(m, key)
		}
		b, err := cbor.Marshal(m)
		require.NoError(t, err)
		return b
	}
	got, err := Decode(with(200, "from a later release"))
	require.NoError(t, err, "unknown keys are skipped")
	require.Equal(t, sample(1), got)
	for want, b := range map[string][]byte{
		"unreadable record version 2":   with(0, 2),
		"it has no version":             with(0, nil),
		"a module digest of 0 bytes":    with(3, nil),
		"a module digest of 31":         with(3, make([]byte, 31)),
		"an input digest of 33":         with(6, make([]byte, 33)),
		"unknown operation 3":           with(5, 3),
		"unknown operation 0":           with(5, nil),
		"unknown operation 257":         with(5, 257), // not 1
		"not the one that its digest":   with(7, []byte("another")),
		"fuel 4503599627370496000":      with(9, uint64(host.MaxFuel)*4000),
		"fuel limit 1125899906842625":   with(10, uint64(host.MaxFuel)+1),
		"memory limit of 1025 pages":    with(11, host.MaxMemoryPages+1),
		"a time below zero":             with(15, -1),
		`unknown verdict "perhaps"`:     with(16, "perhaps"),
		"unknown verdict \"\"":          with(16, nil),
		"cost model 2147483648":         with(4, uint64(1)<<31),
		"cannot unmarshal":              with(2, 7),
		"exceeded max number of elem":   with(18, make([]any, maxArray+1)),
		"duplicate map key":             {0xa2, 0x00, 0x01, 0x00, 0x01},
		"indefinite-length":             {0xbf, 0x00, 0x01, 0xff},
		"cannot unmarshal byte string ": {0x41, 0x00},
	} {
		_, err := Decode(b)
		if assert.Error(t, err, want) {
			assert.Contains(t, err.Error(), want)
			assert.True(t, strings.HasPrefix(err.Error(), "decode record: "), err.Error())
		}
	}
	_, err = Decode(with(0, 2))
	require.ErrorIs(t, err, ErrVersion)
	_, err = Decode(make([]byte, MaxRecord+1))
	require.ErrorContains(t, err, "at most")
}

func FuzzDecode(f *testing.F) {
	for i := range 3 {
		b, err := Encode(sample(i))
		require.NoError(f, err)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte{0xa1, 0x00, 0x02})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(r)
		require.NoError(t, err)
		r2, err := Decode(again)
		require.NoError(t, err)
		require.Equal(t, r, r2)
	})
}

// A recorder must not keep what is only lent to it.
func TestCloneKeepsNothing(t *testing.T) {
	lent := sample(1)
	var p pending
	p.clone(sample(9))
	p.clone(lent)
	*lent.Fuel = 0
	clear(lent.Input)
	clear(lent.Output)
	lent.Log[0].Message = "other"
	require.Equal(t, sample(1), &p.rec)
	empty := &host.Record{Output: []byte{}}
	var q pending
	q.clone(empty)
	require.NotNil(t, q.rec.Output)
	require.Nil(t, q.rec.Input)
	r := sample(1)
	require.Zero(t, testing.AllocsPerRun(100, func() { p.clone(r) }))
}
