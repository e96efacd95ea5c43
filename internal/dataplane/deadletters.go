package dataplane

import (
	"strings"
	"sync"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// DeadLetter is a message that was not delivered. Payloads are not kept: they may be secret.
type DeadLetter struct {
	At     time.Time         `json:"at"`
	Type   sharding.TypeName `json:"type"`
	Shard  sharding.ShardID  `json:"shard"`
	Entity string            `json:"entity"`
	Sender sharding.Member   `json:"sender"`
	Mode   string            `json:"mode"`
	Reason string            `json:"reason"`
	Bytes  int               `json:"bytes"` // of the payload
}

// DeadLetters is a bounded ring, newest last.
type DeadLetters struct {
	mu    sync.Mutex
	ring  []DeadLetter
	total uint64
	said  time.Time // when the last one was logged
}

func newDeadLetters(n int) *DeadLetters { return &DeadLetters{ring: make([]DeadLetter, 0, n)} }

// logEvery bounds what dead letters write to the log.
const logEvery = time.Second

// add keeps a letter, and says whether it should be logged too.
func (l *DeadLetters) add(d *protocol.Deliver, why string) bool {
	now := time.Now()
	e := DeadLetter{now, sharding.TypeName(strings.Clone(string(d.Type))), d.Shard, strings.Clone(d.Entity), lasting(d.Sender, sharding.Member{}), d.Mode.String(), why,
		len(d.Payload)} // clones: what a frame brought would keep the whole frame
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < cap(l.ring) {
		l.ring = append(l.ring, e)
	} else {
		l.ring[l.total%uint64(cap(l.ring))] = e
	}
	l.total++
	if now.Sub(l.said) < logEvery {
		return false
	}
	l.said = now
	return true
}

// List gives what is kept, oldest first, and how many there have been in all.
func (l *DeadLetters) List() ([]DeadLetter, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < cap(l.ring) {
		return append([]DeadLetter(nil), l.ring...), l.total
	}
	at := l.total % uint64(cap(l.ring))
	return append(append([]DeadLetter(nil), l.ring[at:]...), l.ring[:at]...), l.total
}
