package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/strategist"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/region"
)

// metrics are this node's, documented in docs/metrics.md. Most are read from the parts when they are asked for.
type metrics struct {
	n        *Node
	registry *prometheus.Registry
	notes    *prometheus.CounterVec
	descs    map[string]*prometheus.Desc
}

// metricDocs lists the metrics that are read from the parts: name, help, labels.
var metricDocs = []struct {
	name, help string
	labels     []string
}{
	{"drover_directives_dropped_total", "Orders of a coordinator that did not count, by reason.", []string{"reason"}},
	{"drover_dead_letters_total", "Messages that reached no entity.", nil},
	{"drover_entity_panics_total", "Panics of entity code.", nil},
	{"drover_bad_frames_total", "Frames of peers that did not decode or came over the wrong connection.", nil},
	{"drover_sender_claims_dropped_total", "What peers said of too many senders that the map does not have: it did not count.", nil},
	{"drover_asks_total", "Asks sent from this node.", nil},
	{"drover_tells_total", "Tells sent from this node.", nil},
	{"drover_shards_suspended_total", "Shards that stopped serving because their lease lapsed or was taken, each time.", nil},
	{"drover_send_errors_total", "Frames that surely did not leave this node.", nil},
	{"drover_entities", "Live entities on this node, by type.", []string{"type"}},
	{"drover_shards", "Shards that run on this node, by type.", []string{"type"}},
	{"drover_members", "Members that gossip knows, by state.", []string{"state"}},
	{"drover_leader", "1 on the node whose coordinator leads.", nil},
	{"drover_rebalancing_paused", "1 while an operator has paused rebalancing, as this raft server's log has it.", nil},
	{"drover_term", "Newest term of a coordinator that this node has seen.", nil},
	{"drover_raft_voters", "Voters of the replicated log, as this raft server knows them.", nil},
	{"drover_map_index", "Revision of the shard map that this node has applied.", nil},
	{"drover_transport_frames_sent_total", "Frames sent, by class.", []string{"class"}},
	{"drover_transport_frames_received_total", "Frames received, by class.", []string{"class"}},
	{"drover_transport_frames_rejected_total", "Frames that were not taken, because the queue to the peer was full, it was away, or they were too large, by class.", []string{"class"}},
	{"drover_transport_frames_lost_total", "Frames that waited for a peer when the connection to it ended, by class.", []string{"class"}},
	{"drover_transport_bytes_sent_total", "Bytes of frames sent, by class.", []string{"class"}},
	{"drover_transport_bytes_received_total", "Bytes of frames received, by class.", []string{"class"}},
	{"drover_transport_refused_total", "Connections refused in the handshake, by reason.", []string{"reason"}},
	{"drover_strategy_calls_total", "Calls of a type's strategy made by this node as leader, by type.", []string{"type"}},
	{"drover_strategy_failures_total", "Calls that gave no decision, by type.", []string{"type"}},
	{"drover_strategy_verdicts_total", "Calls of the strategy that a type has at present made by this node as leader, by verdict.", []string{"type", "strategy", "verdict"}},
	{"drover_strategy_fuel_total", "Fuel that its calls have used, where that is known, in units.", []string{"type", "strategy"}},
	{"drover_strategy_seconds", "Time of its calls, in seconds.", []string{"type", "strategy"}},
	{"drover_shadow_calls_total", "Calls of a type's shadows made by this node as leader, by type.", []string{"type"}},
	{"drover_shadow_failures_total", "Calls of a type's shadows that gave no decision, by type.", []string{"type"}},
	{"drover_shadow_differed_total", "Questions that a type's shadow answered otherwise than the strategy in force, by type.", []string{"type"}},
	{"drover_records_written_total", "Records of strategy calls that were written to data_dir.", nil},
	{"drover_records_lost_total", "Records of strategy calls that were not, by reason.", []string{"reason"}},
	{"drover_records_bytes", "Size of the records in data_dir, in bytes.", nil},
}

func newMetrics(n *Node) *metrics {
	m := &metrics{n: n, registry: prometheus.NewRegistry(), descs: map[string]*prometheus.Desc{},
		notes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "drover_coordinator_events_total", Help: "What this node's coordinator did while it led, by kind."}, []string{"kind"})}
	for _, d := range metricDocs {
		m.descs[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	m.registry.MustRegister(m, m.notes, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) note(c coordinator.Note) { m.notes.WithLabelValues(c.Kind).Inc() }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range metricDocs {
		ch <- m.descs[d.name]
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	count := func(name string, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.descs[name], prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(name string, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.descs[name], prometheus.GaugeValue, v, labels...)
	}
	n := m.n
	select {
	case <-n.ready:
	default:
		return // the parts do not all stand yet
	}
	c := n.data.Counters()
	for r := range c.Dropped {
		if reason := region.DropReason(r).String(); reason != "unknown" {
			count("drover_directives_dropped_total", c.Dropped[r].Load(), reason)
		}
	}
	count("drover_dead_letters_total", c.DeadLetters.Load())
	count("drover_entity_panics_total", c.Panics.Load())
	count("drover_bad_frames_total", c.BadFrames.Load())
	count("drover_sender_claims_dropped_total", c.Claims.Load())
	count("drover_asks_total", c.Asks.Load())
	count("drover_tells_total", c.Tells.Load())
	count("drover_send_errors_total", c.SendErrors.Load())
	count("drover_shards_suspended_total", c.Suspended.Load())
	for _, t := range (api{n}).Types() {
		entities, shards := 0, 0
		for _, s := range n.data.Stats(t) {
			entities += s.Entities
			shards++
		}
		gauge("drover_entities", float64(entities), string(t))
		gauge("drover_shards", float64(shards), string(t))
		calls, failures := n.strategist.Totals(t)
		count("drover_strategy_calls_total", calls, string(t))
		count("drover_strategy_failures_total", failures, string(t))
		m.strategy(ch, t, count)
		calls, failures, differed := n.strategist.ShadowTotals(t)
		count("drover_shadow_calls_total", calls, string(t))
		count("drover_shadow_failures_total", failures, string(t))
		count("drover_shadow_differed_total", differed, string(t))
	}
	records := n.records.Stats()
	count("drover_records_written_total", records.Written)
	count("drover_records_lost_total", records.Dropped, "queue_full")
	count("drover_records_lost_total", records.Failed, "write_failed")
	gauge("drover_records_bytes", float64(records.Bytes))
	states := map[string]int{"joining": 0, "up": 0, "failed": 0, "left": 0, "draining": 0}
	stateOf := n.memberStates()
	for _, mem := range n.memberList() {
		states[stateOf(mem).String()]++
	}
	for s, v := range states {
		gauge("drover_members", float64(v), s)
	}
	_, term := n.data.Leader()
	_, rev := n.data.Registered()
	lead := 0.0
	if n.leads() {
		lead = 1
	}
	gauge("drover_leader", lead)
	gauge("drover_term", float64(term))
	gauge("drover_map_index", float64(rev.Index))
	if n.plane != nil {
		paused := 0.0
		n.plane.View(func() {
			if n.machine.State().Paused() {
				paused = 1
			}
		})
		gauge("drover_rebalancing_paused", paused)
		if voters, err := n.plane.VoterIDs(); err == nil { // not known: no sample is better than a wrong one
			gauge("drover_raft_voters", float64(len(voters)))
		}
	}
	stats := n.transport.Stats()
	for class := transport.Control; class <= transport.Raft; class++ {
		s := stats.Classes[class]
		count("drover_transport_frames_sent_total", s.FramesSent, class.String())
		count("drover_transport_frames_received_total", s.FramesReceived, class.String())
		count("drover_transport_frames_rejected_total", s.Rejected, class.String())
		count("drover_transport_frames_lost_total", s.FramesLost, class.String())
		count("drover_transport_bytes_sent_total", s.BytesSent, class.String())
		count("drover_transport_bytes_received_total", s.BytesReceived, class.String())
	}
	for reason, v := range stats.Refused {
		name := reason.String()
		if name == "" {
			name = strconv.Itoa(int(reason))
		}
		count("drover_transport_refused_total", v, name)
	}
}

// strategy tells of the strategy that a type has at present.
func (m *metrics) strategy(ch chan<- prometheus.Metric, t sharding.TypeName, count func(name string, v uint64, labels ...string)) {
	s, ok := m.n.strategist.Series(t)
	if !ok {
		return
	}
	for v, n := range s.Verdicts {
		count("drover_strategy_verdicts_total", n, string(t), s.Strategy, host.Verdict(v).String())
	}
	count("drover_strategy_fuel_total", s.Fuel, string(t), s.Strategy)
	buckets := map[float64]uint64{}
	for i, most := range strategist.TimeBuckets {
		buckets[most] = s.Buckets[i]
	}
	ch <- prometheus.MustNewConstHistogram(m.descs["drover_strategy_seconds"], s.Calls(), s.Seconds, buckets, string(t), s.Strategy)
}
