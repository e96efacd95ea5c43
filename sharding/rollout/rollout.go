// Package rollout is the leader's part of a change of strategy (spec 1.4), as a pure machine: the module is fetched, admitted and stored on a majority of
// the voters, and then the entry that activates it, or makes it a shadow, is ordered. A step that fails ends the change, and the strategy in force stays.
// What a step takes, such as a compiler, a disk or a connection, is the shell's: package node's in a cluster, package simulation's in proofs.
//
// It imports no package but sharding, and knows neither strategies nor entries.
package rollout

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/sharding"
)

// Mutations names the rules that a mutation test can take out.
type Mutations struct {
	Majority bool // order the entry as soon as this server has the module
}

// Step is how far a change has come.
type Step uint8

// The steps, in order.
const (
	Fetching Step = iota
	Admitting
	Storing   // on this server
	Spreading // to the other voters
	Ordering
	Done
)

// String names the step.
func (s Step) String() string {
	switch s {
	case Fetching:
		return "fetching"
	case Admitting:
		return "admitting"
	case Storing:
		return "storing"
	case Spreading:
		return "spreading"
	case Ordering:
		return "ordering"
	case Done:
		return "done"
	}
	return "unknown"
}

// Event is what happens to a change.
type Event interface{ event() }

type (
	// Began starts it; it comes first, and once.
	Began struct{}
	// Fetched ends Fetch, Admitted Admit, Stored a Store, Ordered the Order. Err nil is success.
	Fetched  struct{ Err error }
	Admitted struct{ Err error }
	Stored   struct {
		Server sharding.Incarnation
		Err    error
	}
	Ordered struct{ Err error }
	// Counted ends CountVoters: the servers whose votes count now, each once.
	Counted struct {
		Voters []sharding.Incarnation
		Err    error
	}
)

func (Began) event()    {}
func (Fetched) event()  {}
func (Admitted) event() {}
func (Stored) event()   {}
func (Ordered) event()  {}
func (Counted) event()  {}

// Command is what a change wants done.
type Command interface{ command() }

type (
	// Fetch gets the module: from who asked for the change, from this server's store, or from any node.
	Fetch struct{}
	// Admit has the host judge and compile it.
	Admit struct{}
	// Store stores it durably on a server, this one or another. The shell bounds the time.
	Store struct{ Server sharding.Incarnation }
	// CountVoters asks which servers vote.
	CountVoters struct{}
	// Order puts the entry into the log.
	Order struct{}
	// End is the last command. Err is nil where the entry is in the log, else why the step failed.
	End struct {
		Step Step
		Err  error
	}
)

func (Fetch) command()       {}
func (Admit) command()       {}
func (Store) command()       {}
func (CountVoters) command() {}
func (Order) command()       {}
func (End) command()         {}

// UnspreadError says that no majority of the voters could store the module.
type UnspreadError struct{ Have, Voters int }

// Error gives both numbers.
func (e *UnspreadError) Error() string {
	return fmt.Sprintf("only %d of %d voters could store the module", e.Have, e.Voters)
}

// Machine is one change. One goroutine owns it.
type Machine struct {
	self   sharding.Incarnation
	off    Mutations
	step   Step
	voters []sharding.Incarnation
	stores map[sharding.Incarnation]storage
	ended  bool
	cmds   []Command
}

// storage is how a server fares with the module.
type storage uint8

const (
	unasked storage = iota
	asked
	has
	failed
)

// New makes the change of a server that leads. off takes rules out; only mutation tests set it.
func New(self sharding.Incarnation, off Mutations) *Machine {
	return &Machine{self: self, off: off, stores: map[sharding.Incarnation]storage{}}
}

// At is the step that the change is in.
func (m *Machine) At() Step { return m.step }

// Step takes one event and returns what is to be done, in order; nothing after End.
func (m *Machine) Step(ev Event) []Command {
	m.cmds = nil
	if m.ended {
		return nil
	}
	switch ev := ev.(type) {
	case Began:
		m.do(Fetch{})
	case Fetched:
		if m.proceed(Fetching, Admitting, ev.Err) {
			m.do(Admit{})
		}
	case Admitted:
		if m.proceed(Admitting, Storing, ev.Err) {
			m.store(m.self)
		}
	case Stored:
		m.stored(ev)
	case Counted:
		m.counted(ev)
	case Ordered:
		if m.step == Ordering {
			m.end(ev.Err)
		}
	}
	return m.cmds
}

func (m *Machine) do(c Command) { m.cmds = append(m.cmds, c) }

func (m *Machine) end(err error) {
	m.ended = true
	m.do(End{Step: m.step, Err: err})
	if err == nil {
		m.step = Done
	}
}

// proceed goes on to the next step, or ends the change; false: it does not go on.
func (m *Machine) proceed(from, to Step, err error) bool {
	if m.step != from {
		return false
	}
	if err != nil {
		m.end(err)
		return false
	}
	m.step = to
	return true
}

func (m *Machine) store(server sharding.Incarnation) {
	m.stores[server] = asked
	m.do(Store{Server: server})
}

func (m *Machine) stored(ev Stored) {
	if m.stores[ev.Server] != asked {
		return
	}
	m.stores[ev.Server] = has
	if ev.Err != nil {
		m.stores[ev.Server] = failed
	}
	switch {
	case ev.Server == m.self:
		if !m.proceed(Storing, Spreading, ev.Err) {
			return
		}
		if m.off.Majority {
			m.step = Ordering
			m.do(Order{})
			return
		}
		m.do(CountVoters{})
	case m.step == Spreading && m.voters != nil:
		m.look()
	}
}

// counted takes the voters of this moment. They are asked for again once a majority has the module: one that has come since then counts too.
func (m *Machine) counted(ev Counted) {
	if m.step != Spreading || m.voters != nil {
		return
	}
	if ev.Err != nil {
		m.end(ev.Err)
		return
	}
	m.voters = append([]sharding.Incarnation{}, ev.Voters...)
	if m.majority() {
		m.step = Ordering
		m.do(Order{})
		return
	}
	for _, v := range m.voters {
		if m.stores[v] == unasked {
			m.store(v)
		}
	}
	m.look()
}

// look sees whether a majority has the module, or can't have it any more.
func (m *Machine) look() {
	switch {
	case m.majority():
		m.voters = nil
		m.do(CountVoters{})
	case !slices.ContainsFunc(m.voters, func(v sharding.Incarnation) bool { return m.stores[v] == asked }):
		m.end(&UnspreadError{Have: m.have(), Voters: len(m.voters)})
	}
}

func (m *Machine) have() (n int) {
	for _, v := range m.voters {
		if m.stores[v] == has {
			n++
		}
	}
	return n
}

func (m *Machine) majority() bool { return 2*m.have() > len(m.voters) }
