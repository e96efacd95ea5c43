package harness_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness/lab"
)

// docs/harness.md shows the example that is run, a failure as it is printed, and each method of a cluster.
func TestThePageIsTrue(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "harness.md"))
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```go\n"+string(example)+"```", "the example")

	shown := regexp.MustCompile("(?s)```text\n(.*?)input: ").FindSubmatch(page)
	require.NotNil(t, shown)
	text, failed := record(t, func(t testing.TB) {
		s := lab.Native("mine", funcs{rebalance: flaw{pinned: true}.level})
		if err := s.Valid(t.Context(), lab.NewCluster(3, 6).AllOn("a").Pin("a", 0, 1).Limit(2)); err != nil {
			t.Errorf("%v", err)
		}
	})
	require.True(t, failed)
	assert.Contains(t, text, string(shown[1]), "the failure")

	cluster := reflect.TypeFor[*lab.Cluster]()
	for i := range cluster.NumMethod() {
		m := cluster.Method(i)
		if m.Type.NumOut() == 1 && m.Type.Out(0) == cluster {
			assert.Contains(t, string(page), "`"+m.Name+"(", "a method of Cluster")
		}
	}
}
