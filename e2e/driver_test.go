package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// patience bounds every wait. It is no promise of the product: a machine with two busy cores must not fail a test.
const patience = 90 * time.Second

// The settings of tests that need no others: quick, and still with a lease longer than a heartbeat.
var quick = []string{
	"sharding.lease_ttl=2s", "sharding.settle=300ms", "sharding.rebalance_interval=500ms", "sharding.move_cooldown=500ms",
	"raft.heartbeat_timeout=500ms", "type.counter.config.max_moves=100",
}

const (
	quickTTL       = 2 * time.Second
	quickHeartbeat = 500 * time.Millisecond
)

// cluster is a set of nodes that find one another.
type cluster struct {
	t     *testing.T
	set   []string // for every node
	nodes []*node
}

// node is one node of a cluster; its process comes and goes.
type node struct {
	c                       *cluster
	name                    string
	dir                     string // holds data/ and the log
	gossip, transport, http string
	set                     []string // this node's own
	join                    []string
	cold                    bool // starts without a cache of compiled strategies
	faulty                  bool // runs in the test binary, with fault points (faulty_test.go)

	cmd    *exec.Cmd
	ended  chan struct{} // closed once the process is gone
	code   int           // its exit code then; -1: by a signal
	paused bool
}

// newCluster makes a cluster without nodes; set is for all of them.
func newCluster(t *testing.T, set ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, set: set}
	t.TempDir() // its removal must come after end, which reads the logs
	t.Cleanup(c.end)
	return c
}

// end kills what still runs, and shows the logs of a failed test.
func (c *cluster) end() {
	for _, n := range c.nodes {
		if n.running() {
			syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL)
			<-n.ended
		}
	}
	if !c.t.Failed() {
		return
	}
	for _, n := range c.nodes {
		if *logs != "" {
			name := strings.ReplaceAll(c.t.Name(), "/", "-") + "-" + n.name + ".log"
			if err := os.WriteFile(filepath.Join(*logs, name), []byte(n.log()), 0o600); err != nil {
				c.t.Error(err)
			}
		}
		c.t.Logf("log of node %s (%s), its last lines:\n%s", n.name, n.http, tail(n.log(), 60))
	}
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// add defines a node that joins those defined before it; start starts it.
func (c *cluster) add(name string, set ...string) *node {
	c.t.Helper()
	n := &node{c: c, name: name, dir: c.t.TempDir(), set: set, gossip: freeAddress(c.t), transport: freeAddress(c.t), http: freeAddress(c.t)}
	for _, other := range c.nodes {
		n.join = append(n.join, other.gossip)
	}
	c.nodes = append(c.nodes, n)
	return n
}

// start defines and starts nodes, and waits until all are ready.
func (c *cluster) start(names ...string) []*node {
	c.t.Helper()
	var started []*node
	for _, name := range names {
		n := c.add(name)
		n.start()
		started = append(started, n)
	}
	for _, n := range started {
		n.awaitReady()
	}
	return started
}

// node gives a node by name.
func (c *cluster) node(name string) *node {
	c.t.Helper()
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	require.GreaterOrEqual(c.t, i, 0, "no node %q", name)
	return c.nodes[i]
}

// live lists the nodes whose processes run and are not stopped.
func (c *cluster) live() (out []*node) {
	for _, n := range c.nodes {
		if n.running() && !n.paused {
			out = append(out, n)
		}
	}
	return out
}

var ports struct {
	sync.Mutex
	used map[int]bool
}

// freeAddress finds a loopback port that is free for TCP and UDP, below those that the kernel hands out by itself, and never twice.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.used == nil {
		ports.used = map[int]bool{}
	}
	for range 1000 {
		port := 12000 + rand.IntN(20000)
		if ports.used[port] {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", address)
		tcp.Close()
		if err != nil {
			continue
		}
		udp.Close()
		ports.used[port] = true
		return address
	}
	t.Fatal("no free port")
	return ""
}

func quoted(list []string) string {
	b, _ := json.Marshal(list)
	return string(b)
}

// settings are the --set values of the node.
func (n *node) settings() []string {
	set := slices.Concat(n.c.set, []string{"name=" + n.name, "data_dir=" + n.data(), "gossip.bind=" + n.gossip, "transport.bind=" + n.transport, "http.address=" + n.http}, n.set)
	if len(n.join) > 0 {
		set = append(set, "gossip.join="+quoted(n.join))
	}
	return set
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }

func (n *node) log() string {
	b, err := os.ReadFile(filepath.Join(n.dir, "node.log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// shippedConfig is the node.toml in the repository's root.
const shippedConfig = "../node.toml"

// start starts the process, in a group of its own. It dies with the test binary.
func (n *node) start() {
	n.c.t.Helper()
	require.False(n.c.t, n.running(), "node %s runs already", n.name)
	if _, err := os.Stat(n.data()); err != nil && !n.cold {
		require.NoError(n.c.t, os.MkdirAll(n.data(), 0o700))
		require.NoError(n.c.t, os.CopyFS(filepath.Join(n.data(), "cache"), os.DirFS(warmCache)))
		require.NoError(n.c.t, os.Chmod(filepath.Join(n.data(), "cache"), 0o700))
	}
	if n.faulty {
		n.spawn(faultyCommand(n))
	} else {
		n.spawn(exec.Command(drover, n.args()...))
	}
}

// args is the command line of the node.
func (n *node) args() []string {
	args := []string{"run", "--config", shippedConfig}
	for _, s := range n.settings() {
		args = append(args, "--set", s)
	}
	return args
}

// spawn runs a command as this node.
func (n *node) spawn(cmd *exec.Cmd) {
	n.c.t.Helper()
	n.cmd = cmd
	out, err := os.OpenFile(filepath.Join(n.dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(n.c.t, err)
	defer out.Close()
	n.cmd.Stdout, n.cmd.Stderr = out, out
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(n.c.t, n.cmd.Start())
	n.ended, n.paused = make(chan struct{}), false
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		n.code = cmd.ProcessState.ExitCode()
		close(ended)
	}(n.cmd, n.ended)
}

func (n *node) running() bool {
	if n.cmd == nil || n.ended == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

func (n *node) signal(s syscall.Signal) {
	n.c.t.Helper()
	require.NoError(n.c.t, syscall.Kill(n.cmd.Process.Pid, s), "signal to node %s", n.name)
}

// awaitEnd waits until the process is gone and gives its exit code.
func (n *node) awaitEnd() int {
	n.c.t.Helper()
	select {
	case <-n.ended:
		return n.code
	case <-time.After(patience):
		n.c.t.Fatalf("node %s does not end", n.name)
		return 0
	}
}

// terminate ends a node in order (spec 5.1): it must end with exit code 0.
func (n *node) terminate() {
	n.c.t.Helper()
	n.signal(syscall.SIGTERM)
	require.Equal(n.c.t, 0, n.awaitEnd(), "exit code of node %s after SIGTERM", n.name)
}

// kill ends a node as a crash would.
func (n *node) kill() {
	n.c.t.Helper()
	n.signal(syscall.SIGKILL)
	n.awaitEnd()
}

func (n *node) pause()  { n.c.t.Helper(); n.signal(syscall.SIGSTOP); n.paused = true }
func (n *node) resume() { n.c.t.Helper(); n.signal(syscall.SIGCONT); n.paused = false }

// eventually polls until f returns nil, and fails with f's last words when patience ends.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		case <-tick.C:
		}
	}
}

// client has the time-out of a stopped peer in mind; every request brings its own shorter one where needed.
var client = &http.Client{Timeout: 45 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// problem is an answer that is no success.
type problem struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
	Title  string `json:"title"`
	Raw    string `json:"-"`
}

func (p *problem) Error() string {
	return fmt.Sprintf("%d %s: %s (%s)", p.Status, p.Type, p.Detail, p.Hint)
}

// do makes a request; path is sent as it stands. An answer that is no success is a *problem.
func (n *node) do(method, path string, body []byte, into any) error {
	r, err := http.NewRequest(method, "http://"+n.http+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		p := &problem{Raw: string(raw)}
		if err := json.Unmarshal(raw, p); err != nil {
			return fmt.Errorf("%s %s: %d with a body that is no problem: %s", method, path, answer.StatusCode, raw)
		}
		p.Status = answer.StatusCode
		return p
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

func (n *node) get(path string, into any) error { return n.do(http.MethodGet, path, nil, into) }

// must makes a request that has to succeed.
func (n *node) must(method, path string, body []byte, into any) {
	n.c.t.Helper()
	require.NoError(n.c.t, n.do(method, path, body, into), "%s %s on node %s", method, path, n.name)
}

func (n *node) awaitReady() {
	n.c.t.Helper()
	eventually(n.c.t, "node "+n.name+" is ready", func() error {
		if !n.running() {
			n.c.t.Fatalf("node %s ended with code %d while starting", n.name, n.code)
		}
		return n.get("/readyz", nil)
	})
}

// add adds to a counter and gives the value after it.
func (n *node) addTo(id string, by int) (int64, error) {
	var reply struct{ Value int64 }
	err := n.do(http.MethodPost, "/entities/counter/"+id, fmt.Appendf(nil, `{"add":%d}`, by), &reply)
	return reply.Value, err
}

// valueOf reads a counter.
func (n *node) valueOf(id string) int64 {
	n.c.t.Helper()
	var reply struct{ Value int64 }
	n.must(http.MethodPost, "/entities/counter/"+id, []byte(`{"get":true}`), &reply)
	return reply.Value
}

// shardMap is GET /cluster/shards.
type shardMap struct {
	NumShards uint32
	Revision  struct{ Term, Index uint64 }
	Shards    []shardRow
}

type shardRow struct {
	Shard       sharding.ShardID
	Node        string
	Incarnation sharding.Incarnation
	Epoch       uint64
	State       string
}

func (n *node) shards() shardMap {
	n.c.t.Helper()
	var m shardMap
	n.must(http.MethodGet, "/cluster/shards?type=counter", nil, &m)
	return m
}

// counts gives the shards of each node.
func (m shardMap) counts() map[string]int {
	out := map[string]int{}
	for _, s := range m.Shards {
		out[s.Node]++
	}
	return out
}

func (m shardMap) by() map[sharding.ShardID]shardRow {
	out := map[sharding.ShardID]shardRow{}
	for _, s := range m.Shards {
		out[s.Shard] = s
	}
	return out
}

// moves sums the growth of epochs since an earlier map: each change of owner is one.
func (m shardMap) moves(since shardMap) (n uint64) {
	before := since.by()
	for _, s := range m.Shards {
		n += s.Epoch - before[s.Shard].Epoch
	}
	return n
}

// awaitCounts waits until all numShards shards are homed and lie as wanted: shards per node, sorted downwards.
func (n *node) awaitCounts(want ...int) shardMap {
	n.c.t.Helper()
	var m shardMap
	eventually(n.c.t, fmt.Sprintf("shards lie %v", want), func() error {
		m = shardMap{}
		if err := n.get("/cluster/shards?type=counter", &m); err != nil {
			return err
		}
		var have []int
		for _, c := range m.counts() {
			have = append(have, c)
		}
		slices.Sort(have)
		slices.Reverse(have)
		if !slices.Equal(have, want) {
			return fmt.Errorf("they lie %v: %v", have, m.counts())
		}
		return m.settled()
	})
	return m
}

func (m shardMap) settled() error {
	for _, s := range m.Shards {
		if s.State != "homed" {
			return fmt.Errorf("shard %d is %s", s.Shard, s.State)
		}
	}
	return nil
}

type member struct {
	Name, State, Address string
	Incarnation          sharding.Incarnation
	Leader, Voter        bool
	Shards               int
}

func (n *node) members() (map[string]member, error) {
	var view struct{ Members []member }
	err := n.get("/cluster/members", &view)
	out := map[string]member{}
	for _, m := range view.Members {
		out[m.Name] = m
	}
	return out, err
}

// awaitMembers waits until gossip shows exactly these states.
func (n *node) awaitMembers(want map[string]string) {
	n.c.t.Helper()
	eventually(n.c.t, fmt.Sprintf("node %s sees %v", n.name, want), func() error {
		have, err := n.members()
		if err != nil {
			return err
		}
		for name, state := range want {
			if have[name].State != state {
				return fmt.Errorf("%s is %q", name, have[name].State)
			}
		}
		if len(have) != len(want) {
			return fmt.Errorf("there are %v", have)
		}
		return nil
	})
}

type leader struct {
	Name string
	Term uint64
}

// leader gives whom the cluster follows, once every live node agrees and that node lives.
func (c *cluster) leader() (*node, uint64) {
	c.t.Helper()
	var l leader
	eventually(c.t, "the live nodes agree on a leader", func() error {
		live := c.live()
		l = leader{}
		for _, n := range live {
			var its leader
			if err := n.get("/cluster/leader", &its); err != nil {
				return err
			}
			if l.Name != "" && l != its {
				return fmt.Errorf("%v and %v", l, its)
			}
			l = its
		}
		if !slices.ContainsFunc(live, func(n *node) bool { return n.name == l.Name }) {
			return fmt.Errorf("it is %q, which does not live", l.Name)
		}
		return nil
	})
	return c.node(l.Name), l.Term
}

// others lists the live nodes but one.
func (c *cluster) others(not *node) (out []*node) {
	for _, n := range c.live() {
		if n != not {
			out = append(out, n)
		}
	}
	return out
}

// metric sums a metric of the node over the label sets that contain all of labels (reason="stale_term"). Without labels it has to be there.
func (n *node) metric(name string, labels ...string) float64 {
	n.c.t.Helper()
	answer, err := client.Get("http://" + n.http + "/metrics")
	require.NoError(n.c.t, err)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	require.NoError(n.c.t, err)
	sum, found := 0.0, false
	for line := range strings.Lines(string(raw)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		require.NoError(n.c.t, err)
		sum, found = sum+v, true
	}
	require.True(n.c.t, found || len(labels) > 0, "node %s has no metric %s", n.name, name)
	return sum
}

// clusterID reads which cluster a node remembers that it belongs to.
func (n *node) clusterID() (string, error) {
	raw, err := os.ReadFile(filepath.Join(n.data(), "node.json"))
	if err != nil {
		return "", err
	}
	var id struct{ Cluster string }
	if err := json.Unmarshal(raw, &id); err != nil {
		return "", err
	}
	if strings.Trim(id.Cluster, "0-") == "" {
		return "", errors.New("none yet")
	}
	return id.Cluster, nil
}

// serverID gives the UUID of the node's raft server.
func (n *node) serverID() string {
	n.c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.data(), "node.json"))
	require.NoError(n.c.t, err)
	var id struct{ Server string }
	require.NoError(n.c.t, json.Unmarshal(raw, &id))
	return id.Server
}

// awaitClusterID waits until the node remembers its cluster.
func (n *node) awaitClusterID() (id string) {
	n.c.t.Helper()
	eventually(n.c.t, "node "+n.name+" remembers its cluster", func() (err error) { id, err = n.clusterID(); return err })
	return id
}

// judge prints how long something took, and with -e2e.bounds compares it with what spec 2.6 promises.
func judge(t *testing.T, what string, took, bound time.Duration) {
	t.Helper()
	t.Logf("%s: %s (spec 2.6: within %s)", what, took.Round(time.Millisecond), bound)
	if *bounds && took > bound {
		t.Errorf("%s took %s, more than the %s of spec 2.6", what, took, bound)
	}
}
