package node

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies"
)

func cutBuiltin(source string) (name string, ok bool) { return strings.CutPrefix(source, "builtin:") }

// sourceOf names where a module is from, for people: a built-in one that was asked for by its digest has a better name than that.
func sourceOf(source string, digest [32]byte) string {
	if !strings.HasPrefix(source, "sha256:") {
		return source
	}
	for _, name := range strategies.Names() {
		if _, d, _ := strategies.Builtin(name); d == modules.Digest(digest).String() {
			return "builtin:" + name
		}
	}
	return source
}

func decodeKey(s config.Secret) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(s.Reveal())
	if err != nil {
		return nil, fmt.Errorf("it is not base64: make one with `head -c 32 /dev/urandom | base64`")
	}
	return b, nil
}

// seedOf makes the coordinator's source of pass seeds differ from process to process; the seeds themselves are in the log.
func seedOf(m sharding.Member) uint64 { return binary.BigEndian.Uint64(m.Incarnation[:8]) }

// readModule reads a strategy file, bounded: a device or a huge file is an error and not all of memory.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	wasm, err := io.ReadAll(io.LimitReader(f, modules.MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(wasm) > modules.MaxSize {
		return nil, fmt.Errorf("%s is larger than %d bytes, the most that a strategy may have", path, modules.MaxSize)
	}
	return wasm, nil
}

// gauge measures the process's share of the machine.
type gauge struct {
	at  time.Time
	cpu time.Duration
}

func newGauge() *gauge { return &gauge{at: time.Now(), cpu: cpuTime()} }

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure fills in CPU and memory, in thousandths of the machine. It is called by one goroutine.
func (g *gauge) measure(l *protocol.NodeLoad) {
	now, cpu := time.Now(), cpuTime()
	if elapsed := now.Sub(g.at) * time.Duration(runtime.NumCPU()); elapsed > 0 && cpu >= g.cpu {
		v := min(uint64(1000*float64(cpu-g.cpu)/float64(elapsed)), 1000)
		l.CPU = &v
	}
	g.at, g.cpu = now, cpu
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil && info.Totalram > 0 {
		used := info.Totalram - min(info.Freeram+info.Bufferram, info.Totalram)
		v := uint64(1000 * float64(used) / float64(info.Totalram))
		l.Mem = &v
	}
}
