package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/strategist"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// changeOrder asks the leader for a change to a strategy that the cluster knows: its shadow promoted or ended, or the one before brought back. Expect and
// Shadow are the numbers of the strategy and the shadow that it is about.
type changeOrder struct {
	Op     string            `cbor:"0,keyasint"`
	Type   sharding.TypeName `cbor:"1,keyasint"`
	Expect uint64            `cbor:"2,keyasint"`
	Shadow uint64            `cbor:"3,keyasint"`
}

// The changes.
const (
	changePromote   = "promote"
	changeRollback  = "rollback"
	changeEndShadow = "end-shadow"
)

// shadowRecord is a shadow with what the leader has seen of it.
type shadowRecord struct {
	Spec       protocol.StrategySpec `cbor:"0,keyasint"`
	Name       string                `cbor:"1,keyasint"`
	State      string                `cbor:"2,keyasint"`
	Set        int64                 `cbor:"3,keyasint"`           // ms since 1970
	Since      int64                 `cbor:"4,keyasint,omitempty"` // ns since 1970; 0: there was no question yet
	Calls      uint64                `cbor:"5,keyasint"`
	Failures   uint64                `cbor:"6,keyasint"`
	Skipped    uint64                `cbor:"7,keyasint"`
	Compared   uint64                `cbor:"8,keyasint"`
	Differed   uint64                `cbor:"9,keyasint"`
	Agreed     uint64                `cbor:"10,keyasint"`
	Moves      [2]uint64             `cbor:"11,keyasint"`
	Last       *differenceRecord     `cbor:"12,keyasint,omitempty"`
	Failure    *strategyFailure      `cbor:"13,keyasint,omitempty"`
	LastFuel   *uint64               `cbor:"14,keyasint,omitempty"`
	P99Fuel    *uint64               `cbor:"15,keyasint,omitempty"`
	LastMicros *uint64               `cbor:"16,keyasint,omitempty"`
	P99Micros  *uint64               `cbor:"17,keyasint,omitempty"`
}

// differenceRecord has the answers of the strategy in force and of the shadow.
type differenceRecord struct {
	Op    pluginapi.Op    `cbor:"0,keyasint"`
	At    int64           `cbor:"1,keyasint"` // ns since 1970
	Moves [2][]moveRecord `cbor:"2,keyasint"`
	Count [2]int          `cbor:"3,keyasint"`
}

type moveRecord struct {
	Shard  uint32 `cbor:"0,keyasint"`
	From   string `cbor:"1,keyasint,omitempty"`
	To     string `cbor:"2,keyasint,omitempty"`
	Reason []byte `cbor:"3,keyasint,omitempty"` // a module may have written it: any bytes
}

// shadowRecord tells of a type's shadow; nil: it has none.
func (n *Node) shadowRecord(t sharding.TypeName, term uint64, v *coordinator.StrategyView) *shadowRecord {
	if !v.Shadow.On() {
		return nil
	}
	c := n.strategist.Comparison(t, term, v.Seq, v.Shadow.Seq)
	state, name := n.strategist.State(v.Shadow.Spec)
	out := &shadowRecord{Spec: v.Shadow.Spec, Name: name, State: string(httpapi.ShadowRunning), Set: v.Shadow.Set, Calls: c.Calls, Failures: c.Failures, Skipped: c.Skipped,
		Compared: c.Compared, Differed: c.Differed, Agreed: c.Agreed, Moves: c.Moves, LastFuel: c.LastFuel, P99Fuel: c.P99Fuel, LastMicros: c.LastMicros, P99Micros: c.P99Micros}
	switch state {
	case strategist.Missing:
		out.State = string(httpapi.ShadowMissing)
	case strategist.Preparing, strategist.Unknown:
		out.State = string(httpapi.ShadowPreparing)
	}
	if !c.Since.IsZero() {
		out.Since = c.Since.UnixNano()
	}
	if f := c.Failure; f != nil {
		out.Failure = &strategyFailure{v.Shadow.Spec.Digest, v.Shadow.Spec.Source, f.Verdict, []byte(f.Detail)}
	}
	if d := c.Last; d != nil {
		out.Last = &differenceRecord{Op: d.Op, At: d.At.UnixNano(), Count: d.Count}
		for i, moves := range d.Moves {
			for _, m := range moves {
				out.Last.Moves[i] = append(out.Last.Moves[i], moveRecord{m.Shard, m.From, m.To, []byte(m.Reason)})
			}
		}
	}
	return out
}

func shadowView(r *shadowRecord) *httpapi.ShadowView {
	if r == nil {
		return nil
	}
	v := &httpapi.ShadowView{Name: r.Name, Digest: digestText(r.Spec.Digest), Source: sourceOf(r.Spec.Source, r.Spec.Digest), State: httpapi.ShadowState(r.State),
		Set: timeText(time.UnixMilli(r.Set)), Calls: r.Calls, Failures: r.Failures, Skipped: r.Skipped, Compared: r.Compared, Differed: r.Differed, Agreed: r.Agreed,
		Moves: httpapi.BothCounts{Active: r.Moves[0], Shadow: r.Moves[1]},
		Fuel:  httpapi.FuelView{Last: r.LastFuel, P99: r.P99Fuel, Limit: r.Spec.Fuel}, Time: httpapi.TimeView{Last: r.LastMicros, P99: r.P99Micros}}
	if r.Since != 0 {
		since := timeText(time.Unix(0, r.Since))
		v.Since = &since
	}
	if f := r.Failure; f != nil {
		v.LastFailure = failureView(f)
	}
	if d := r.Last; d != nil {
		v.Last = &httpapi.DifferenceView{Op: d.Op.String(), At: timeText(time.Unix(0, d.At)), Active: movesView(d.Moves[0]), Shadow: movesView(d.Moves[1]),
			Counts: httpapi.BothCounts{Active: uint64(d.Count[0]), Shadow: uint64(d.Count[1])}}
	}
	return v
}

func movesView(moves []moveRecord) []httpapi.MoveView {
	out := make([]httpapi.MoveView, 0, len(moves))
	for _, m := range moves {
		out = append(out, httpapi.MoveView{Shard: sharding.ShardID(m.Shard), From: sharding.NodeID(m.From), To: sharding.NodeID(m.To),
			Reason: strings.ToValidUTF8(string(m.Reason), "\ufffd")})
	}
	return out
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func digestText(d modules.Digest) string {
	if d == (modules.Digest{}) {
		return ""
	}
	return "sha256:" + d.String()
}

// change is the leader's part of a promote, a rollback, or the end of a shadow. What becomes active is on a majority of the voters then, whatever has
// happened to their disks since it was last.
func (n *Node) change(ctx context.Context, o changeOrder) error {
	if !n.leads() {
		return errNotLeader
	}
	if o.Op == changeEndShadow {
		return n.order(ctx, coordinator.SetShadow{Type: o.Type, Expect: &o.Expect, Shadow: &o.Shadow})
	}
	var v coordinator.StrategyView
	n.plane.View(func() { v, _ = n.machine.State().Strategy(o.Type) })
	var spec protocol.StrategySpec
	var req coordinator.Request
	switch o.Op {
	case changePromote:
		spec, req = v.Shadow.Spec, coordinator.PromoteShadow{Type: o.Type, Expect: &o.Expect, Shadow: &o.Shadow}
	case changeRollback:
		spec, req = v.Previous, coordinator.RollBack{Type: o.Type, Expect: &o.Expect}
	default:
		return fmt.Errorf("this node does not know the change %q: it runs another release", o.Op)
	}
	if v.Seq != o.Expect || spec.Digest == ([32]byte{}) || o.Op == changePromote && v.Shadow.Seq != o.Shadow {
		return n.order(ctx, req) // refused, in the coordinator's words
	}
	return n.rollOut(ctx, spec, nil, req)
}

func (n *Node) orderChange(ctx context.Context, o changeOrder) error {
	body, err := cbor.Marshal(o)
	if err != nil {
		return err
	}
	_, err = n.callLeader(ctx, callChange, body)
	return err
}

// strategyView gives a type's entry of GET /cluster/strategies.
func (a api) strategyView(ctx context.Context, t sharding.TypeName) (httpapi.StrategyView, error) {
	rec, err := a.n.strategyOf(ctx, t)
	return viewOf(rec), err
}

func (a api) Promote(ctx context.Context, t sharding.TypeName, digest *[32]byte) (httpapi.StrategyView, error) {
	r, err := a.n.strategyOf(ctx, t)
	switch {
	case err != nil:
		return httpapi.StrategyView{}, err
	case r.Shadow == nil && digest != nil && *digest == r.Spec.Digest: // it has been, as when the answer got lost
		return viewOf(r), nil
	case r.Shadow == nil:
		return httpapi.StrategyView{}, &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("%s has no shadow to promote", t),
			Hint: fmt.Sprintf("start one: drover strategy shadow %s FILE", t)}
	case digest != nil && *digest != r.Shadow.Spec.Digest:
		return httpapi.StrategyView{}, &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("the shadow of %s is %s, not %s", t, digestText(r.Shadow.Spec.Digest), digestText(*digest)),
			Hint: fmt.Sprintf("look what it does: drover strategy shadow %s", t)}
	}
	if err := a.n.orderChange(ctx, changeOrder{Op: changePromote, Type: t, Expect: r.Seq, Shadow: r.ShadowSeq}); err != nil {
		return httpapi.StrategyView{}, err
	}
	return a.strategyView(ctx, t)
}

func (a api) Rollback(ctx context.Context, t sharding.TypeName, from *[32]byte) (httpapi.StrategyView, error) {
	r, err := a.n.strategyOf(ctx, t)
	switch {
	case err != nil:
		return httpapi.StrategyView{}, err
	case from != nil && *from != r.Spec.Digest:
		return httpapi.StrategyView{}, &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("%s runs %s, not %s", t, digestText(r.Spec.Digest), digestText(*from)),
			Hint: "it was rolled back or replaced already: drover strategy list"}
	case r.Previous.Digest == ([32]byte{}):
		return httpapi.StrategyView{}, &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("%s has nothing to go back to: no other strategy has given a decision before", t),
			Hint: fmt.Sprintf("name one: drover strategy swap %s builtin:leastshard", t)}
	}
	if err := a.n.orderChange(ctx, changeOrder{Op: changeRollback, Type: t, Expect: r.Seq}); err != nil {
		return httpapi.StrategyView{}, err
	}
	return a.strategyView(ctx, t)
}

func (a api) EndShadow(ctx context.Context, t sharding.TypeName) (httpapi.StrategyView, error) {
	r, err := a.n.strategyOf(ctx, t)
	if err != nil || r.Shadow == nil { // it has none: that is what was asked for
		return viewOf(r), err
	}
	if err := a.n.orderChange(ctx, changeOrder{Op: changeEndShadow, Type: t, Expect: r.Seq, Shadow: r.ShadowSeq}); err != nil {
		return httpapi.StrategyView{}, err
	}
	return a.strategyView(ctx, t)
}
