package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/strategies"
)

// refusedType is what is wrong with a type beyond its keys and values.
type refusedType struct{ key, text string }

// refusedTypes lists all of them.
type refusedTypes struct{ list []refusedType }

func (e *refusedTypes) Error() string {
	var lines []string
	for _, r := range e.list {
		lines = append(lines, r.key+": "+r.text)
	}
	return strings.Join(lines, "\n")
}

// checkTypes says whether a node would admit the types' strategies. A strategy named by its digest is the cluster's, and is not looked at.
func checkTypes(ctx context.Context, c *config.Config) (warnings []string, err error) {
	var refused refusedTypes
	err = withRuntime(ctx, host.Compiler, func(rt *host.Runtime) error {
		for _, t := range c.Types {
			key := "type." + t.Name + ".strategy"
			refuse := func(text string) { refused.list = append(refused.list, refusedType{key, text}) }
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
		err = usageError(&refused, "drover strategy check says more about a module; builtin:leastshard needs no file")
	}
	return warnings, err
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
