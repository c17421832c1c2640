// Package web is the HTTP side that every endpoint and page shares (spec §4
// intro, §5, §7; decisions, Order of checks): a router whose handlers return
// errors, the one writer of the error envelope, strict readers of bodies, forms,
// pages and credentials, and one log line a request.
//
// # What reaches a client
//
// Every answer of 400 and above that comes out of a Router is the envelope of
// spec §7, or an HTML error page on routes given to HandlePage. Nothing is ever
// redirected on the router's own account: a path with empty, `.` or `..`
// segments, plain or percent-encoded, is 404; a target that is not a path (`*`,
// absolute form, CONNECT's authority) is 400. An answer that has begun and
// cannot be finished is cut, so that nobody mistakes a part for the whole. After
// a request that came in chunks the connection is closed: see Router.ServeHTTP.
// Every answer forbids to be framed; a page's own policy says so too.
//
// # What stays plain
//
// net/http answers a few requests before any handler runs, as text/plain or
// with no body, and closes the connection. There is no hook for them, and
// rewriting bytes under net/http would cost every good request:
//   - 400: a request line, header, Host, Content-Length or percent-encoding that does not parse
//   - 417: an Expect header other than 100-continue
//   - 431: headers above MaxHeaderBytes
//   - 501: a Transfer-Encoding other than chunked
//   - 505: an HTTP version that is not 1.x (2 over TLS)
//
// No handler has run and nothing has been read, held or billed then.
package web
