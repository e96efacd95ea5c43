package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/droverhq/drover/pluginapi"
)

// ErrOtherConfig says that an input was made for another configuration than the
// strategy's.
var ErrOtherConfig = errors.New("the input holds another configuration than the strategy was prepared with")

// Replay makes a call on the very bytes that the Input of a record holds, as
// Call does in all else: the same module with the same limits, prepared with the
// configuration that the input holds, gives the same output, fuel, memory and
// verdict. A budget of 0 is the strategy's. The error is for an input that is
// none, and for one of another configuration.
func (s *Strategy) Replay(ctx context.Context, input []byte, budget time.Duration) (Result, error) {
	in, err := pluginapi.DecodeInput(input)
	if err != nil {
		return Result{}, fmt.Errorf("input: %w", err)
	}
	if !bytes.Equal(in.Snapshot.Config, s.config) {
		return Result{}, ErrOtherConfig
	}
	sc := scratches.Get().(*scratch)
	defer sc.release()
	sc.given = input
	var res Result
	res.Plan, res.Homes, res.Err = s.call(ctx, sc, in.Op, &in.Snapshot, in.Shards, budget, res.keep)
	return res, nil
}
