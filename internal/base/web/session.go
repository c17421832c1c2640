package web

import "net/http"

// SessionCookie is the name of the cookie of a sign-in session. The prefix __Host- binds it to one host, over https
// only.
func SessionCookie(secure bool) string {
	if secure {
		return "__Host-purser"
	}
	return "purser"
}

// HasSessionCookie reports whether a browser sent a session cookie. The session may have ended.
func HasSessionCookie(r *http.Request) bool {
	for _, secure := range []bool{false, true} {
		if c, err := r.Cookie(SessionCookie(secure)); err == nil && c.Value != "" {
			return true
		}
	}
	return false
}
