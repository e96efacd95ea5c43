package harness_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Faults are found on purpose here: no files of them, and no long search for the smallest cluster.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "200ms"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	for name, s := range modules {
		if err := s.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			code = 1
		}
	}
	os.Exit(code)
}

// recorder is a test that is run to see it fail.
type recorder struct {
	testing.TB
	failed   bool
	text     strings.Builder
	cleanups []func()
}

// record runs f as a test of its own, and returns what it printed and whether it failed.
func record(t *testing.T, f func(t testing.TB)) (string, bool) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // FailNow ends the goroutine
		defer close(done)
		f(r)
	}()
	<-done
	for _, c := range r.cleanups {
		c()
	}
	return r.text.String(), r.failed
}

func (r *recorder) Helper()          {}
func (r *recorder) Name() string     { return "recorded" }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Fail()            { r.failed = true }
func (r *recorder) FailNow() {
	r.failed = true
	runtime.Goexit()
}
func (r *recorder) Log(args ...any)                   { fmt.Fprintln(&r.text, args...) }
func (r *recorder) Logf(format string, args ...any)   { fmt.Fprintf(&r.text, format+"\n", args...) }
func (r *recorder) Error(args ...any)                 { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)                 { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Logf(format, args...); r.FailNow() }

func native(t testing.TB, name string) *harness.Strategy {
	impl, ok := strategies.Native(name)
	if !ok {
		t.Fatalf("no strategy %q", name)
	}
	return harness.Native(t, name, impl)
}

// modules are the built-in ones, compiled once for all tests.
var modules = map[string]*harness.Strategy{}

func module(t testing.TB, name string) *harness.Strategy {
	if s, ok := modules[name]; ok {
		return s
	}
	wasm, _, ok := strategies.Builtin(name)
	if !ok {
		t.Fatalf("no strategy %q", name)
	}
	modules[name] = lab.Module(name+".wasm", wasm, host.Limits{})
	return modules[name]
}

// funcs is a strategy of two functions; without one it decides nothing.
type funcs struct {
	allocate  func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error)
	rebalance func(s *pluginapi.Snapshot) (pluginapi.Plan, error)
}

func (f funcs) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	if f.allocate == nil {
		return leastHomes(s, shards)
	}
	return f.allocate(s, shards)
}

func (f funcs) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	if f.rebalance == nil {
		return pluginapi.Plan{}, nil
	}
	return f.rebalance(s)
}

func leastHomes(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	least, _ := strategies.Native("leastshard")
	return least.Allocate(s, shards)
}
