package dataplane

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/droverhq/drover/sharding/protocol"
)

// A reply counts from whoever knows the Ask's number, as the owner may have changed on the way: so nobody may tell one number from another.
func TestNumbersOfAsksTellNothing(t *testing.T) {
	a := asks{waiting: map[uint64]chan protocol.Reply{}}
	first, _ := a.begin()
	_, ch := a.begin()
	for d := range uint64(1000) {
		a.end(protocol.Reply{Ask: first + 1 + d})
		a.end(protocol.Reply{Ask: first - 1 - d})
	}
	select {
	case <-ch:
		t.Fatal("a reply was forged")
	default:
	}
	assert.Len(t, a.waiting, 2)
}
