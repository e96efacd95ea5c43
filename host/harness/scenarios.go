package harness

import (
	"path/filepath"
	"testing"

	"github.com/droverhq/drover/host/harness/scenario"
)

// Scenarios runs the scenario files that a pattern of filepath.Glob names (docs/scenario-files.md), each scenario as a subtest
// where the test can have some. A file that is wrong, or a pattern that names none, ends the test. It returns whether all was
// as expected.
func Scenarios(t testing.TB, s *Strategy, pattern string) bool {
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
			if parent, has := t.(*testing.T); has {
				ok = parent.Run(one.Name, func(t *testing.T) { play(t, s, one) }) && ok
			} else {
				ok = play(t, s, one) && ok
			}
		}
	}
	return ok
}

func play(t testing.TB, s *Strategy, one *scenario.Scenario) bool {
	t.Helper()
	r, err := one.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failures {
		t.Error(f.Text)
	}
	return r.OK
}
