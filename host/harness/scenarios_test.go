package harness_test

import (
	"path/filepath"
	"testing"

	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/strategies/leastshard"
)

func TestX(t *testing.T) {
	harness.Scenarios(t, harness.Native(t, "leastshard", leastshard.Strategy{}), filepath.Join("..", "..", "strategies", "leastshard", "scenarios", "*.toml"))
}
