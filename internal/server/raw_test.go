package server_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// raw is one string of bytes that goes to the server's socket as it stands, and
// the status of the one answer. In sends, {token}, {basic} and {key} are the
// seeded access token, the app's credentials and a fresh key.
type raw struct {
	name, sends string
	status      int    // 0 = the connection is closed without an answer
	code        string // of the envelope; early = net/http answers before any handler
	says        string // part of the message
	ends        bool   // the client sends no more after it: the bytes stop in the middle
}

const early = "before any handler"

// What most cases are made of.
const (
	line    = "POST /v1/ai/gpt-6-luna HTTP/1.1\r\n"
	headers = "Host: purser\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n"
	typed   = "Content-Type: application/json\r\n"
	hello   = `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":5}`
	length  = "Content-Length: 63\r\n"
	chunked = "Transfer-Encoding: chunked\r\n"
	chunk   = "3f\r\n" + hello + "\r\n"
	managed = "Host: purser\r\nAuthorization: Basic {basic}\r\n"
)

// get is a request without a body.
func get(target string) string { return "GET " + target + " HTTP/1.1\r\n" + managed + "\r\n" }

// with is a call of a model that would be billed, but for one header more.
func with(header string) string {
	return line + headers + typed + length + header + "\r\n\r\n" + hello
}

// saying is a call of a model with this body.
func saying(body string) string {
	return line + headers + typed + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
}

var rubbish = []raw{
	// The request line, which net/http reads.
	{name: "no HTTP at all", sends: "hello\r\n\r\n", status: 400, code: early},
	{name: "binary", sends: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", status: 400, code: early},
	{name: "nothing", sends: "", ends: true},
	{name: "an empty line", sends: "\r\n\r\n", status: 400, code: early},
	{name: "HTTP/0.9", sends: "GET /v1/models\r\n\r\n", status: 400, code: early},
	{name: "an unknown version", sends: "GET /v1/models HTTP/1.x\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "HTTP/3", sends: "GET /v1/models HTTP/3.0\r\nHost: a\r\n\r\n", status: 505, code: early},
	{name: "two blanks", sends: "GET  /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "a blank in the path", sends: "GET /v1/mo dels HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "a tab for a blank", sends: "GET\t/v1/models\tHTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "NUL in the path", sends: "GET /v1/\x00models HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "DEL in the path", sends: "GET /v1/\x7fmodels HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "a method that is no token", sends: "G(T /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "no path", sends: "GET HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: early},
	{name: "a bad escape in the path", sends: get("/v1/%zz"), status: 400, code: early},
	{name: "half an escape", sends: get("/v1/requests/%f"), status: 400, code: early},
	{name: "a very long path", sends: get("/v1/" + strings.Repeat("a", 64<<10)), status: 431, code: early},
	{name: "half a request line", sends: "POST /v1/ai/gpt-6-luna HT", ends: true, status: 400, code: early},

	// Lines and headers.
	{name: "a header without a colon", sends: line + "Host: a\r\nnonsense\r\n\r\n", status: 400, code: early},
	{name: "a header without a name", sends: line + "Host: a\r\n: x\r\n\r\n", status: 400, code: early},
	{
		name:   "a blank before the colon",
		sends:  line + "Host: a\r\nContent-Length : 5\r\n\r\nhello",
		status: 400,
		code:   early,
	},
	{name: "a folded first header", sends: line + " Host: a\r\n\r\n", status: 400, code: early},
	{name: "NUL in a header", sends: with("X-Svc-Feature: a\x00b"), status: 400, code: early},
	{name: "a bell in a header", sends: with("X-Svc-Feature: a\x07b"), status: 400, code: early},
	{name: "a lone CR in a header", sends: with("X-Svc-Feature: a\rX-Evil: b"), status: 400, code: early},
	{name: "a control byte in a header's name", sends: with("X-\x01: b"), status: 400, code: early},
	{name: "UTF-8 in a header's name", sends: with("X-é: b"), status: 400, code: early},
	{
		name:   "lone CRs for line ends",
		sends:  "GET /v1/models HTTP/1.1\rHost: a\r\r",
		ends:   true,
		status: 400,
		code:   early,
	},
	{name: "a huge header", sends: with("X-Long: " + strings.Repeat("x", 64<<10)), status: 431, code: early},
	{
		name:   "very many headers",
		sends:  with(strings.Repeat("X-Many: x\r\n", 8<<10) + "X-Last: x"),
		status: 431,
		code:   early,
	},
	{name: "no host", sends: "GET /v1/models HTTP/1.1\r\n\r\n", status: 400, code: early},
	{name: "two hosts", sends: "GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", status: 400, code: early},
	{name: "a host that is none", sends: "GET /v1/models HTTP/1.1\r\nHost: a/b c\r\n\r\n", status: 400, code: early},
	{name: "an unknown expectation", sends: with("Expect: miracles"), status: 417, code: early},
	{name: "headers that stop", sends: line + headers, ends: true, status: 400, code: early},

	// The length of the body, and how it comes.
	{
		name:   "two lengths that differ",
		sends:  line + headers + typed + length + "Content-Length: 5\r\n\r\n" + hello,
		status: 400,
		code:   early,
	},
	{
		name:   "two lengths in one",
		sends:  line + headers + typed + "Content-Length: 63, 63\r\n\r\n" + hello,
		status: 400,
		code:   early,
	},
	{name: "a negative length", sends: line + headers + typed + "Content-Length: -1\r\n\r\n", status: 400, code: early},
	{
		name:   "a length with a sign",
		sends:  line + headers + typed + "Content-Length: +63\r\n\r\n" + hello,
		status: 400,
		code:   early,
	},
	{
		name:   "a length in hex",
		sends:  line + headers + typed + "Content-Length: 0x3f\r\n\r\n" + hello,
		status: 400,
		code:   early,
	},
	{
		name:   "a length past 64 bits",
		sends:  line + headers + typed + "Content-Length: 99999999999999999999\r\n\r\n" + hello,
		status: 400,
		code:   early,
	},
	{
		name:   "a length beyond our limit",
		sends:  line + headers + typed + "Content-Length: 33554433\r\n\r\n",
		status: 400,
		code:   "invalid_request",
		says:   "body: at most 33554432 bytes",
	},
	{name: "no length", sends: line + headers + typed + "\r\n" + hello, status: 400, code: "invalid_request"},
	{
		name:   "a body that stops",
		sends:  line + headers + typed + length + "\r\n" + hello[:40],
		ends:   true,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a body that never comes",
		sends:  line + headers + typed + length + "\r\n",
		ends:   true,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "an unknown coding",
		sends:  line + headers + typed + "Transfer-Encoding: gzip\r\n\r\n",
		status: 501,
		code:   early,
	},
	{
		name:   "two codings",
		sends:  line + headers + typed + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk + "0\r\n\r\n",
		status: 501,
		code:   early,
	},
	{
		name:   "chunked twice",
		sends:  line + headers + typed + chunked + chunked + "\r\n" + chunk + "0\r\n\r\n",
		status: 501,
		code:   early,
	},
	{
		name:   "chunked and HTTP/1.0",
		sends:  strings.Replace(line, "1.1", "1.0", 1) + headers + typed + chunked + "\r\n" + chunk + "0\r\n\r\n",
		status: 400,
		code:   "invalid_request",
	},
	{
		name:   "a length and chunks, where the chunks are none",
		sends:  line + headers + typed + length + chunked + "\r\n" + hello + "\r\n",
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name: "chunks and a length, and no key",
		sends: line + "Host: a\r\nAuthorization: Bearer {token}\r\n" + typed + chunked + "Content-Length: 5\r\n\r\n" +
			chunk + "0\r\n\r\n",
		status: 400,
		code:   "invalid_request",
		says:   "Idempotency-Key",
	},
	{
		name: "a call hidden behind chunks and a length",
		sends: line + "Host: a\r\n" + typed + fmt.Sprintf("Content-Length: %d\r\n", 5+len(with("X-A: b"))) + chunked +
			"\r\n0\r\n\r\n" + with("X-A: b"),
		status: 401,
		code:   "unauthorized",
	},
	{
		name:   "a call hidden behind a body that is too short",
		sends:  line + "Host: a\r\n" + typed + "Content-Length: 5\r\n" + chunked + "\r\nzz\r\n" + with("X-A: b"),
		status: 401,
		code:   "unauthorized",
	},
	{
		name:   "a call hidden in a bad header",
		sends:  "GET /v1/models HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n" + with("X-A: b"),
		status: 400,
		code:   early,
	},
	{
		name:   "a chunk of no size",
		sends:  line + headers + typed + chunked + "\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a chunk whose size is no number",
		sends:  line + headers + typed + chunked + "\r\nzz\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a chunk of a negative size",
		sends:  line + headers + typed + chunked + "\r\n-3f\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a chunk past 64 bits",
		sends:  line + headers + typed + chunked + "\r\nffffffffffffffff1\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a chunk longer than its size",
		sends:  line + headers + typed + chunked + "\r\n3e\r\n" + hello + "\r\n0\r\n\r\n",
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "chunks that stop",
		sends:  line + headers + typed + chunked + "\r\n" + chunk,
		ends:   true,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a trailer without a colon",
		sends:  line + headers + typed + chunked + "\r\n" + chunk + "0\r\nnonsense\r\n\r\n",
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name:   "a trailer that stops",
		sends:  line + headers + typed + chunked + "\r\n" + chunk + "0\r\nX-A: b\r\n",
		ends:   true,
		status: 400,
		code:   "invalid_request",
		says:   "body: it did not arrive whole",
	},
	{
		name: "a forbidden trailer",
		sends: line + headers + typed + chunked + "Trailer: Content-Length\r\n\r\n" + chunk +
			"0\r\nContent-Length: 5\r\n\r\n",
		status: 400,
		code:   early,
	},
	{
		name: "credentials in a trailer",
		sends: line + "Host: a\r\nIdempotency-Key: {key}\r\n" + typed + chunked + "Trailer: Authorization\r\n\r\n" +
			chunk + "0\r\nAuthorization: Bearer {token}\r\n\r\n",
		status: 401,
		code:   "unauthorized",
	},
	{
		name: "a key in a trailer",
		sends: line + "Host: a\r\nAuthorization: Bearer {token}\r\n" + typed + chunked +
			"Trailer: Idempotency-Key\r\n\r\n" + chunk + "0\r\nIdempotency-Key: {key}\r\n\r\n",
		status: 400,
		code:   "invalid_request",
		says:   "Idempotency-Key",
	},

	// Targets.
	{name: "an absolute address", sends: get("http://purser/v1/nothing"), status: 404, code: "not_found"},
	{
		name:   "an absolute address with a user",
		sends:  strings.Replace(with("X-A: b"), "/v1/ai", "http://a@purser/v1/ai", 1),
		status: 400,
		code:   "invalid_request",
	},
	{name: "an absolute address of files", sends: get("ftp://purser/v1/models"), status: 400, code: "invalid_request"},
	{name: "an address of another kind", sends: get("mailto:a@example.com"), status: 400, code: "invalid_request"},
	{
		name:   "a tunnel",
		sends:  "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
		status: 400,
		code:   "invalid_request",
	},
	{name: "the whole server", sends: "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", status: 400, code: "invalid_request"},
	{name: "the preface of HTTP/2", sends: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 400, code: "invalid_request"},
	{name: "two slashes", sends: get("//v1/models"), status: 404, code: "not_found", says: "slash"},
	{
		name:   "two slashes inside",
		sends:  strings.Replace(with("X-A: b"), "/v1/ai/", "/v1//ai/", 1),
		status: 404,
		code:   "not_found",
		says:   "slash",
	},
	{name: "only slashes", sends: get("/////"), status: 404, code: "not_found"},
	{
		name:   "a slash at the end",
		sends:  strings.Replace(with("X-A: b"), "luna ", "luna/ ", 1),
		status: 404,
		code:   "not_found",
		says:   "slash",
	},
	{
		name:   "dot segments",
		sends:  strings.Replace(with("X-A: b"), "/v1/ai/", "/v1/x/../ai/", 1),
		status: 404,
		code:   "not_found",
	},
	{
		name:   "encoded dot segments",
		sends:  strings.Replace(with("X-A: b"), "/v1/ai/", "/v1/x/%2e%2E/ai/", 1),
		status: 404,
		code:   "not_found",
	},
	{
		name:   "an encoded slash in a model",
		sends:  strings.Replace(with("X-A: b"), "/ai/gpt", "/ai/features%2fgpt", 1),
		status: 400,
		code:   "invalid_request",
		says:   "model",
	},
	{name: "an encoded slash in an id", sends: get("/v1/connections/a%2Frevoke"), status: 404, code: "not_found"},
	{name: "backslashes", sends: get(`/v1\models`), status: 404, code: "not_found"},
	{name: "an encoded NUL", sends: get("/v1/connections/%00"), status: 404, code: "not_found"},
	{name: "an encoded line end", sends: get("/v1/connections/a%0d%0aX-Evil:%20b"), status: 404, code: "not_found"},
	{name: "bare bytes in the path", sends: get("/v1/connections/\xff\xfe"), status: 404, code: "not_found"},
	{
		name:   "bare bytes in the query",
		sends:  get("/v1/connections?limit=\xff"),
		status: 400,
		code:   "invalid_request",
		says:   "limit",
	},
	{
		name:   "bare bytes in a name of the query",
		sends:  get("/v1/connections?\xff=1"),
		status: 400,
		code:   "invalid_request",
	},
	{name: "a bad escape in the query", sends: get("/v1/connections?limit=%zz"), status: 400, code: "invalid_request"},
	{
		name:   "a semicolon in the query",
		sends:  get("/v1/connections?limit=1;limit=2"),
		status: 400,
		code:   "invalid_request",
	},
	{
		name:   "a long query",
		sends:  get("/v1/connections?limit=" + strings.Repeat("1", 16<<10)),
		status: 400,
		code:   "invalid_request",
		says:   "limit",
	},
	{
		name:   "a long model",
		sends:  strings.Replace(with("X-A: b"), "gpt-6-luna", strings.Repeat("a", 16<<10), 1),
		status: 400,
		code:   "invalid_request",
		says:   "model",
	},
	{
		name:   "a lower-case method",
		sends:  strings.Replace(with("X-A: b"), "POST", "post", 1),
		status: 405,
		code:   "method_not_allowed",
	},
	{
		name:   "a method of its own",
		sends:  strings.Replace(get("/v1/connection"), "GET", "BREW", 1),
		status: 405,
		code:   "method_not_allowed",
	},
	{
		name:   "a trace",
		sends:  strings.Replace(get("/v1/connection"), "GET", "TRACE", 1),
		status: 405,
		code:   "method_not_allowed",
	},

	// Headers that must come once, and say one thing.
	{name: "two credentials", sends: with("Authorization: Bearer {token}"), status: 401, code: "unauthorized"},
	{name: "two kinds of credentials", sends: with("Authorization: Basic {basic}"), status: 401, code: "unauthorized"},
	{
		name:   "credentials in a list",
		sends:  strings.Replace(with("X-A: b"), "{token}", "{token}, Bearer {token}", 1),
		status: 401,
		code:   "unauthorized",
	},
	{
		name:   "a folded credential",
		sends:  strings.Replace(with("X-A: b"), "Bearer {token}", "Bearer\r\n {token}x", 1),
		status: 401,
		code:   "unauthorized",
	},
	{
		name:   "a credential in bare bytes",
		sends:  strings.Replace(with("X-A: b"), "{token}", "{token}\xff", 1),
		status: 401,
		code:   "unauthorized",
	},
	{
		name:   "a long credential",
		sends:  strings.Replace(with("X-A: b"), "{token}", strings.Repeat("a", 16<<10), 1),
		status: 401,
		code:   "unauthorized",
	},
	{
		name:   "the same key twice",
		sends:  strings.Replace(with("Idempotency-Key: {key}"), "{key}", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", 1),
		status: 400,
		code:   "invalid_request",
		says:   "Idempotency-Key",
	},
	{
		name:   "one key twice",
		sends:  with("Idempotency-Key: {key}"),
		status: 400,
		code:   "invalid_request",
		says:   "Idempotency-Key",
	},
	{
		name:   "two keys in a list",
		sends:  strings.Replace(with("X-A: b"), "{key}", "{key}, {key}", 1),
		status: 400,
		code:   "invalid_request",
		says:   "Idempotency-Key",
	},
	{
		name:   "two features",
		sends:  with("X-Svc-Feature: a\r\nX-Svc-Feature: b"),
		status: 400,
		code:   "invalid_request",
		says:   "X-Svc-Feature",
	},
	{
		name:   "a feature in bare bytes",
		sends:  with("X-Svc-Feature: \xff\xfe"),
		status: 400,
		code:   "invalid_request",
		says:   "X-Svc-Feature",
	},
	{
		name:   "two types",
		sends:  with("Content-Type: application/json"),
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "no type",
		sends:  line + headers + length + "\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "an empty type",
		sends:  line + headers + length + "Content-Type:\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "a type like ours",
		sends:  line + headers + length + "Content-Type: application/json5\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "types in a list",
		sends:  line + headers + length + "Content-Type: application/json, text/plain\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "a type with a suffix",
		sends:  line + headers + length + "Content-Type: application/problem+json\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "a type of another character set",
		sends:  line + headers + length + "Content-Type: application/json; charset=utf-16\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "a type with a broken parameter",
		sends:  line + headers + length + "Content-Type: application/json; charset=\"utf-8\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name: "a type with a parameter twice",
		sends: line + headers + length + "Content-Type: application/json; charset=utf-8; charset=utf-16\r\n\r\n" +
			hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "a form",
		sends:  line + headers + length + "Content-Type: application/x-www-form-urlencoded\r\n\r\n" + hello,
		status: 400,
		code:   "invalid_request",
		says:   "Content-Type",
	},
	{
		name:   "compressed",
		sends:  with("Content-Encoding: gzip"),
		status: 400,
		code:   "invalid_request",
		says:   "Content-Encoding",
	},
	{
		name:   "compressed twice",
		sends:  with("Content-Encoding: identity\r\nContent-Encoding: br"),
		status: 400,
		code:   "invalid_request",
		says:   "Content-Encoding",
	},

	// Bodies.
	{
		name:   "bare bytes in JSON",
		sends:  saying(`{"messages":[{"role":"user","content":"` + "\xff\xfe" + `"}]}`),
		status: 400,
		code:   "invalid_request",
	},
	{
		name:   "half a surrogate in JSON",
		sends:  saying(`{"messages":[{"role":"user","content":"\ud800"}]}`),
		status: 400,
		code:   "invalid_request",
	},
	{
		name:   "a control byte in JSON",
		sends:  saying(`{"messages":[{"role":"user","content":"` + "\x01" + `"}]}`),
		status: 400,
		code:   "invalid_request",
	},
	{name: "UTF-16", sends: saying("\xff\xfe{\x00}\x00"), status: 400, code: "invalid_request"},
	{
		name:   "deep JSON",
		sends:  saying(`{"messages":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`),
		status: 400,
		code:   "invalid_request",
	},
	{
		name:   "a very long name",
		sends:  saying(`{"model":"` + strings.Repeat("a", 1<<20) + `","messages":[{"role":"user","content":"Hello"}]}`),
		status: 400,
		code:   "invalid_request",
		says:   "model",
	},
	{
		name: "a form of bare bytes",
		sends: "POST /oauth/token HTTP/1.1\r\n" + managed +
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 12\r\n\r\ngrant_type=\xff",
		status: 400,
		code:   "invalid_request",
	},
}

// TestRawSockets sends what no HTTP library would: each gets one answer that is
// never a 500, an envelope also where net/http answers by itself, and none leaves a
// trace in money, holds, rows or events. A request that is hidden behind another
// is not carried out.
func TestRawSockets(t *testing.T) {
	t.Parallel()
	if len(hello) != 63 {
		t.Fatalf("the body has %d bytes", len(hello))
	}
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		p := apptest.Start(t, apptest.URL(t, e)).Node
		before := traces(t, p)
		for _, c := range rubbish {
			c.checkAnswer(t, p)
			if after := traces(t, p); after != before {
				t.Fatalf("%s has left a trace: %s, before %s", c.name, after, before)
			}
		}
		var held struct {
			MC *int64 `json:"held_mc"` // also of what is not in the file yet
		}
		if a := whole(t, p.Call("GET", "/v1/connection", "")); json.Unmarshal([]byte(a.body), &held) != nil ||
			held.MC == nil || *held.MC != 0 {
			t.Errorf("held afterwards: %s", a.body)
		}
		p.Verify()
	})
}

func (c *raw) checkAnswer(t *testing.T, p *nodetest.Node) {
	t.Helper()
	sends := strings.NewReplacer("{token}", p.Connection.AccessToken, "{key}", servertest.UUID(),
		"{basic}", base64.StdEncoding.EncodeToString([]byte(p.App.ClientID+":"+p.App.ClientSecret))).Replace(c.sends)
	first, rest := exchangeBytes(t, c.name, strings.TrimPrefix(p.BaseURL, "http://"), sends, c.ends)
	if first == nil {
		if c.status != 0 {
			t.Errorf("%s: no answer, want %d", c.name, c.status)
		}
		return
	}
	body, err := io.ReadAll(first.Body)
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
	if first.StatusCode != c.status || first.StatusCode >= 500 && c.code != early {
		t.Errorf("%s: %s %.500s, want %d", c.name, first.Status, body, c.status)
	}
	if strings.Contains(string(body), p.Connection.AccessToken) || strings.Contains(string(body), p.App.ClientSecret) {
		t.Errorf("%s: a secret stands in %s", c.name, body)
	}
	if len(body) > 4<<10 {
		t.Errorf("%s: the answer has %d bytes: %.100s…", c.name, len(body), body)
	}
	if len(rest) > 0 && !bytes.HasPrefix(rest, []byte("HTTP/1.1 400 Bad Request\r\n")) {
		t.Errorf("%s: after the answer comes %.200q", c.name, rest)
	}
	if c.code == early {
		c.code = "invalid_request"
		if !first.Close {
			t.Errorf("%s: the connection stays open", c.name)
		}
	}
	c.enveloped(t, first, body)
}

// enveloped checks an answer of our own.
func (c *raw) enveloped(t *testing.T, resp *http.Response, body []byte) {
	t.Helper()
	var envelope struct{ Error map[string]any }
	if err := json.Unmarshal(body, &envelope); err != nil || resp.Header.Get("Content-Type") != "application/json" ||
		!strings.HasPrefix(resp.Header.Get("X-Request-Id"), "req_") || resp.Header.Get("Svc-Version") == "" {
		t.Errorf("%s: %s is no envelope: %v %s", c.name, resp.Status, resp.Header, body)
		return
	}
	code, known := apierr.ByName(c.code)
	message, _ := envelope.Error["message"].(string)
	if !known || envelope.Error["code"] != c.code || envelope.Error["type"] != code.Type || message == "" ||
		!strings.Contains(message, c.says) {
		t.Errorf("%s: %s, want %s that says %q", c.name, body, c.code, c.says)
	}
	for _, name := range []string{"connection_id", "increase_url", "review_url"} {
		if _, ok := envelope.Error[name]; !ok {
			t.Errorf("%s: %s is missing in %s", c.name, name, body)
		}
	}
}

// exchangeBytes sends bytes over a connection of their own. It returns the first answer,
// nil if there is none, and whatever comes after it until the server has closed.
func exchangeBytes(t *testing.T, name, address, sends string, ends bool) (first *http.Response, rest []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = io.WriteString(conn, sends)
	if err != nil && !gone(err) { // it may have answered and closed before it has read all
		t.Fatalf("%s: %v", name, err)
	}
	if ends {
		stop()
	}
	in := bufio.NewReader(conn)
	method, _, _ := strings.Cut(sends, " ")
	first, err = http.ReadResponse(in, &http.Request{Method: method})
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	body, err := io.ReadAll(first.Body)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	first.Body = io.NopCloser(bytes.NewReader(body))
	if !ends {
		stop()
	}
	if rest, err = io.ReadAll(in); err != nil && !gone(err) {
		t.Errorf("%s: %v", name, err)
	}
	return first, rest
}

// gone says that the other side has closed with bytes of ours unread.
func gone(err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) }
