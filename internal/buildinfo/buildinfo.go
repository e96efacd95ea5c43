// Package buildinfo says which Drover this binary is.
//
// It owns the software version that nodes tell each other and that strategies see ("version" of a node); it imports
// the standard library alone.
package buildinfo

import (
	"runtime"
	"runtime/debug"
)

// version is set at link time (-ldflags "-X …/internal/buildinfo.version=v1.2.3"); a plain go build or go install
// leaves it empty, and then the module version recorded by the toolchain is used.
var version string

// Info describes a build. Revision is the commit, empty when the toolchain recorded none.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // empty: not known
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get returns what is known about this binary.
func Get() Info {
	info := Info{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if ok {
		if info.Version == "" && build.Main.Version != "(devel)" {
			info.Version = build.Main.Version
		}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Revision = s.Value
			case "vcs.modified":
				info.Modified = s.Value == "true"
			}
		}
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	return info
}

// Version is the software version alone, never empty ("devel" for an unversioned build).
func Version() string { return Get().Version }
