package harness

import (
	"path/filepath"
	"testing"

	"github.com/droverhq/drover/host/harness/scenario"
)

// Scenarios runs the scenario files that a pattern of filepath.Glob names, each scenario as a subtest
// (docs/scenario-files.md). A file that is wrong, or a pattern that names none, ends the test. It returns whether all were as
// expected.
func Scenarios(t *testing.T, s *Strategy, pattern string) bool {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatalf("scenarios: %s: %v", pattern, err)
	}
	if len(files) == 0 {
		t.Fatalf("scenarios: %s names no file", pattern)
	}
	ok := true
	for _, file := range files {
		scenarios, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range scenarios {
			ok = t.Run(one.Name, func(t *testing.T) {
				r, err := one.Run(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range r.Failures {
					t.Error(f.Text)
				}
			}) && ok
		}
	}
	return ok
}
