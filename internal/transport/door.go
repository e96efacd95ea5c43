package transport

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// handshakesOfAddr is how many unfinished handshakes one address may have. Strangers who say nothing keep a place for the whole of the handshake's
// time-out: one of them must not keep all.
const handshakesOfAddr = 64

// door counts the inbound handshakes that are unfinished, in all and by where they come from.
type door struct {
	most, mostOf int

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

// sourceOf is what counts as one address: of IPv6 the network that one host commonly has to itself.
func sourceOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}

func (d *door) enter(from netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.all >= d.most:
		return &crowdedError{what: fmt.Sprintf("%d handshakes are unfinished, no more are begun: look who connects to this port and says nothing", d.all)}
	case d.from[from] >= d.mostOf:
		return &crowdedError{what: fmt.Sprintf("%d handshakes from this address are unfinished, no more are begun: look what connects from there and says nothing", d.from[from])}
	}
	d.all++
	d.from[from]++
	return nil
}

func (d *door) leave(from netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all--
	if d.from[from]--; d.from[from] == 0 {
		delete(d.from, from)
	}
}
