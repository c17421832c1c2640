package web

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
)

func errNoRoute() *apierr.Error { return apierr.NotFound.Errorf("There is nothing at this address.") }

// errSlashes is errNoRoute for a path that an address of ours may be in, with a slash too many.
func errSlashes() *apierr.Error {
	return apierr.NotFound.Errorf("There is nothing at this address: its path has a slash too many.")
}

// checkTarget refuses request targets that ServeMux would redirect or answer in plain text, and decoded paths with
// characters that the database refuses.
func checkTarget(r *http.Request) error {
	if r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") {
		return apierr.InvalidRequest.Errorf("The request target must be a path, such as /v1/models.")
	}
	switch {
	case !isPlainText(r.URL.Path):
		return errNoRoute()
	case strings.Contains(r.URL.Path, "//"):
		return errSlashes()
	case !cleanSegments(r.URL.Path):
		return errNoRoute()
	}
	return nil
}

// takeAbsolute returns r with the path alone of a target in absolute form, as clients send it that take a server for a
// proxy (RFC 9112 §3.2.2). Its authority is that of the header Host then, which net/http has set.
func takeAbsolute(r *http.Request) *http.Request {
	if r.URL.Scheme != "http" && r.URL.Scheme != "https" || r.URL.Host == "" || r.URL.User != nil {
		return r
	}
	target := *r.URL
	target.Scheme, target.Host = "", ""
	if target.Path == "" {
		target.Path = "/"
	}
	inner := *r
	inner.URL = &target
	return &inner
}

// cleanSegments reports whether the decoded path has no "." or ".." segment and no empty one, except after a trailing
// slash.
func cleanSegments(path string) bool {
	for rest := path[1:]; ; {
		segment, tail, more := strings.Cut(rest, "/")
		if segment == "." || segment == ".." || segment == "" && more {
			return false
		}
		if !more {
			return true
		}
		rest = tail
	}
}

// isPlainText reports whether s is valid UTF-8 without control characters.
func isPlainText(s string) bool { return plainExcept(s, "") }

func plainExcept(s, allowed string) bool {
	for i := range len(s) {
		if (s[i] < ' ' || s[i] == 0x7f) && strings.IndexByte(allowed, s[i]) < 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}
