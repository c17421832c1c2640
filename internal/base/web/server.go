package web

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns a server for h with limits for each connection. Errors of net/http go to log.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h,
		// A connection that never finishes its headers is closed (slowloris).
		ReadHeaderTimeout: 10 * time.Second,
		// For headers and body together: the time for 20 MiB of images on a slow line. It does not limit the response.
		ReadTimeout: 2 * time.Minute,
		// No WriteTimeout: a streamed response has no fixed duration. Streaming handlers set a deadline for each write.
		WriteTimeout: 0,
		// Idle connections stay longer than the minute of common client pools, so that the client closes first and no
		// request meets a closing connection.
		IdleTimeout: 2 * time.Minute,
		// Our largest valid headers, with cookies, are below 8 KiB.
		MaxHeaderBytes: 32 << 10,
		// "OPTIONS *" goes to the Router like everything else.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
