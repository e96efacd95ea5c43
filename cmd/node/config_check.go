package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/strategies"
)

// refusal is what a node would end its start for, beyond keys and values: what a key names is not what it should be.
type refusal struct{ key, text string }

// refusals lists all of them.
type refusals struct{ list []refusal }

func (e *refusals) Error() string {
	var lines []string
	for _, r := range e.list {
		lines = append(lines, r.key+": "+r.text)
	}
	return strings.Join(lines, "\n")
}

// checkNamed says whether a node would take what the configuration names: the files of [tls], and the types' strategies. A strategy named by its
// digest is the cluster's, and is not looked at.
func checkNamed(ctx context.Context, c *config.Config) (warnings []string, err error) {
	var refused refusals
	hint := "drover strategy check says more about a module; builtin:leastshard needs no file"
	if err := checkTLS(c); err != nil {
		refused.list = append(refused.list, refusal{"tls", err.Error()})
		hint = "drover tls cert makes the certificate of a node; docs/tls.md says how they fit together"
	}
	err = withRuntime(ctx, host.Compiler, func(rt *host.Runtime) error {
		for _, t := range c.Types {
			key := "type." + t.Name + ".strategy"
			refuse := func(text string) { refused.list = append(refused.list, refusal{key, text}) }
			if t.Strategy == "" || strings.HasPrefix(t.Strategy, digestPrefix) {
				continue
			}
			rep, err := checkStrategy(ctx, rt, t)
			if err != nil {
				refuse(fmt.Sprintf("%q: %v", t.Strategy, err))
				continue
			}
			for _, f := range rep.Findings {
				text := fmt.Sprintf("%q: %s", t.Strategy, f)
				if f.Fix != "" {
					text += "; fix: " + f.Fix
				}
				if rep.OK {
					warnings = append(warnings, key+": "+text)
				} else {
					refuse(text)
				}
			}
		}
		return nil
	})
	if err == nil && len(refused.list) > 0 {
		err = usageError(&refused, hint)
	}
	return warnings, err
}

// checkTLS loads the files of [tls] as a node does.
func checkTLS(c *config.Config) error {
	if !c.TLS.Enabled() {
		return nil
	}
	own, err := pki.Load(c.TLS.CA, c.TLS.Cert, c.TLS.Key, time.Now())
	if err != nil {
		return err
	}
	return own.Identity.Certifies(c.Cluster, sharding.NodeID(c.Name), c.Roles)
}

func checkStrategy(ctx context.Context, rt *host.Runtime, t config.Type) (host.Report, error) {
	var encoded []byte
	var err error
	if len(t.Config) > 0 {
		if encoded, err = snapshotfile.EncodeConfig(t.Config); err != nil {
			return host.Report{}, fmt.Errorf("its configuration: %w", err)
		}
	}
	if name, ok := strings.CutPrefix(t.Strategy, builtinPrefix); ok { // admitted by this program's own tests; its configuration is all there is to look at
		return checkBuiltin(name, encoded)
	}
	wasm, err := readModule(t.Strategy)
	if err != nil {
		return host.Report{}, err
	}
	limits := host.Limits{Fuel: t.Fuel, Budget: t.Budget, MemoryPages: uint32(uint64(t.Memory) / host.PageBytes)}
	return rt.Check(ctx, wasm, limits, encoded)
}

func checkBuiltin(name string, encoded pluginapi.Config) (rep host.Report, err error) {
	native, ok := strategies.Native(name)
	if !ok {
		return rep, fmt.Errorf("there is no built-in strategy of that name; there are %s", strings.Join(strategies.Names(), ", "))
	}
	if c, ok := native.(pluginapi.Configurer); ok {
		if err := c.Configure(encoded); err != nil {
			return rep, err
		}
	}
	rep.OK = true
	if d, ok := native.(pluginapi.Describer); ok {
		rep.Findings = host.UnknownKeys(d.Describe(), encoded)
	}
	return rep, nil
}
