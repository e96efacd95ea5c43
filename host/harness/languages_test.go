package harness_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness"
)

// Spec 1.1 and 1.5: every example passes the suite, in whatever language it is written.
func TestConformanceTakesTheExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "plugins-examples", "*", "*.wasm"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if filepath.Base(filepath.Dir(file)) == "role-pinning" {
			continue // TestRolePinning
		}
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) { harness.Conformance(t, harness.Open(t, file)) })
	}
}
