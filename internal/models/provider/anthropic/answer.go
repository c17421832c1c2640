package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// Complete executes a request and returns the whole response. It too uses a stream (see the package comment).
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	x, err := c.post(ctx, r)
	if err != nil {
		return nil, err
	}
	buf := buffers.Get().(*buffer)
	whole := completions.NewWhole(buf.out, r, c.now())
	d := c.newDecoder(whole.Write)
	events := newEvents(x)
	defer func() {
		events.Release()
		buf.release(whole.Buffer())
	}()
	for err == nil {
		_, err = events.Run(d.handleEvent)
		if d.finished {
			x.Hurry(finishWait)
		}
		if whole.Size() > maxAnswer {
			err = upstream.NewFailure(http.StatusOK, fmt.Errorf("the answer has more than %d bytes", maxAnswer))
		}
	}
	x.End(errors.Is(err, errDone))
	if err = d.classifyEnd(err); !errors.Is(err, io.EOF) {
		return nil, makeCutError(err, d.begun)
	}
	u := d.usage.makeUsage()
	return &provider.Response{Body: whole.AppendBody(nil, u), Usage: u}, nil
}
