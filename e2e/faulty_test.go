package e2e

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/transport"
	product "github.com/droverhq/drover/node"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// A node with fault points is the test binary itself, started again with this variable: `drover run` has no switch that could be left on.
// It is the same node in a process of its own, with the transport's fault points behind a socket in its directory.
const faultyEnv = "DROVER_E2E_FAULTY"

// faultyOrder is what the variable holds, and what the process does.
type faultyOrder struct {
	Config, Socket string
	Set            []string
}

// faultyCommand gives the process of a node with fault points.
func faultyCommand(n *node) *exec.Cmd {
	order, err := json.Marshal(faultyOrder{Config: shippedConfig, Socket: n.socket(), Set: n.settings()})
	require.NoError(n.c.t, err)
	self, err := os.Executable()
	require.NoError(n.c.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), faultyEnv+"="+string(order))
	return cmd
}

func (n *node) socket() string { return filepath.Join(n.dir, "s") }

// runFaulty is the process.
func runFaulty() int {
	var o faultyOrder
	err := json.Unmarshal([]byte(os.Getenv(faultyEnv)), &o)
	if err == nil {
		err = runNode(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runNode(o faultyOrder) error {
	cfg, err := product.LoadConfig(o.Config, o.Set)
	if err != nil {
		return err
	}
	faults := transport.NewFaults(1)
	os.Remove(o.Socket) // of the process before
	control, err := net.Listen("unix", o.Socket)
	if err != nil {
		return err
	}
	defer control.Close()
	go func() {
		for {
			conn, err := control.Accept()
			if err != nil {
				return
			}
			go serveFaults(faults, conn)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := product.New(cfg, product.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Faults: faults})
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// serveFaults answers one command a line: those of Faults.Apply, and "inject NODE INCARNATION HEX" for a control frame.
func serveFaults(f *transport.Faults, conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		reply := "ok"
		if err := oneFault(f, lines.Text()); err != nil {
			reply = err.Error()
		}
		fmt.Fprintln(conn, reply)
	}
}

func oneFault(f *transport.Faults, command string) error {
	words := strings.Fields(command)
	if len(words) != 4 || words[0] != "inject" {
		return f.Apply(command)
	}
	incarnation, err := sharding.ParseIncarnation(words[2])
	if err != nil {
		return err
	}
	frame, err := hex.DecodeString(words[3])
	if err != nil {
		return err
	}
	return f.Inject(sharding.Member{Node: sharding.NodeID(words[1]), Incarnation: incarnation}, transport.Control, frame)
}

// fault runs a command in the process of a node with fault points.
func (n *node) fault(command string) error {
	conn, err := net.DialTimeout("unix", n.socket(), patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	fmt.Fprintln(conn, command)
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if reply = strings.TrimSpace(reply); reply != "ok" {
		return fmt.Errorf("fault point: %s", reply)
	}
	return nil
}

// inject sends a control message over the node's standing stream to another, as that node.
func (n *node) inject(to member, m protocol.Message) error {
	frame, err := protocol.AppendFrame(nil, m)
	if err != nil {
		return err
	}
	return n.fault(fmt.Sprintf("inject %s %s %x", to.Name, to.Incarnation, frame))
}
