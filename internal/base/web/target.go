package web

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
)

func errNoRoute() *apierr.Error { return apierr.NotFound.Errorf("There is nothing at this address.") }

// checkTarget refuses request targets that ServeMux would redirect or answer in plain text, and decoded paths with
// characters that the database refuses.
func checkTarget(r *http.Request) error {
	if r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") {
		return apierr.InvalidRequest.Errorf("The request target must be a path, such as /v1/models.")
	}
	if !cleanSegments(r.URL.Path) || !isPlainText(r.URL.Path) {
		return errNoRoute()
	}
	return nil
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
