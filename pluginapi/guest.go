package pluginapi

// Level is the weight of a log message, with the values of log/slog.
type Level int32

// Log levels.
const (
	LevelDebug Level = -4
	LevelInfo  Level = 0
	LevelWarn  Level = 4
	LevelError Level = 8
)

// String returns the level's name.
func (l Level) String() string {
	switch {
	case l < LevelInfo:
		return "debug"
	case l < LevelWarn:
		return "info"
	case l < LevelError:
		return "warn"
	}
	return "error"
}

// decide is one call of a module: an input's bytes in, an output's bytes out. It keeps data for as long as the
// strategy works.
func decide(st Strategy, op Op, data []byte) []byte {
	if st == nil {
		return AppendFailure(nil, "no strategy: call pluginapi.Register from an init function of the main package")
	}
	in, err := decodeInput(data, true)
	if err != nil {
		return AppendFailure(nil, "input: "+err.Error())
	}
	if in.Op != op {
		return AppendFailure(nil, "input: op: want "+op.String()+", got "+in.Op.String())
	}
	if op == OpAllocate {
		homes, err := st.Allocate(&in.Snapshot, in.Shards)
		if err != nil {
			return AppendFailure(nil, err.Error())
		}
		return AppendHomes(make([]byte, 0, 64+3*len(homes.Nodes)), &homes)
	}
	plan, err := st.Rebalance(&in.Snapshot)
	if err != nil {
		return AppendFailure(nil, err.Error())
	}
	return AppendPlan(make([]byte, 0, 64+10*len(plan.Moves)), &plan)
}

func configure(st Strategy, data []byte) []byte {
	r := &reader{data: data}
	err := r.skip(0)
	if err == nil {
		err = r.end()
	}
	if err == nil {
		if c, ok := st.(Configurer); ok {
			err = c.Configure(Config(data))
		}
	}
	if err != nil {
		return AppendFailure(nil, err.Error())
	}
	return AppendConfigured(nil)
}

func describe(st Strategy) []byte {
	d := Description{Name: "unnamed", Version: "0"}
	if s, ok := st.(Describer); ok {
		d = s.Describe()
	}
	b, err := AppendDescription(nil, &d)
	if err != nil {
		return AppendFailure(nil, "describe: "+err.Error())
	}
	return b
}
