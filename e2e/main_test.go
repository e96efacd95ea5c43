// Package e2e tests whole nodes: real `drover run` processes on loopback, started, signalled, paused and killed as an operator or a fault would.
//
// A plain run takes the stories that are quick; those named TestLong… run with -e2e.long. How soon things recover is printed, and judged with
// -e2e.bounds alone, because a loaded machine would make any bound fail. -e2e.race builds the node with the race detector.
// Nothing waits for a time to pass: every wait is for a condition, with generous patience.
package e2e

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	long   = flag.Bool("e2e.long", false, "run the stories named TestLong… too")
	bounds = flag.Bool("e2e.bounds", false, "judge the times of recovery that spec 2.6 promises")
	logs   = flag.String("e2e.logs", "", "directory for the whole logs of nodes of failed tests")
	raced  = flag.Bool("e2e.race", false, "build the node with the race detector")
)

var (
	// drover is the binary under test, built once a run.
	drover string
	// warmCache is a directory with the compiled built-in strategies, as a node leaves it. Compiling takes a second or two of a core; with three
	// nodes in each test that would be most of a run's time, and crowd out heartbeats.
	warmCache string
)

func TestMain(m *testing.M) {
	if os.Getenv(faultyEnv) != "" {
		os.Exit(runFaulty())
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if !*long && flag.Lookup("test.skip").Value.String() == "" {
		if err := flag.Set("test.skip", "^TestLong"); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "drover-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	drover = filepath.Join(dir, "drover")
	args := []string{"build", "-o", drover}
	if *raced {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/droverhq/drover/cmd/node")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: drover does not build:", err)
		return 1
	}
	if warmCache, err = compile(filepath.Join(dir, "warm")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: a first node:", err)
		return 1
	}
	return m.Run()
}

// compile runs a node until it has compiled its strategy, and gives its cache.
func compile(data string) (string, error) {
	cmd := exec.Command(drover, "run", "--config", shippedConfig, "--set", "name=warm", "--set", "data_dir="+data,
		"--set", "gossip.bind=127.0.0.1:0", "--set", "transport.bind=127.0.0.1:0", "--set", "http.address=127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer late.Stop()
	ready := false
	var said strings.Builder
	for lines := bufio.NewScanner(log); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if !ready && strings.Contains(lines.Text(), "strategy ready") {
			ready = true
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return "", err
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, &said)
	}
	if !ready {
		return "", fmt.Errorf("it ended before its strategy was ready\n%s", &said)
	}
	return filepath.Join(data, "cache"), nil
}
