// Package dial opens the connections to the outside.
package dial

import (
	"context"
	"net"
	"net/http"
)

// A Func opens a connection, as (*net.Dialer).DialContext does.
type Func func(ctx context.Context, network, address string) (net.Conn, error)

// diverted opens the connections in place of the operating system; nil = it does not.
var diverted Func

// By returns what opens connections by d, or as Divert says.
func By(d *net.Dialer) Func {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if diverted != nil {
			return diverted(ctx, network, address)
		}
		return d.DialContext(ctx, network, address)
	}
}

// Divert lets f open all connections to the outside, those of http.DefaultTransport too, and none is kept for another
// request. Tests whose outside is in their own process call it, before anything else runs.
func Divert(f Func) {
	diverted = f
	t := http.DefaultTransport.(*http.Transport)
	t.DialContext, t.DisableKeepAlives = f, true
}
