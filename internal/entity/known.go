package entity

import (
	"hash/maphash"
	"slices"

	"github.com/droverhq/drover/sharding/protocol"
)

// An entity remembers the latest commands that it was given and what it answered, so that a retry is answered and not applied again (spec 5.4). What
// it remembers is part of its memory, and is lost with it.
const (
	maxKnown      = 64      // commands of one entity
	maxKnownBytes = 1 << 20 // of their replies together; the latest one is kept whatever its size
)

// known are the commands of one entity, the oldest first. The zero value is empty and takes no memory. The cell's lock guards it and its results.
type known []*result

// result is one command and what it was answered.
type result struct {
	id      protocol.Command
	payload uint64 // hash of the message: one id names one message
	reply   protocol.Reply
}

var seed = maphash.MakeSeed()

func (k known) find(id protocol.Command) *result {
	for _, r := range k {
		if r.id == id {
			return r
		}
	}
	return nil
}

// begin takes a command in, and drops the oldest one where there are too many.
func (k *known) begin(id protocol.Command, payload uint64) *result {
	r := &result{id: id, payload: payload}
	if len(*k) == maxKnown {
		*k = slices.Delete(*k, 0, 1)
	}
	*k = append(*k, r)
	return r
}

// end keeps the reply of a command. One that the entity did not understand is forgotten: nothing was done, and it may come again in other words.
func (k *known) end(r *result, reply protocol.Reply) {
	if reply.Status == protocol.StatusBadMessage {
		*k = slices.DeleteFunc(*k, func(o *result) bool { return o == r })
		return
	}
	r.reply = reply
	size := 0
	for _, o := range *k {
		size += len(o.reply.Payload)
	}
	for size > maxKnownBytes && len(*k) > 1 && (*k)[0] != r {
		size -= len((*k)[0].reply.Payload)
		*k = slices.Delete(*k, 0, 1)
	}
}

// again answers a command that is known. One that is not is taken in and must be handled. Only the worker that runs the cell calls it, and no message
// is begun before the one before it has its result: a retry never overtakes Later.
func (c *cell) again(x *call) bool {
	if x.d.Command == (protocol.Command{}) || x.d.Mode == protocol.Start {
		return false
	}
	sum := maphash.Bytes(seed, x.d.Payload)
	c.mu.Lock()
	r := c.known.find(x.d.Command)
	if r == nil {
		x.result = c.known.begin(x.d.Command, sum)
		c.mu.Unlock()
		return false
	}
	reply := r.reply
	same := r.payload == sum
	c.mu.Unlock()
	if !same {
		reply = protocol.Reply{Status: protocol.StatusBadMessage, Payload: []byte(otherMessage)}
	}
	x.send(reply)
	return true
}

const otherMessage = "the command id (Idempotency-Key) was given to another message of this entity before: take a new one"

// lose forgets what the entity had in memory.
func (c *cell) lose() {
	c.behavior = nil
	c.mu.Lock()
	c.known = nil
	c.mu.Unlock()
}
