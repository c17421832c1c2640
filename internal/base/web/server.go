package web

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns a server for h with the limits that keep one client from
// holding what others need. What net/http complains about goes to log.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h,
		// A connection that never finishes its headers is closed (slowloris).
		ReadHeaderTimeout: 10 * time.Second,
		// Headers and body together: 20 MiB of images take this long on a slow
		// line. It ends with the body; streams of answers are not bound by it.
		ReadTimeout: 2 * time.Minute,
		// No WriteTimeout: a streamed answer lasts as long as the model talks.
		// Handlers that stream set a deadline for each write instead.
		WriteTimeout: 0,
		// Idle keep-alive connections of apps stay longer than the minute that
		// common client pools keep them, so that the client closes first and no
		// request meets a closing connection.
		IdleTimeout: 2 * time.Minute,
		// Our largest honest headers, cookies included, are below 8 KiB.
		MaxHeaderBytes: 32 << 10,
		// "OPTIONS *" goes to the Router like everything else.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
