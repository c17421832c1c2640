// Package web is the HTTP layer that all endpoints and pages share (contract §4 intro, §5, §7; decisions 008, 009): a
// router whose handlers return errors, the one writer of the error envelope, strict readers of bodies, forms, paging
// parameters and credentials, and one log line per request.
//
// # What a client receives
//
// Every response of 400 and above from a Router is the envelope of contract §7, or an HTML error page on routes of
// HandlePage. The router never redirects: a path with empty, `.` or `..` segments, plain or percent-encoded, is 404,
// and a target that is neither a path nor an absolute address (`*`, CONNECT's authority) is 400. If a response that
// has begun cannot be finished, the connection is cut, so that the client notices. After a chunked request the
// connection is closed: see Router.ServeHTTP. Every response forbids framing, and so does the Content-Security-Policy
// of each page.
//
// # What net/http answers itself
//
// net/http answers a few requests before any handler runs, as text/plain or without a body, and closes the
// connection. It has no hook for them: connections of LimitWrites recognize these answers by their first bytes, and
// send envelopes in their place:
//   - 400: a request line, header, Host, Content-Length or percent-encoding that does not parse
//   - 417: an Expect header other than 100-continue
//   - 431: headers above MaxHeaderBytes
//   - 501: a Transfer-Encoding other than chunked
//   - 505: an HTTP version that is not 1.x (2 over TLS)
//
// No handler has run then, nothing was read, held or billed, and there is no line in the log.
package web
