package web

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
)

// What net/http writes when it cannot read a request: the status, and then these headers, in one write. An answer to an
// unknown expectation has the status alone.
var (
	refusalHeaders     = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	refusalLine        = []byte("HTTP/1.1 ")
	refusedExpectation = []byte("HTTP/1.1 417 ")
)

// maxRefusal is more than net/http writes of a refusal.
const maxRefusal = 512

// refusalReasons say what to do about what net/http refuses, by the status. All else is said by net/http.
var refusalReasons = map[int]string{
	417: "Expect: must be 100-continue, or absent.",
	431: "The headers and the address of the request are too long: they may have " + strconv.Itoa(maxHeaderBytes>>10) +
		" KiB together.",
	501: "Transfer-Encoding: must be chunked, or absent.",
	505: "The version of HTTP must be 1.1, 1.0, or 2 over TLS.",
}

// refusalOf returns an envelope for an answer that net/http has made by itself, and nil for all else that is written to
// a connection.
func refusalOf(b []byte, now time.Time) []byte {
	if len(b) > maxRefusal || !bytes.HasPrefix(b, refusalLine) {
		return nil
	}
	line, said, found := bytes.Cut(b, refusalHeaders)
	if !found {
		if !bytes.HasPrefix(b, refusedExpectation) {
			return nil
		}
		line, _, _ = bytes.Cut(b, []byte("\r\n"))
	}
	code, _, _ := bytes.Cut(line[len(refusalLine):], []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil {
		return nil
	}
	message := refusalReasons[status]
	if message == "" {
		_, reason, _ := bytes.Cut(said, []byte(": ")) // 400 Bad Request: the reason
		message = "The request is not well-formed HTTP."
		if len(reason) > 0 && isPlainText(string(reason)) {
			message = fmt.Sprintf("The request is not well-formed HTTP: %s.", reason)
		}
	}
	body, err := Envelope(apierr.InvalidRequest.Errorf("%s", message), Links{})
	if err != nil {
		return nil
	}
	var out bytes.Buffer
	out.Write(line)
	fmt.Fprintf(&out, "\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"%s: %s\r\nX-Request-Id: %s\r\nX-Should-Retry: false\r\nConnection: close\r\n\r\n", len(body), VersionHeader,
		Version, id.New(id.Request, now))
	out.Write(body)
	return out.Bytes()
}
