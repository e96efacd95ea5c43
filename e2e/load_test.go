package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// op is one message to a counter: an add of one, or a look.
type op struct {
	entity string
	get    bool
}

// result is how it ended.
type result struct {
	value   int64
	unknown bool // no answer: it may have been done, now or later
}

// counterState is what a counter in memory can be: its value, and how often it may still be lost with its owner.
type counterState struct {
	value  int64
	resets uint64
}

// counterModel is a counter that loses its value at most resets times: once for each change of its shard's owner. Two owners alive at once, or an
// acknowledgement of an old one after the new one's, count on from a value that is gone, which no order of the messages explains.
func counterModel(resets uint64) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{counterState{resets: resets}} },
		Step: func(state, input, output any) (next []any) {
			s, in, out := state.(counterState), input.(op), output.(result)
			by := int64(1)
			if in.get {
				by = 0
			}
			if out.unknown {
				next = append(next, s) // not done
			}
			for _, from := range []counterState{s, {0, s.resets - 1}} {
				if from != s && s.resets == 0 {
					continue
				}
				if out.unknown || from.value+by == out.value {
					next = append(next, counterState{from.value + by, from.resets})
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

// load sends adds from several nodes until it is stopped, and remembers every one.
type load struct {
	t      *testing.T
	before shardMap
	via    []*node
	stop   context.CancelFunc
	wg     sync.WaitGroup
	start  time.Time

	mu       sync.Mutex
	history  map[string][]porcupine.Operation
	failures []error
	undone   int // surely not done
	acked    map[string]int64
	last     map[string]int64 // the value that the newest acknowledged add of an entity gave
}

const (
	loadPace    = 4 * time.Millisecond // between one client's messages
	loadTimeout = 5 * time.Second      // of an ask
)

// startLoad lets clients add to the entities, each through its own node by turns: client i uses via[i mod len].
// Every entity belongs to two clients, so that orders matter and can be checked.
func startLoad(t *testing.T, clients int, entities []string, via ...*node) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, before: via[0].shards(), via: via, stop: cancel, start: time.Now(), history: map[string][]porcupine.Operation{}, acked: map[string]int64{}, last: map[string]int64{}}
	for i := range clients {
		var mine []string
		for j, e := range entities {
			if j%clients == i || (j+1)%clients == i {
				mine = append(mine, e)
			}
		}
		l.wg.Go(func() { l.client(ctx, i, via[i%len(via)], mine) })
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

func (l *load) client(ctx context.Context, id int, n *node, entities []string) {
	pace := time.NewTicker(loadPace)
	defer pace.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			l.one(id, n, op{entity: entities[i%len(entities)]})
		}
	}
}

// one sends one message and notes it.
func (l *load) one(client int, n *node, o op) {
	called := time.Since(l.start)
	r, done, err := send(n, o)
	returned := time.Since(l.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s (shard %d) through %s, sent at %s: %w", o.entity, sharding.ShardOf(o.entity, l.before.NumShards), n.name, l.start.Add(called).UTC().Format("15:04:05.000"), err))
	}
	if !done {
		l.undone++
		return
	}
	record := porcupine.Operation{ClientId: client, Input: o, Output: r, Call: int64(called), Return: int64(returned)}
	if r.unknown {
		record.Return = int64(24 * time.Hour) // it may take effect at any later time
	} else if !o.get {
		l.acked[o.entity]++
		l.last[o.entity] = max(l.last[o.entity], r.value)
	}
	l.history[o.entity] = append(l.history[o.entity], record)
}

// send makes one message of an op. done is false where it surely had no effect.
func send(n *node, o op) (r result, done bool, err error) {
	body := `{"add":1}`
	if o.get {
		body = `{"get":true}`
	}
	url := fmt.Sprintf("http://%s/entities/counter/%s?timeout=%s", n.http, o.entity, loadTimeout)
	answer, err := client.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		refused := errors.Is(err, syscall.ECONNREFUSED)
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			refused = true
		}
		return result{unknown: true}, !refused, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return result{unknown: true}, true, err
	}
	if answer.StatusCode != http.StatusOK {
		p := &problem{}
		if err := json.Unmarshal(raw, p); err != nil {
			return result{unknown: true}, true, fmt.Errorf("%d: %s", answer.StatusCode, raw)
		}
		return result{unknown: true}, p.Type != "urn:drover:problem:unavailable", p
	}
	var reply struct{ Value int64 }
	err = json.Unmarshal(raw, &reply)
	return result{value: reply.Value}, true, err
}

// progress waits until so many more adds have been acknowledged.
func (l *load) progress(more int64) {
	l.t.Helper()
	from := l.count()
	eventually(l.t, fmt.Sprintf("%d more adds are acknowledged", more), func() error {
		if now := l.count(); now < from+more {
			return fmt.Errorf("%d are", now-from)
		}
		return nil
	})
}

func (l *load) count() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.acked {
		n += v
	}
	return n
}

// end stops the clients, looks at every counter, and judges the whole history: on each shard at most as many losses of state as its epoch grew.
// It gives the map after the load.
func (l *load) end(through *node) shardMap {
	l.t.Helper()
	l.stop()
	l.wg.Wait()
	for e := range l.history {
		eventually(l.t, "a look at "+e, func() error {
			r, _, err := send(through, op{entity: e, get: true})
			if err != nil {
				return err
			}
			now := int64(time.Since(l.start))
			l.history[e] = append(l.history[e], porcupine.Operation{ClientId: 1 << 20, Input: op{entity: e, get: true}, Output: r, Call: now, Return: now + 1})
			return nil
		})
	}
	after := through.shards()
	before, rows := l.before.by(), after.by()
	for e, ops := range l.history {
		s := sharding.ShardOf(e, after.NumShards)
		first := max(before[s].Epoch, 1)
		require.GreaterOrEqual(l.t, rows[s].Epoch, first, "epoch of shard %d, of which %s has just been asked", s, e)
		resets := rows[s].Epoch - first
		switch porcupine.CheckOperationsTimeout(counterModel(resets), ops, patience) {
		case porcupine.Illegal:
			l.t.Errorf("%s (shard %d, epochs %d to %d, %d messages): no order of the messages explains the answers:\n%s", e, s, before[s].Epoch, rows[s].Epoch, len(ops), describe(ops))
		case porcupine.Unknown:
			l.t.Errorf("%s: %d messages could not be judged in time", e, len(ops))
		}
		if resets == 0 && !slices.ContainsFunc(ops, func(o porcupine.Operation) bool { return o.Output.(result).unknown }) {
			require.Equal(l.t, l.acked[e], ops[len(ops)-1].Output.(result).value, "%s on shard %d, which did not move: its value is the number of adds", e, s)
		}
	}
	l.t.Logf("load: %d adds acknowledged, %d surely not done, %d errors", l.count(), l.undone, len(l.failures))
	return after
}

// unfailing judges that no message failed in any way.
func (l *load) unfailing() {
	l.t.Helper()
	require.Empty(l.t, l.failures, "messages that failed")
}

func describe(ops []porcupine.Operation) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var out bytes.Buffer
	for i, o := range ops {
		r := o.Output.(result)
		if i > 0 && i < len(ops)-1 && !r.unknown && ops[i-1].Output.(result).value+1 == r.value {
			continue // nothing odd
		}
		fmt.Fprintf(&out, "  #%d client %d %v → %v: %+v\n", i, o.ClientId, time.Duration(o.Call), time.Duration(o.Return), r)
	}
	return out.String()
}

// ids makes entity ids that no other load uses.
func ids(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%d", prefix, i))
	}
	return out
}

// The judge itself: what it must accept and what it must refuse.
func TestCounterModel(t *testing.T) {
	add := func(call, ret int64, value int64) porcupine.Operation {
		return porcupine.Operation{Input: op{}, Output: result{value: value}, Call: call, Return: ret}
	}
	lost := func(call int64) porcupine.Operation {
		return porcupine.Operation{Input: op{}, Output: result{unknown: true}, Call: call, Return: 1 << 40}
	}
	for name, c := range map[string]struct {
		resets uint64
		ops    []porcupine.Operation
		want   bool
	}{
		"counting":                       {0, []porcupine.Operation{add(1, 2, 1), add(3, 4, 2)}, true},
		"at once":                        {0, []porcupine.Operation{add(1, 9, 2), add(2, 8, 1)}, true},
		"doubled":                        {0, []porcupine.Operation{add(1, 2, 1), add(3, 4, 3)}, false},
		"lost":                           {0, []porcupine.Operation{add(1, 2, 1), add(3, 4, 1)}, false},
		"lost with an owner":             {1, []porcupine.Operation{add(1, 2, 1), add(3, 4, 2), add(5, 6, 1)}, true},
		"lost twice with one owner":      {1, []porcupine.Operation{add(1, 2, 1), add(3, 4, 1), add(5, 6, 1)}, false},
		"two owners alive":               {1, []porcupine.Operation{add(1, 2, 1), add(3, 4, 2), add(5, 6, 1), add(7, 8, 3)}, false},
		"unknown and done":               {0, []porcupine.Operation{add(1, 2, 1), lost(3), add(5, 6, 3)}, true},
		"unknown and not done":           {0, []porcupine.Operation{add(1, 2, 1), lost(3), add(5, 6, 2)}, true},
		"unknown explains no two":        {0, []porcupine.Operation{add(1, 2, 1), lost(3), add(5, 6, 4)}, false},
		"unknown is not before its call": {0, []porcupine.Operation{add(1, 2, 2), lost(3)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, porcupine.CheckOperations(counterModel(c.resets), c.ops))
		})
	}
}
